import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import {
  ACTIVE,
  ActiveScans,
  claimedKey,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  Scans,
  scanPartition,
  VaultMessage,
} from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/vault-claim.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { endHangingWorkers, startHanging, untilTestEnds } from "./hanging-workers.ts";
import { caller, createScanFixture, HERE, type ScanFixture } from "./scan-fixture.ts";

/** Recovery of crashed workers and lost messages, which the watch detects by the age of rows in storage. */

const ACCOUNTS = Array.from({ length: 24 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let connection: string;
let fixture: ScanFixture;
beforeEach(() => {
  connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
  fixture = createScanFixture(connection);
});

endHangingWorkers();

/** Starts a worker that takes the message and then hangs in its first vault, like a crashed one. */
async function hangsIn(message: { scanId: string; index: string }): Promise<void> {
  const worker = createScanFixture(connection);
  const reached = new Promise<void>((resolve) => {
    worker.cloud.keyVaults.open = () => {
      resolve();
      return { secrets: hang, keys: hang, certificates: hang } as never;
    };
  });
  startHanging(worker.run.scanVaults(message, 1));
  await reached;
}
async function* hang(): AsyncGenerator<never> {
  yield await untilTestEnds();
}

describe("a crashed worker", () => {
  test("is detected after a minute, and its vault and the other vaults of the scan continue", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    await hangsIn(message!.message);
    await storage.move(40 * SECOND_MS);
    await fixture.watch();
    expect(fixture.sent).toEqual([]);
    await storage.move(25 * SECOND_MS);
    await fixture.watch();
    await fixture.watch();
    expect(fixture.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 0 }]);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("does not delay any other worker of the scan", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    const scanId = await fixture.planned();
    const [dead, alive] = fixture.take(QUEUES.vaults);
    await hangsIn(dead!.message);
    await fixture.hand(alive!);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
  });

  test("is not assumed while a worker renews its lease, however long its vault takes", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      const scanId = await fixture.planned();
      const [message] = fixture.take(QUEUES.vaults);
      await hangsIn(message!.message);
      const etag = async () =>
        (await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey("000000")))?.etag;
      for (let renewal = 0; renewal < 4; renewal++) {
        await storage.move(30 * SECOND_MS);
        const before = await etag();
        vi.advanceTimersByTime(20 * SECOND_MS);
        await expect.poll(etag).not.toBe(before);
        await fixture.watch();
      }
      expect(fixture.sent).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });
});

test("a poison handler that crashes before it sends the next vault is recovered like any worker", async () => {
  fixture.settings.discoveryMaxWorkers = 1;
  const scanId = await fixture.planned();
  const [message] = fixture.take(QUEUES.vaults);
  let ended = false;
  const crashing = createScanFixture(connection, (tables) => ({
    ...tables,
    transaction: async (...of) => {
      if (ended) throw new Error("died");
      ended = true;
      return await tables.transaction(...of);
    },
  }));
  await expect(crashing.run.vaultFailed(scanId, message!.message.index)).rejects.toThrow("died");
  await storage.move(65 * SECOND_MS);
  await fixture.watch();
  expect(fixture.sent).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
  await fixture.deliver();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
});

test("a scan with an invalid row fails the watch, which still checks the other scans", async () => {
  const [broken, other] = [
    await fixture.discovery.start({ mode: "force" }, caller),
    await fixture.discovery.start({ mode: "force" }, caller),
  ];
  fixture.sent.length = 0;
  const Broken = entity(Scans.table, z.object({ status: z.string() }));
  await fixture.tables.put(Broken, scanPartition(broken.scanId), SCAN_ROW, { status: "nonsense" });
  expect((await fixture.active.all()).map(({ scanId }) => scanId)).toEqual([broken.scanId, other.scanId]);
  await storage.move(11 * MINUTE_MS);
  await expect(fixture.watch()).rejects.toThrow(StorageCorrupt);
  expect(fixture.sent).toMatchObject([{ queue: QUEUES.plan, message: { scanId: other.scanId } }]);
});

describe("a vault's message", () => {
  test("that no worker has started counts as lost only after the platform would have redelivered it", async () => {
    const scanId = await fixture.planned();
    const [, ...others] = fixture.take(QUEUES.vaults);
    for (const message of others) await fixture.hand(message);
    await storage.move(10 * MINUTE_MS + 30 * SECOND_MS);
    await fixture.watch();
    expect(fixture.sent).toEqual([]);
    await storage.move(MINUTE_MS);
    await fixture.watch();
    expect(fixture.take(QUEUES.vaults)).toMatchObject([{ message: { scanId, index: "000000" } }]);
  });

  test("that was considered lost and arrives late is processed once: the duplicate ends at once", async () => {
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    await storage.move(12 * MINUTE_MS);
    await fixture.watch();
    // The watch sends lost messages concurrently, so in any order.
    const again = fixture.take(QUEUES.vaults).find((one) => one.message.index === message!.message.index);
    await hangsIn(message!.message);
    let opened = 0;
    fixture.cloud.keyVaults.open = () => {
      opened++;
      throw new Error("No other worker may read a vault with an active worker.");
    };
    await fixture.hand(again!);
    expect(opened).toBe(0);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ vaultsDone: 0 });
  });

  test("waits at most half a minute for another worker of the vault, and does not count as lost meanwhile", async () => {
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    fixture.writer.readForUpdate = async (name) => {
      throw new VaultBusy(name, 3 * HOUR_MS);
    };
    await fixture.hand(message!);
    expect(fixture.take(QUEUES.vaults)).toEqual([
      { queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 30 },
    ]);
    await storage.move(2 * MINUTE_MS);
    await fixture.watch();
    expect(fixture.sent).toEqual([]);
  });
});

test("after an outage each worker sends messages only for its own vaults, however many are redelivered at once", async () => {
  const names = Array.from({ length: 24 }, (_, at) => `kv-${String(at).padStart(2, "0")}`);
  fixture.cloud.vaults.set(HERE, names);
  fixture.settings.discoveryMaxWorkers = 12;
  const scanId = await fixture.planned();
  const messages = fixture.take(QUEUES.vaults);
  expect(messages).toHaveLength(12);
  // Ten workers have finished their first vault and claimed a second one when storage fails.
  const working = messages.slice(0, 10);
  for (const { message } of working) {
    const worker = createScanFixture(connection);
    await worker.clockCatchesUp();
    const { readForUpdate: known } = worker.writer;
    const started = new Set<string>();
    worker.writer.readForUpdate = async (name) => {
      if (started.add(name).size > 1) throw new Error("storage is away");
      return await known(name);
    };
    await expect(worker.run.scanVaults(message, 1)).rejects.toThrow("storage is away");
  }
  expect(fixture.sent).toEqual([]);
  for (const { message } of working) await fixture.run.scanVaults(message, 2);
  expect(new Set(fixture.sent.map(({ message }) => message.index)).size).toBe(10);
  expect(fixture.sent).toHaveLength(10);
  await fixture.deliver();
  for (const one of messages.slice(10)) await fixture.hand(one);
  await fixture.deliver();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 24 });
});

test("messages and claims of the previous version still work", async () => {
  const scanId = await fixture.planned();
  const messages = fixture.take(QUEUES.vaults).map(({ message }) => message);
  for (const { index } of messages) {
    const {
      worker: _,
      begun: __,
      ...row
    } = (await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index)))!;
    await fixture.tables.replace(PlannedVaults, row);
    const vault = { name: row.name, subscriptionId: row.subscriptionId, action: row.action, resource: {}, chain: 0 };
    await fixture.run.scanVaults(VaultMessage.parse({ scanId, index, vault }), index === "000001" ? 2 : 1);
  }
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("regardless of the clocks of the hosts that wrote the rows", () => {
  const hoursAhead = () => new Date(Date.now() + 10 * HOUR_MS).toISOString();

  test("the watch continues when a vault that seemed lost finishes at that moment", async () => {
    const scanId = await fixture.planned();
    await storage.move(12 * MINUTE_MS);
    let raced = 0;
    const racing = createScanFixture(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        // The worker changes the first row before the watch does.
        if (row.rowKey === claimedKey("000000") && raced++ === 0) await tables.replace(entity, { ...row });
        return await tables.replace(entity, row);
      },
    }));
    await racing.watch();
    expect(raced).toBe(1);
    expect(
      racing
        .take(QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual(["000001", "000002"]);
    expect((await racing.active.all()).map((one) => one.scanId)).toEqual([scanId]);
  });

  test("a scan whose process crashed while creating it delays the next scan by at most a minute", async () => {
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    await fixture.tables.remove(Scans, scanPartition(scanId), SCAN_ROW);
    await fixture.tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => ({
      looks: [],
      scans: row!.scans.map((scan) => ({ ...scan, createdAt: hoursAhead() })),
    }));
    await expect(fixture.discovery.start({ mode: "full" }, caller)).rejects.toMatchObject({ code: "scanRunning" });
    await storage.move(61 * SECOND_MS);
    await fixture.watch();
    expect(await fixture.active.all()).toEqual([]);
    await fixture.discovery.start({ mode: "full" }, caller);
  });

  test("the times of a scan are those of the store", async () => {
    await storage.move(HOUR_MS);
    await fixture.clockCatchesUp();
    const started = Date.now();
    const scan = await fixture.scan("full");
    const reported = [scan.createdAt, scan.startedAt, scan.finishedAt].map((at) => Date.parse(at!) - started);
    // The store's times have whole seconds.
    for (const ahead of reported) expect(ahead).toBeGreaterThan(HOUR_MS - 5 * SECOND_MS);
    expect(Date.parse(scan.deadline!) - Date.parse(scan.startedAt!)).toBe(HOUR_MS);
  });
});
