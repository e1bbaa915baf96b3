import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import {
  CLAIMED,
  claimedKey,
  DONE,
  handedOffKey,
  isHandedOff,
  PlannedVaults,
  QUEUES,
  scanPartition,
} from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/claim.ts";
import { vaultOfFence } from "../../shared/inventory/layout.ts";
import { Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { RowExists, remove, type Tables } from "../../shared/platform/storage/tables.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { endHangingWorkers, startHanging, untilTestEnds } from "./hanging-workers.ts";
import { caller, HERE, type Rooms, scanRooms } from "./scan-fixture.ts";

/** A vault with much to write is handed on: it is written while its worker reads the next one. */

const ACCOUNTS = Array.from({ length: 20 }, (_, at) => `account${at}`);
const MANY = Array.from({ length: 60 }, (_, at) => ({ name: `secret-${at}` }));
/** Longer than a worker that died holds a vault. */
const LEASE_OVER_MS = 20 * SECOND_MS;

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

/** One worker, and vaults of 60 secrets; what it writes of assets goes through `beforeWriting`. */
function oneWorker(
  beforeWriting: (vaultName: string) => Promise<void> = async () => {},
  wrap = (tables: Tables) => tables,
) {
  const worker = scanRooms(connection, (tables) => wrap(through(tables, beforeWriting)));
  worker.settings.discoveryMaxWorkers = 1;
  worker.cloud.listed = { secrets: MANY };
  return worker;
}

const through = (tables: Tables, beforeWriting: (vaultName: string) => Promise<void>): Tables => ({
  ...tables,
  fence(e, partitionKey, rowKey, hold) {
    const fence = tables.fence(e, partitionKey, rowKey, hold);
    const write: typeof fence.write = async (...of) => {
      await beforeWriting(vaultOfFence(rowKey));
      return await fence.write(...of);
    };
    return Object.create(fence, { write: { value: write } });
  },
});

endHangingWorkers();

async function started(): Promise<string> {
  const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
  rooms.sent.length = 0;
  return scanId;
}

const claimedOf = (scanId: string, place: number) =>
  rooms.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(`00000${place}`));

const handedOnOf = (scanId: string, place: number) =>
  rooms.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(`00000${place}`));

const doneOf = async (scanId: string) => (await rooms.discovery.progress(scanId)).vaultsDone;

describe("while a vault is written", () => {
  test("the next one is read, and no third", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(() => released);
    const scanId = await started();
    const scanned = worker.run.scan(scanId, 1);
    await expect.poll(() => worker.cloud.looked).toBe(2);
    await delay(200);
    expect(worker.cloud.looked).toBe(2);
    expect([await claimedOf(scanId, 0), await handedOnOf(scanId, 1)]).toEqual([undefined, undefined]);
    expect(await handedOnOf(scanId, 0)).toMatchObject({ begun: true, worker: "plan" });
    expect(await claimedOf(scanId, 1)).toMatchObject({ begun: true, worker: "plan" });
    release();
    await scanned;
    expect(worker.cloud.looked).toBe(3);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
    expect(await worker.ids()).toHaveLength(3 * MANY.length);
  });

  test("its worker's place counts once: one that no vault needs any more is free for a look", async () => {
    const worker = oneWorker(untilTestEnds);
    worker.settings.discoveryMaxWorkers = 3;
    worker.cloud.vaults.set(HERE, ["kv-one", "kv-two", "kv-three", "kv-four"]);
    worker.cloud.whileLooking = async () => {
      // Of the first three one hands its vault on and claims the fourth.
      if (worker.cloud.looked > 3) await untilTestEnds();
    };
    const scanId = await started();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(() => worker.cloud.looked).toBe(4);
    const claimed = await Promise.all([0, 1, 2, 3].map((place) => claimedOf(scanId, place)));
    expect(claimed.filter((one) => one)).toHaveLength(3);
    // Of four claimed one is handed on: three places, all of them taken.
    expect(await rooms.active.enterRescan({ worker: "look", subscriptionId: HERE }, 3)).toBe(false);
    await rooms.tables.transaction(PlannedVaults.table, scanPartition(scanId), [
      remove(PlannedVaults, claimedKey("000003")),
    ]);
    expect(await rooms.active.enterRescan({ worker: "look", subscriptionId: HERE }, 3)).toBe(true);
  });

  test("the work is not over, though the next one is another worker's", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(() => released);
    worker.cloud.whileLooking = async () => {
      if (worker.cloud.looked === 2) throw new VaultBusy("kv-two", SECOND_MS);
    };
    const scanId = await started();
    let over = false;
    const scanned = worker.run.scan(scanId, 1).then(() => {
      over = true;
    });
    await expect.poll(() => worker.sent).toMatchObject([{ message: { index: "000001" }, delaySeconds: 1 }]);
    await delay(200);
    expect(over).toBe(false);
    release();
    await scanned;
    expect(await doneOf(scanId)).toBe(1);
    await worker.hand(worker.sent[0]!);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test.each([49, 1_001])("the next one waits where %d assets are written", async (count) => {
    const worker = oneWorker(untilTestEnds);
    worker.cloud.listed = { secrets: Array.from({ length: count }, (_, at) => ({ name: `secret-${at}` })) };
    const scanId = await started();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(async () => (await rooms.writer.find("kv-one"))?.pending, { timeout: 10_000 }).toBe(true);
    expect(worker.cloud.looked).toBe(1);
    expect(await claimedOf(scanId, 0)).toBeDefined();
  });
});

describe("a worker that died with two vaults in hand", () => {
  async function died(begin: (worker: Rooms) => Promise<void>) {
    const worker = oneWorker(untilTestEnds);
    startHanging(begin(worker));
    await expect.poll(() => worker.cloud.looked).toBe(2);
    await storage.move(LEASE_OVER_MS);
    rooms.cloud.listed = { secrets: MANY };
    rooms.sent.length = 0;
  }

  test("leaves both to messages when it planned the scan, and one of them claims what waits", async () => {
    const scanId = await started();
    await died((worker) => worker.run.scan(scanId, 1));
    await rooms.run.scan(scanId, 2);
    const [next, handedOff, ...others] = rooms.take(QUEUES.vaults);
    expect([next?.message.index, handedOff?.message.index, others]).toEqual(["000001", "000000", []]);
    await rooms.hand(handedOff!);
    // Its place was handed on.
    expect([await doneOf(scanId), rooms.sent]).toEqual([1, []]);
    await rooms.hand(next!);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("is followed by its message's next delivery, which sends the other one on", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    await died((worker) => worker.run.scanVaults(message!.message, 1));
    await rooms.run.scanVaults(message!.message, 2);
    expect(await doneOf(scanId)).toBe(1);
    expect(rooms.sent).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
    expect(rooms.sent[0]!.message.index).not.toBe(message!.message.index);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("leaves no vault claimed by two when the one that was handed on fails for good", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    await died((worker) => worker.run.scanVaults(message!.message, 1));
    await rooms.run.vaultFailed(scanId, message!.message.index);
    expect(await doneOf(scanId)).toBe(1);
    expect(rooms.sent).toHaveLength(1);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
  });
});

/** Another worker is the first to write that vault, once. */
const takenOnce = (vaultName: string) => {
  let taken = false;
  return (tables: Tables): Tables => ({
    ...tables,
    async transaction(table, partitionKey, operations) {
      const key = vaultKey(vaultName);
      if (!taken && table === Vaults.table && operations.some(({ rowKey }) => rowKey === key)) {
        taken = true;
        throw new RowExists(table, partitionKey, key, 0);
      }
      return await tables.transaction(table, partitionKey, operations);
    },
  });
};

test("a vault that another worker wrote first comes again by a message, and its worker goes on", async () => {
  const worker = oneWorker(undefined, takenOnce("kv-one"));
  const scanId = await started();
  await worker.run.scan(scanId, 1);
  expect(await doneOf(scanId)).toBe(2);
  expect(worker.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 2 }]);
  await worker.hand(worker.sent[0]!);
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

test("a vault that can't be written fails its worker, and is done by the next delivery", async () => {
  let broken = true;
  const worker = oneWorker(async () => {
    if (broken) throw new Error("The store is away.");
  });
  const scanId = await started();
  await expect(worker.run.scan(scanId, 1)).rejects.toThrow("The store is away.");
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  broken = false;
  await storage.move(LEASE_OVER_MS);
  await worker.run.scan(scanId, 2);
  await worker.deliver();
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("of two workers of one vault", () => {
  /** Eight vaults, and the message of the one that is claimed. */
  async function withEight() {
    rooms.settings.discoveryMaxWorkers = 1;
    const names = Array.from({ length: 8 }, (_, at) => `kv-${at}`);
    rooms.cloud.vaults.set(HERE, names);
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    return { scanId, message: message!.message };
  }

  /** How many vaults are read, or are to be: as many as there are workers. */
  async function places(scanId: string): Promise<number> {
    let count = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    for await (const rows of rooms.tables.pages(PlannedVaults, range))
      count += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
    return count;
  }

  /** It waits for `first` in its first vault, and in the next one for ever. */
  function hangsInSecond(first: Promise<unknown>): Rooms {
    const worker = oneWorker();
    worker.cloud.whileLooking = async () => {
      await (worker.cloud.looked === 1 ? first : untilTestEnds());
    };
    return worker;
  }

  test("one hands it on, when the other was only slow", async () => {
    const { scanId, message } = await withEight();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const slow = hangsInSecond(released);
    startHanging(slow.run.scanVaults(message, 1));
    await expect.poll(() => slow.cloud.looked).toBe(1);
    // It can't renew: the store is away for it, but the cloud is not.
    await storage.move(65 * SECOND_MS);
    await rooms.watch();
    const [again] = rooms.take(QUEUES.vaults);
    const other = hangsInSecond(released);
    startHanging(other.run.scanVaults(again!.message, 1));
    await expect.poll(() => other.cloud.looked).toBe(1);
    release();
    await expect.poll(() => slow.cloud.looked + other.cloud.looked).toBe(3);
    await delay(500);
    expect([slow.cloud.looked + other.cloud.looked, await places(scanId)]).toEqual([3, 1]);
  });

  test("a dead one's handing on, written late, makes no second chain", async () => {
    const { scanId, message } = await withEight();
    let late: () => Promise<unknown> = async () => {};
    const dead = oneWorker(undefined, (tables) => ({
      ...tables,
      async transaction(table, partitionKey, operations) {
        if (operations.some(({ rowKey }) => isHandedOff(rowKey))) {
          late = () => tables.transaction(table, partitionKey, operations);
          throw new Error("No answer came.");
        }
        return await tables.transaction(table, partitionKey, operations);
      },
    }));
    await expect(dead.run.scanVaults(message, 1)).rejects.toThrow("No answer came.");
    const next = oneWorker();
    next.cloud.whileLooking = async () => {
      if (next.cloud.looked > 1) return await untilTestEnds();
      await late();
    };
    await next.run.scanVaults(message, 2);
    expect([next.cloud.looked, await places(scanId)]).toEqual([1, 1]);
  });

  test("one goes on, though the busy vault's own message failed once", async () => {
    const { scanId, message } = await withEight();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(undefined, takenOnce("kv-0"));
    worker.cloud.whileLooking = async () => {
      if (worker.cloud.looked === 2) await released;
      if (worker.cloud.looked > 2) await untilTestEnds();
    };
    startHanging(worker.run.scanVaults(message, 1));
    await expect.poll(() => worker.sent.length).toBe(1);
    const [busy] = worker.sent;
    const failing = oneWorker();
    failing.cloud.whileLooking = async () => {
      throw new Error("once");
    };
    await expect(failing.run.scanVaults(busy!.message, 1)).rejects.toThrow("once");
    const second = oneWorker();
    await second.run.scanVaults(busy!.message, 2);
    const third = hangsInSecond(released);
    for (const { message: again } of second.sent) startHanging(third.run.scanVaults(again, 1));
    release();
    await delay(1_500);
    expect(await places(scanId)).toBe(1);
  });
});

test("a scan ends with the vault that is written behind, when the next one went on in a message", async () => {
  rooms.settings.discoveryMaxWorkers = 1;
  rooms.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
  const scanId = await rooms.planned();
  const [message] = rooms.take(QUEUES.vaults);
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const worker = oneWorker(() => released);
  worker.cloud.whileLooking = async () => {
    if (worker.cloud.looked === 2) throw new VaultBusy("kv-two", SECOND_MS);
  };
  const scanned = worker.run.scanVaults(message!.message, 1);
  await expect.poll(() => worker.sent.length).toBe(1);
  await rooms.hand(worker.sent[0]!);
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 1 });
  release();
  await scanned;
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 2 });
});

test.each(["read", "written"])(
  "a vault that is busy when it is %s is not renewed once its message is sent",
  async (when) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      rooms.settings.discoveryMaxWorkers = 1;
      const scanId = await rooms.planned();
      const [message] = rooms.take(QUEUES.vaults);
      const worker = oneWorker(undefined, (tables) => ({
        ...(when === "written" ? takenOnce("kv-one")(tables) : tables),
      }));
      if (when === "read")
        worker.cloud.whileLooking = async () => {
          throw new VaultBusy("kv-one", SECOND_MS);
        };
      const { index } = message!.message;
      const row = async () =>
        when === "read"
          ? await rooms.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index))
          : await rooms.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index));
      const push = worker.sent.push.bind(worker.sent);
      worker.sent.push = (one) => {
        vi.advanceTimersByTime(20 * SECOND_MS);
        return push(one);
      };
      await worker.run.scanVaults(message!.message, 1);
      await delay(200);
      expect(worker.sent).toHaveLength(1);
      expect(await row()).toMatchObject({ begun: false });
    } finally {
      vi.useRealTimers();
    }
  },
);
