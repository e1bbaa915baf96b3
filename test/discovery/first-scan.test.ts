import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SCAN_LIST, Scans } from "../../shared/discovery/scan.ts";
import { RowExists } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { newestFirst } from "../../shared/platform/ulid.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { Service } from "../support/service.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";
import { createScanFixture, everything, type ScanFixture } from "./scan-fixture.ts";

const company: Company = {
  subscriptions: [{ name: "Only", vaults: [{ name: "kv-one", secrets: [{ name: "one" }] }] }],
};

/** Runs the timer, as the platform does every minute. Returns when its function has run. */
async function watch(url: string): Promise<void> {
  const answer = await fetch(`${url}/__host/timers/watchScans`, { method: "POST" });
  expect(await answer.json()).toEqual({ succeeded: true });
}

describe("the service with an empty store", () => {
  let service: Service;
  afterAll(() => service?.stop());
  const scans = () => service.all("/api/assets/discovery/scans");

  test("two hosts start one full scan automatically, and none after it", { timeout: 150_000 }, async () => {
    service = await Service.start({ company, hosts: 2, env: { FIRST_SCAN: "on" } });
    await Promise.all(service.hosts.flatMap(({ url }) => [watch(url), watch(url)]));
    await expect.poll(scans, { timeout: 150_000 }).toHaveLength(1);
    const [{ scanId }] = await scans();
    expect(await service.scanEnds(scanId)).toMatchObject({ status: "completed", mode: "full", trigger: "schedule" });
    await service.addHost();
    for (const { url } of service.hosts) await watch(url);
    await service.settled();
    expect(await scans()).toMatchObject([{ scanId, requestedBy: "system" }]);
    expect(await service.all("/audit/entries?event_type=scan.started")).toMatchObject([
      { outcome: "intent", target: { id: scanId } },
    ]);
  });
});

describe("the service with FIRST_SCAN=off", () => {
  let service: Service;
  afterAll(() => service?.stop());
  const scans = () => service.all("/api/assets/discovery/scans");

  test("starts no scan, and after FIRST_SCAN is turned on none if there was a scan", { timeout: 150_000 }, async () => {
    service = await Service.start({ company, env: { FIRST_SCAN: "off" } });
    await watch(service.url);
    await service.settled();
    expect(await scans()).toEqual([]);
    const { scanId } = await service.scan();
    const { url } = await service.addHost({ FIRST_SCAN: "on" });
    for (let minute = 0; minute < 3; minute++) await watch(url);
    await service.settled();
    expect(await scans()).toMatchObject([{ scanId }]);
  });
});

describe("an instance that crashes", () => {
  const ACCOUNTS = Array.from({ length: 20 }, (_, at) => `account${at}`);
  const WRITES = new Set(["insert", "put", "replace", "modify", "transaction"]);
  let storage: MovedStorage;
  beforeAll(async () => {
    storage = await startMovedStorage(ACCOUNTS);
  });
  afterAll(() => storage?.stop());
  let used = 0;

  const list = async (fixture: ScanFixture) => (await fixture.discovery.list(everything)).items;

  /** Runs the timer of another instance after a minute, after two, and once lost messages are sent again. */
  async function laterOn(fixture: ScanFixture): Promise<void> {
    for (const passed of [61 * SECOND_MS, 61 * SECOND_MS, 11 * MINUTE_MS]) {
      await storage.move(passed);
      await fixture.clockCatchesUp();
      await fixture.startFirstScan("later");
      await fixture.watch();
      await fixture.deliver();
    }
  }

  test.each(["before", "after"] as const)(
    "%s any write leaves one scan to another instance",
    async (when) => {
      let crashes = 0;
      let claims = 0;
      for (let crashAt = 1; ; crashAt++) {
        const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
        const steps: Steps = { taken: 0, crashAt, when };
        const first = createScanFixture(connection, (tables) =>
          crashable(tables, steps, (method) => WRITES.has(method)),
        );
        await first.startFirstScan("crashed").catch(() => undefined);
        if (!steps.dead) break;
        crashes++;
        const other = createScanFixture(connection);
        if ((await other.tables.partitions("Scans").next()).value !== undefined) claims++;
        await laterOn(other);
        expect([crashAt, await list(other)]).toMatchObject([crashAt, [{ status: "completed", trigger: "schedule" }]]);
        expect(new Set((await other.entries("scan.started")).map(({ target }) => target?.id)).size).toBe(1);
      }
      // The claim, the active scans, the scan, its copy in the list, the claim again.
      expect(crashes).toBe(5);
      expect(claims).toBeGreaterThanOrEqual(4);
    },
    150_000,
  );

  test("two instances that find no claim at the same time start one scan", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const [claimed, started, ended] = [
      Promise.withResolvers<void>(),
      Promise.withResolvers<void>(),
      Promise.withResolvers<void>(),
    ];
    const faster = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        const row = await tables.insert(...args);
        claimed.resolve();
        await started.promise;
        return row;
      },
    }));
    const slower = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        await claimed.promise;
        return await tables.insert(...args);
      },
      async modify(...args) {
        started.resolve();
        await ended.promise;
        return await tables.modify(...args);
      },
    }));
    const late = slower.startFirstScan("slower").finally(() => started.resolve());
    await faster.startFirstScan("faster");
    await faster.deliver();
    ended.resolve();
    await late;
    expect(await list(faster)).toMatchObject([{ status: "completed" }]);
  });

  test("an instance that is delayed by minutes while it starts the scan starts no second one", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const [held, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let inserts = 0;
    const slow = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        if (++inserts === 2) {
          held.resolve();
          await released.promise;
        }
        return await tables.insert(...args);
      },
    }));
    const starting = slow.startFirstScan("slow");
    await held.promise;
    const other = createScanFixture(connection);
    await laterOn(other);
    expect(await list(other)).toMatchObject([{ status: "completed" }]);
    released.resolve();
    await expect(starting).rejects.toThrow(RowExists);
    await slow.deliver();
    await laterOn(slow);
    expect(await list(other)).toHaveLength(1);
  });

  test("the first scan starts where a requested scan was lost before it was stored", async () => {
    const fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[used++]!));
    await fixture.clockCatchesUp();
    const createdAt = fixture.clock.now().toISOString();
    await fixture.active.enter({ scanId: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A", mode: "full", workers: 0, createdAt });
    await fixture.startFirstScan("first");
    expect(await list(fixture)).toEqual([]);
    await laterOn(fixture);
    expect(await list(fixture)).toMatchObject([{ status: "completed", trigger: "schedule" }]);
  });

  test("no scan starts automatically after all scans were purged", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const fixture = createScanFixture(connection);
    await fixture.startFirstScan("first");
    await fixture.deliver();
    const [scan] = await list(fixture);
    expect(await fixture.tables.remove(Scans, SCAN_LIST, newestFirst(scan!.scanId))).toBe(true);
    const other = createScanFixture(connection);
    await laterOn(other);
    expect(await list(other)).toEqual([]);
  });

  test("an instance does not start a scan that another one has just claimed", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const steps: Steps = { taken: 0, crashAt: 1, when: "after" };
    await createScanFixture(connection, (tables) => crashable(tables, steps, (method) => WRITES.has(method)))
      .startFirstScan("slow")
      .catch(() => undefined);
    const other = createScanFixture(connection);
    await other.startFirstScan("quick");
    expect(await list(other)).toEqual([]);
    await storage.move(61 * SECOND_MS);
    await other.startFirstScan("quick");
    expect(await list(other)).toHaveLength(1);
  });
});
