/*
 * The first scan of a new installation starts automatically. Every minute, the timer `watchScans` of each instance (host
 * process) tries to insert the same row, the claim, with the scan's ID. The instance that inserted the claim starts the scan.
 * If that instance crashes, another one starts the scan under the claim's ID, so that only one first scan exists.
 */
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SCAN_LIST, Scans } from "../../shared/discovery/scan.ts";
import { RowExists } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { newestFirst } from "../../shared/platform/ulid.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { Service } from "../support/service.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";
import { createScanFixture, firstThousand, type ScanFixture } from "./scan-fixture.ts";

const company: Company = {
  subscriptions: [{ name: "Only", vaults: [{ name: "kv-one", secrets: [{ name: "one" }] }] }],
};

/** Runs the timer `watchScans` of a host, which also starts the first scan, and waits for it. */
async function runWatchTimer(url: string): Promise<void> {
  const answer = await fetch(`${url}/__host/timers/watchScans`, { method: "POST" });
  expect(await answer.json()).toEqual({ succeeded: true });
}

describe("the service with empty storage", () => {
  let service: Service;
  afterAll(() => service?.stop());
  const scans = () => service.listAll("/api/assets/discovery/scans");

  test("starts one full scan on two hosts", { timeout: 150_000 }, async () => {
    service = await Service.start({ company, hosts: 2, env: { FIRST_SCAN: "on" } });
    await Promise.all(service.hosts.flatMap(({ url }) => [runWatchTimer(url), runWatchTimer(url)]));
    await expect.poll(scans, { timeout: 150_000 }).toHaveLength(1);
    const [{ scanId }] = await scans();
    expect(await service.waitForScan(scanId)).toMatchObject({ status: "completed", mode: "full", trigger: "schedule" });
    await service.addHost();
    for (const { url } of service.hosts) await runWatchTimer(url);
    await service.waitForEmptyQueues();
    expect(await scans()).toMatchObject([{ scanId, requestedBy: "system" }]);
    expect(await service.listAll("/audit/entries?event_type=scan.started")).toMatchObject([
      { outcome: "intent", target: { id: scanId } },
    ]);
  });
});

describe("the service with FIRST_SCAN=off", () => {
  let service: Service;
  afterAll(() => service?.stop());
  const scans = () => service.listAll("/api/assets/discovery/scans");

  test("starts no scan, even if another instance has FIRST_SCAN=on after a requested scan", {
    timeout: 150_000,
  }, async () => {
    service = await Service.start({ company, env: { FIRST_SCAN: "off" } });
    await runWatchTimer(service.url);
    await service.waitForEmptyQueues();
    expect(await scans()).toEqual([]);
    const { scanId } = await service.scan();
    const { url } = await service.addHost({ FIRST_SCAN: "on" });
    for (let minute = 0; minute < 3; minute++) await runWatchTimer(url);
    await service.waitForEmptyQueues();
    expect(await scans()).toMatchObject([{ scanId }]);
  });
});

describe("instances on one storage account", () => {
  /**
   * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
   * Several fixtures on one account act like several processes of the service.
   */
  const ACCOUNTS = Array.from({ length: 20 }, (_, index) => `account${index}`);
  /** Methods of `Tables` that write. */
  const WRITES = new Set(["insert", "put", "replace", "modify", "transaction"]);
  let storage: MovedStorage;
  beforeAll(async () => {
    storage = await startMovedStorage(ACCOUNTS);
  });
  afterAll(() => storage?.stop());
  let usedAccounts = 0;

  const listScans = async (fixture: ScanFixture) => (await fixture.discovery.list(firstThousand)).items;

  /** Runs the timers of another instance after one minute, after two, and after lost messages are detected. */
  async function runLaterTimers(fixture: ScanFixture): Promise<void> {
    for (const passed of [61 * SECOND_MS, 61 * SECOND_MS, 11 * MINUTE_MS]) {
      await storage.move(passed);
      await fixture.syncClock();
      await fixture.startFirstScan("later");
      await fixture.watch();
      await fixture.deliverMessages();
    }
  }

  test.each(["before", "after"] as const)(
    "another instance starts the scan if the first one crashes %s any write",
    async (when) => {
      let crashes = 0;
      let claims = 0;
      for (let crashAt = 1; ; crashAt++) {
        const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
        const steps: Steps = { taken: 0, crashAt, when };
        const first = createScanFixture(connection, (tables) =>
          crashable(tables, steps, (method) => WRITES.has(method)),
        );
        await first.startFirstScan("crashed").catch(() => undefined);
        if (!steps.dead) break;
        crashes++;
        const other = createScanFixture(connection);
        if ((await other.tables.partitions("Scans").next()).value !== undefined) claims++;
        await runLaterTimers(other);
        expect([crashAt, await listScans(other)]).toMatchObject([
          crashAt,
          [{ status: "completed", trigger: "schedule" }],
        ]);
        expect(new Set((await other.auditEntriesOf("scan.started")).map(({ target }) => target?.id)).size).toBe(1);
      }
      // Five writes: the claim, the active scans, the scan, its copy in the list, the claim again.
      expect(crashes).toBe(5);
      // All crashed instances left a claim, except one that crashed before it wrote the claim.
      expect(claims).toBeGreaterThanOrEqual(4);
    },
    150_000,
  );

  test("two instances that find no claim at the same time start one scan", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
    // The order of steps:
    // 1. Both instances look for the claim, and find none.
    // 2. The faster one inserts the claim, and then waits.
    // 3. The slower one tries to insert the claim too, which fails. So it starts no scan and ends.
    // 4. The faster one starts the scan. If the slower one did start a scan, its third step would be its first write (`modify`
    // of the active scans). It would then wait until the faster one's scan has ended. Then no scan of the same subscriptions
    // would prevent the second one.
    const [claimWritten, scanStarting, fasterEnded] = [
      Promise.withResolvers<void>(),
      Promise.withResolvers<void>(),
      Promise.withResolvers<void>(),
    ];
    const faster = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        const row = await tables.insert(...args);
        claimWritten.resolve();
        await scanStarting.promise;
        return row;
      },
    }));
    const slower = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        await claimWritten.promise;
        return await tables.insert(...args);
      },
      async modify(...args) {
        scanStarting.resolve();
        await fasterEnded.promise;
        return await tables.modify(...args);
      },
    }));
    const late = slower.startFirstScan("slower").finally(() => scanStarting.resolve());
    await faster.startFirstScan("faster");
    await faster.deliverMessages();
    fasterEnded.resolve();
    await late;
    expect(await listScans(faster)).toMatchObject([{ status: "completed" }]);
  });

  test("an instance that is delayed for minutes starts no second scan", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
    const [isWaiting, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let inserts = 0;
    const slow = createScanFixture(connection, (tables) => ({
      ...tables,
      async insert(...args) {
        // The first insert writes the claim, the second one the scan's own row.
        if (++inserts === 2) {
          isWaiting.resolve();
          await released.promise;
        }
        return await tables.insert(...args);
      },
    }));
    const starting = slow.startFirstScan("slow");
    await isWaiting.promise;
    const other = createScanFixture(connection);
    await runLaterTimers(other);
    expect(await listScans(other)).toMatchObject([{ status: "completed" }]);
    released.resolve();
    // The other instance has taken the claim over and written the scan under the same ID.
    await expect(starting).rejects.toThrow(RowExists);
    await slow.deliverMessages();
    await runLaterTimers(slow);
    expect(await listScans(other)).toHaveLength(1);
  });

  test("the first scan starts although a requested scan was lost before it was stored", async () => {
    const fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!));
    await fixture.syncClock();
    const createdAt = fixture.clock.now().toISOString();
    await fixture.active.add({ scanId: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A", mode: "full", workers: 0, createdAt });
    await fixture.startFirstScan("first");
    expect(await listScans(fixture)).toEqual([]);
    await runLaterTimers(fixture);
    expect(await listScans(fixture)).toMatchObject([{ status: "completed", trigger: "schedule" }]);
  });

  test("no first scan starts after all scans were purged", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
    const fixture = createScanFixture(connection);
    await fixture.startFirstScan("first");
    await fixture.deliverMessages();
    const [scan] = await listScans(fixture);
    expect(await fixture.tables.remove(Scans, SCAN_LIST, newestFirst(scan!.scanId))).toBe(true);
    const other = createScanFixture(connection);
    await runLaterTimers(other);
    expect(await listScans(other)).toEqual([]);
  });

  test("an instance starts a scan that another one has claimed only after the claim has expired", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
    // The first instance crashes after its first write, which is the claim.
    const steps: Steps = { taken: 0, crashAt: 1, when: "after" };
    await createScanFixture(connection, (tables) => crashable(tables, steps, (method) => WRITES.has(method)))
      .startFirstScan("slow")
      .catch(() => undefined);
    const other = createScanFixture(connection);
    await other.startFirstScan("quick");
    expect(await listScans(other)).toEqual([]);
    await storage.move(61 * SECOND_MS);
    await other.startFirstScan("quick");
    expect(await listScans(other)).toHaveLength(1);
  });
});
