import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";
import { caller, createScanFixture, everything, HERE, type ScanFixture, THERE } from "./scan-fixture.ts";

const ACCOUNTS = Array.from({ length: 100 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let fixture: ScanFixture;
beforeEach(() => {
  fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[used++]!));
});

describe("a plan", () => {
  test("delivered twice at the same time is written once, and every vault is scanned once", async () => {
    const { discovery, sent } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent.length = 0;
    let arrived = 0;
    let go = () => {};
    const both = new Promise<void>((resolve) => {
      go = resolve;
    });
    fixture.cloud.whileListingVaults = async () => {
      if (++arrived === 4) go();
      await both;
    };
    await Promise.all([1, 2].map(() => fixture.plan(scanId).then(go)));
    expect(
      sent
        .filter(({ queue }) => queue === QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual(["000000", "000001", "000002"]);
    await fixture.deliver();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("that another one overtook while it listed the vaults does not overwrite the running scan", async () => {
    const { discovery, run, sent } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent.length = 0;
    let overtaken = false;
    fixture.cloud.whileListingVaults = async () => {
      if (overtaken) return;
      overtaken = true;
      await run.scan(scanId, 1);
    };
    await run.scan(scanId, 1);
    expect(overtaken).toBe(true);
    expect(fixture.cloud.secretListings).toBe(3);
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsTotal: 3, vaultsDone: 3 });
    expect((await discovery.results(scanId, everything)).page.items).toHaveLength(3);
  });

  test("starts no vault again after a duplicate message, but does after the message's second delivery", async () => {
    const { discovery, run, sent } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    await fixture.plan(scanId);
    sent.length = 0;
    await run.scan(scanId, 1);
    expect(sent).toEqual([]);
    await run.scan(scanId, 2);
    expect(sent.filter(({ queue }) => queue === QUEUES.vaults)).toHaveLength(3);
  });

  test("that waits for workers gets no additional messages from the watch", async () => {
    const { discovery, run, watch, sent, settings } = fixture;
    settings.discoveryMaxWorkers = 1;
    const busy = await discovery.start({ mode: "full" }, caller);
    await run.plan(busy.scanId, 1);
    const waiting = await discovery.start({ mode: "force" }, caller);
    for (let round = 0; round < 3; round++) {
      sent.length = 0;
      await run.plan(waiting.scanId, 1);
      expect(sent).toMatchObject([{ queue: QUEUES.plan, message: { scanId: waiting.scanId } }]);
      await watch();
      expect(sent.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
      await storage.move(4 * MINUTE_MS);
    }
    // Only a lost message is replaced, by one message.
    await storage.move(11 * MINUTE_MS);
    sent.length = 0;
    await watch();
    await watch();
    expect(sent.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
  });
});

/** The calls that change storage. */
const WRITES = ["insert", "put", "replace", "remove", "modify", "transaction", "write"];
/** One crash per this number of steps. */
const STRIDE = IS_CAMPAIGN ? 1 : 9;

describe("a scan within the invocation of its one message", () => {
  const names = (count: number) => Array.from({ length: count }, (_, at) => `kv-${String(at).padStart(2, "0")}`);

  test("is planned, scanned and ended there, and sends no other message", async () => {
    fixture.cloud.vaults.set(HERE, names(12));
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    expect(fixture.take(QUEUES.plan)).toHaveLength(1);
    await fixture.run.scan(scanId, 1);
    expect(fixture.sent).toEqual([]);
    expect(fixture.cloud.secretListings).toBe(12);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 12 });
  });

  test("scans ten vaults at once, sends messages for further workers, and never exceeds the limit", async () => {
    fixture.cloud.vaults.set(HERE, names(16));
    fixture.settings.discoveryMaxWorkers = 12;
    let now = 0;
    let most = 0;
    fixture.cloud.whileListingSecrets = async () => {
      most = Math.max(most, ++now);
      // Only ten together can continue.
      while (most < 10) await delay(5);
      now--;
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.take(QUEUES.plan);
    const first = fixture.run.scan(scanId, 1);
    await expect.poll(() => fixture.sent.length).toBe(2);
    await Promise.all([first, ...fixture.take(QUEUES.vaults).map((one) => fixture.hand(one))]);
    expect(most).toBeGreaterThanOrEqual(10);
    expect(most).toBeLessThanOrEqual(12);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 16 });
    expect(fixture.cloud.secretListings).toBe(16);
  });

  test("hands off what it does not finish in some seconds, one message per vault, and continues with one worker", async () => {
    fixture.cloud.vaults.set(HERE, names(9));
    fixture.settings.discoveryMaxWorkers = 3;
    let later: Promise<void> | undefined;
    const seconds = async () => {
      await storage.move(16 * SECOND_MS);
      await fixture.clockCatchesUp();
    };
    // No vault finishes before the time has passed.
    fixture.cloud.whileListingSecrets = () => {
      later ??= seconds();
      return later;
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.take(QUEUES.plan);
    await fixture.run.scan(scanId, 1);
    expect(fixture.sent).toHaveLength(2);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 7 });
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 9 });
    expect(fixture.cloud.secretListings).toBe(9);
  });

  test("is scanned and ended even if the response to its start was lost and it was canceled at that moment", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const other = createScanFixture(connection);
    let isLost = false;
    const unlucky = createScanFixture(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        const written = await tables.replace(entity, row);
        if (isLost || (row as { status?: string }).status !== "running") return written;
        // The response is lost, and the scan is canceled before the request is retried.
        isLost = true;
        await other.discovery.cancel(scanId, caller);
        return await tables.replace(entity, row);
      },
    }));
    unlucky.cloud.vaults.set(HERE, names(14));
    unlucky.settings.discoveryMaxWorkers = 12;
    const { scanId } = await other.discovery.start({ mode: "full" }, caller);
    await unlucky.run.scan(scanId, 1);
    expect(unlucky.take(QUEUES.vaults).map(({ message }) => message.index)).toEqual(["000010", "000011"]);
    expect(unlucky.cloud.secretListings).toBe(10);
    for (const index of ["000010", "000011"]) await unlucky.run.scanVaults({ scanId, index }, 1);
    expect(await other.discovery.progress(scanId)).toMatchObject({ status: "cancelled", vaultsDone: 12 });
  });

  test("that fails at one vault scans the others, and the message's next delivery sends a message for that vault", async () => {
    fixture.cloud.vaults.set(HERE, names(5));
    const { readForUpdate } = fixture.writer;
    fixture.writer.readForUpdate = async (name) => {
      if (name === "kv-03") throw new Error("storage fails");
      return await readForUpdate(name);
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.take(QUEUES.plan);
    await expect(fixture.run.scan(scanId, 1)).rejects.toThrow("storage fails");
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 4 });
    fixture.writer.readForUpdate = readForUpdate;
    await fixture.run.scan(scanId, 2);
    expect(fixture.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000003" }, delaySeconds: 0 }]);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 5 });
  });

  test("that crashed at any write is continued by the next delivery, and every vault finishes once", async () => {
    let crashes = 0;
    for (let at = 1 + (SEED % STRIDE); ; at += STRIDE) {
      const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
      const other = createScanFixture(connection);
      const { scanId } = await other.discovery.start({ mode: "full" }, caller);
      other.take(QUEUES.plan);
      const steps: Steps = { taken: 0, crashAt: at, when: at % 2 ? "before" : "after" };
      const crashingTables = createScanFixture(connection, (tables) =>
        crashable(tables, steps, (method) => WRITES.includes(method)),
      );
      await crashingTables.run.scan(scanId, 1).catch(() => {});
      if (!steps.dead) break;
      crashes++;
      const { status } = await other.discovery.progress(scanId);
      if (status === "queued" || status === "running") {
        await storage.move(11 * MINUTE_MS);
        await other.run.scan(scanId, 2);
        await other.deliver();
        await other.watch();
        await other.deliver();
      }
      expect(await other.discovery.progress(scanId), `crash ${at}`).toMatchObject({
        status: "completed",
        vaultsDone: 3,
      });
      expect(await other.ids()).toHaveLength(6);
      expect(await other.entries("scan.finished")).toHaveLength(1);
      expect(await other.active.all()).toEqual([]);
    }
    expect(crashes).toBeGreaterThan(1);
  });
});

describe("the list of scans", () => {
  test("shows a scan's current state, also while it runs", async () => {
    const { discovery } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    fixture.sent.length = 0;
    const listed = async () => (await discovery.list(everything)).items.map(({ status }) => status);
    expect(await listed()).toEqual(["queued"]);
    await fixture.plan(scanId);
    expect(await listed()).toEqual(["running"]);
    await fixture.deliver();
    expect(await listed()).toEqual(["completed"]);
  });
});

describe("a vault that moved to another subscription", () => {
  test.each(["first", "last"] as const)("is stored only there, whichever message is delivered %s", async (order) => {
    await fixture.scan("full");
    fixture.cloud.vaults = new Map([
      [HERE, ["kv-one", "kv-two"]],
      [THERE, ["kv-three"]],
    ]);
    expect(await fixture.scan("delta", order)).toMatchObject({ status: "completed" });
    const wanted = ["1 kv-one", "1 kv-two", "2 kv-three"].flatMap((vault) => [
      `${vault} certificate`,
      `${vault} secret`,
    ]);
    expect(await fixture.ids()).toEqual(wanted);
    expect(await fixture.ids({ subscription: HERE })).toEqual(wanted.slice(0, 4));
    expect(await fixture.ids({ subscription: THERE })).toEqual(wanted.slice(4));
  });

  test("is not removed by a scan that planned its removal before another scan found it", async () => {
    await fixture.scan("full");
    fixture.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    const { discovery, sent } = fixture;
    const removing = await discovery.start({ mode: "delta", subscriptions: [HERE] }, caller);
    await fixture.plan(removing.scanId);
    const messages = sent.splice(0);
    fixture.cloud.vaults.set(THERE, ["kv-three"]);
    await discovery.start({ mode: "delta", subscriptions: [THERE] }, caller);
    await fixture.deliver();
    sent.push(...messages.filter(({ message }) => message.scanId === removing.scanId && "index" in message));
    await fixture.deliver();
    expect(await fixture.ids({ subscription: THERE })).toEqual(["2 kv-three certificate", "2 kv-three secret"]);
  });
});

describe("details that could not be read", () => {
  test("are a failure until a scan of any mode has read them", async () => {
    fixture.cloud.certificate = () => {
      throw new CloudFailure("throttled", "Too many requests.", { remedy: "Wait." });
    };
    expect(await fixture.scan("full")).toMatchObject({ status: "partial" });
    expect(await fixture.scan("delta")).toMatchObject({ status: "partial" });
    fixture.cloud.certificate = () => ({ version: "1", subject: "CN=www" });
    expect(await fixture.scan("delta")).toMatchObject({ status: "completed" });
    const { items } = await fixture.assets.list({ type: "certificate" }, everything, {
      now: 0,
      criticalDays: 7,
      warningDays: 30,
    });
    expect(items.map(({ asset }) => asset.subject)).toEqual(["CN=www", "CN=www", "CN=www"]);
    let asked = 0;
    fixture.cloud.certificate = () => {
      asked++;
      return {};
    };
    expect(await fixture.scan("delta")).toMatchObject({ status: "completed" });
    expect(asked).toBe(0);
  });
});
