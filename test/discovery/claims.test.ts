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
import { VaultBusy } from "../../shared/inventory/claim.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { endHangingWorkers, startHanging, untilTestEnds } from "./hanging-workers.ts";
import { caller, HERE, type Rooms, scanRooms } from "./scan-fixture.ts";

/** What workers and messages that are lost are told by: the age of rows, as storage counts it. */

const ACCOUNTS = Array.from({ length: 24 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let connection: string;
let rooms: Rooms;
beforeEach(() => {
  connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
  rooms = scanRooms(connection);
});

endHangingWorkers();

/** A worker that takes the message and then hangs in its first vault, as one that died does. */
async function hangsIn(message: { scanId: string; index: string }): Promise<void> {
  const worker = scanRooms(connection);
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

describe("a worker that died", () => {
  test("is noticed a minute later; its vault goes on, and the scan's other vaults with it", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    await hangsIn(message!.message);
    await storage.move(40 * SECOND_MS);
    await rooms.watch();
    expect(rooms.sent).toEqual([]);
    await storage.move(25 * SECOND_MS);
    await rooms.watch();
    await rooms.watch();
    expect(rooms.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 0 }]);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("holds up no other chain of the scan", async () => {
    rooms.settings.discoveryMaxWorkers = 2;
    const scanId = await rooms.planned();
    const [dead, alive] = rooms.take(QUEUES.vaults);
    await hangsIn(dead!.message);
    await rooms.hand(alive!);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
  });

  test("is no worker that renews its claim, however long its vault takes", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      const scanId = await rooms.planned();
      const [message] = rooms.take(QUEUES.vaults);
      await hangsIn(message!.message);
      const etag = async () =>
        (await rooms.tables.get(PlannedVaults, scanPartition(scanId), claimedKey("000000")))?.etag;
      for (let renewal = 0; renewal < 4; renewal++) {
        await storage.move(30 * SECOND_MS);
        const before = await etag();
        vi.advanceTimersByTime(20 * SECOND_MS);
        await expect.poll(etag).not.toBe(before);
        await rooms.watch();
      }
      expect(rooms.sent).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });
});

test("a handler of what failed for good that dies before it sends the next vault is noticed as any worker is", async () => {
  rooms.settings.discoveryMaxWorkers = 1;
  const scanId = await rooms.planned();
  const [message] = rooms.take(QUEUES.vaults);
  let ended = false;
  const dying = scanRooms(connection, (tables) => ({
    ...tables,
    transaction: async (...of) => {
      if (ended) throw new Error("died");
      ended = true;
      return await tables.transaction(...of);
    },
  }));
  await expect(dying.run.vaultFailed(scanId, message!.message.index)).rejects.toThrow("died");
  await storage.move(65 * SECOND_MS);
  await rooms.watch();
  expect(rooms.sent).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
  await rooms.deliver();
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
});

test("a scan whose row is broken fails the watch, which looks after the others all the same", async () => {
  const [broken, other] = [
    await rooms.discovery.start({ mode: "force" }, caller),
    await rooms.discovery.start({ mode: "force" }, caller),
  ];
  rooms.sent.length = 0;
  const Broken = entity(Scans.table, z.object({ status: z.string() }));
  await rooms.tables.put(Broken, scanPartition(broken.scanId), SCAN_ROW, { status: "nonsense" });
  expect((await rooms.active.all()).map(({ scanId }) => scanId)).toEqual([broken.scanId, other.scanId]);
  await storage.move(11 * MINUTE_MS);
  await expect(rooms.watch()).rejects.toThrow(StorageCorrupt);
  expect(rooms.sent).toMatchObject([{ queue: QUEUES.plan, message: { scanId: other.scanId } }]);
});

describe("a vault's message", () => {
  test("that nobody has begun is lost only after longer than the platform hides a dead worker's", async () => {
    const scanId = await rooms.planned();
    const [, ...others] = rooms.take(QUEUES.vaults);
    for (const message of others) await rooms.hand(message);
    await storage.move(10 * MINUTE_MS + 30 * SECOND_MS);
    await rooms.watch();
    expect(rooms.sent).toEqual([]);
    await storage.move(MINUTE_MS);
    await rooms.watch();
    expect(rooms.take(QUEUES.vaults)).toMatchObject([{ message: { scanId, index: "000000" } }]);
  });

  test("that was lost and comes after all is done once: the other one ends at a glance", async () => {
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    await storage.move(12 * MINUTE_MS);
    await rooms.watch();
    // The watch sends lost messages side by side, so in any order.
    const again = rooms.take(QUEUES.vaults).find((one) => one.message.index === message!.message.index);
    await hangsIn(message!.message);
    let opened = 0;
    rooms.cloud.keyVaults.open = () => {
      opened++;
      throw new Error("Nobody may look at a vault that is in hand.");
    };
    await rooms.hand(again!);
    expect(opened).toBe(0);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ vaultsDone: 0 });
  });

  test("waits half a minute at most for another worker of the vault, and counts as waiting, not as dead", async () => {
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    rooms.writer.known = async (name) => {
      throw new VaultBusy(name, 3 * HOUR_MS);
    };
    await rooms.hand(message!);
    expect(rooms.take(QUEUES.vaults)).toEqual([
      { queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 30 },
    ]);
    await storage.move(2 * MINUTE_MS);
    await rooms.watch();
    expect(rooms.sent).toEqual([]);
  });
});

test("after an outage each worker sends for what it had in hand, however many come again together", async () => {
  const names = Array.from({ length: 24 }, (_, at) => `kv-${String(at).padStart(2, "0")}`);
  rooms.cloud.vaults.set(HERE, names);
  rooms.settings.discoveryMaxWorkers = 12;
  const scanId = await rooms.planned();
  const messages = rooms.take(QUEUES.vaults);
  expect(messages).toHaveLength(12);
  // Ten of them are through with their first vault and have a second one in hand when storage fails.
  const working = messages.slice(0, 10);
  for (const { message } of working) {
    const worker = scanRooms(connection);
    await worker.clockCatchesUp();
    const { known } = worker.writer;
    const begun = new Set<string>();
    worker.writer.known = async (name) => {
      if (begun.add(name).size > 1) throw new Error("storage is away");
      return await known(name);
    };
    await expect(worker.run.scanVaults(message, 1)).rejects.toThrow("storage is away");
  }
  expect(rooms.sent).toEqual([]);
  for (const { message } of working) await rooms.run.scanVaults(message, 2);
  expect(new Set(rooms.sent.map(({ message }) => message.index)).size).toBe(10);
  expect(rooms.sent).toHaveLength(10);
  await rooms.deliver();
  for (const one of messages.slice(10)) await rooms.hand(one);
  await rooms.deliver();
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 24 });
});

test("messages and claims of the version before go on as they are", async () => {
  const scanId = await rooms.planned();
  const messages = rooms.take(QUEUES.vaults).map(({ message }) => message);
  for (const { index } of messages) {
    const {
      worker: _,
      begun: __,
      ...row
    } = (await rooms.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index)))!;
    await rooms.tables.replace(PlannedVaults, row);
    const vault = { name: row.name, subscriptionId: row.subscriptionId, action: row.action, resource: {}, chain: 0 };
    await rooms.run.scanVaults(VaultMessage.parse({ scanId, index, vault }), index === "000001" ? 2 : 1);
  }
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("whatever the clocks of those who wrote them say", () => {
  const hoursAhead = () => new Date(Date.now() + 10 * HOUR_MS).toISOString();

  test("the watch goes on when a vault that seemed lost ends in this moment", async () => {
    const scanId = await rooms.planned();
    await storage.move(12 * MINUTE_MS);
    let raced = 0;
    const racing = scanRooms(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        // Its worker marks the first one before the watch does.
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

  test("a scan that was lost at its birth holds up the next one for a minute only", async () => {
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    await rooms.tables.remove(Scans, scanPartition(scanId), SCAN_ROW);
    await rooms.tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => ({
      looks: [],
      scans: row!.scans.map((scan) => ({ ...scan, createdAt: hoursAhead() })),
    }));
    await expect(rooms.discovery.start({ mode: "full" }, caller)).rejects.toMatchObject({ code: "scanRunning" });
    await storage.move(61 * SECOND_MS);
    await rooms.watch();
    expect(await rooms.active.all()).toEqual([]);
    await rooms.discovery.start({ mode: "full" }, caller);
  });

  test("times that a scan says are the store's", async () => {
    await storage.move(HOUR_MS);
    await rooms.clockCatchesUp();
    const begun = Date.now();
    const scan = await rooms.scan("full");
    const told = [scan.createdAt, scan.startedAt, scan.finishedAt].map((at) => Date.parse(at!) - begun);
    // The store tells whole seconds.
    for (const ahead of told) expect(ahead).toBeGreaterThan(HOUR_MS - 5 * SECOND_MS);
    expect(Date.parse(scan.deadline!) - Date.parse(scan.startedAt!)).toBe(HOUR_MS);
  });
});
