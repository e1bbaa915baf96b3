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
import { vaultOfFence } from "../../shared/inventory/asset-keys.ts";
import { Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { VaultBusy } from "../../shared/inventory/vault-claim.ts";
import { RowExists, remove, type Tables } from "../../shared/platform/storage/tables.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { endHangingWorkers, startHanging, untilTestEnds } from "./hanging-workers.ts";
import { caller, createScanFixture, HERE, type ScanFixture } from "./scan-fixture.ts";

/** Background writes: a vault with many changes is handed off and written while its worker reads the next vault. */

const ACCOUNTS = Array.from({ length: 20 }, (_, at) => `account${at}`);
const MANY = Array.from({ length: 60 }, (_, at) => ({ name: `secret-${at}` }));
/** Longer than the lease of a crashed worker on a vault. */
const LEASE_OVER_MS = 20 * SECOND_MS;

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

/** Fixture with one worker and vaults of 60 secrets. Writes of asset rows call `beforeWriting`. */
function oneWorker(
  beforeWriting: (vaultName: string) => Promise<void> = async () => {},
  wrap = (tables: Tables) => tables,
) {
  const worker = createScanFixture(connection, (tables) => wrap(through(tables, beforeWriting)));
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
  const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
  fixture.sent.length = 0;
  return scanId;
}

const claimedOf = (scanId: string, place: number) =>
  fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(`00000${place}`));

const handedOnOf = (scanId: string, place: number) =>
  fixture.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(`00000${place}`));

const doneOf = async (scanId: string) => (await fixture.discovery.progress(scanId)).vaultsDone;

describe("while a vault is written in the background", () => {
  test("its worker reads the next vault, and no third one", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(() => released);
    const scanId = await started();
    const scanned = worker.run.scan(scanId, 1);
    await expect.poll(() => worker.cloud.secretListings).toBe(2);
    await delay(200);
    expect(worker.cloud.secretListings).toBe(2);
    expect([await claimedOf(scanId, 0), await handedOnOf(scanId, 1)]).toEqual([undefined, undefined]);
    expect(await handedOnOf(scanId, 0)).toMatchObject({ begun: true, worker: "plan" });
    expect(await claimedOf(scanId, 1)).toMatchObject({ begun: true, worker: "plan" });
    release();
    await scanned;
    expect(worker.cloud.secretListings).toBe(3);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
    expect(await worker.ids()).toHaveLength(3 * MANY.length);
  });

  test("its worker counts once, and a re-scan can use a worker that no vault needs any more", async () => {
    const worker = oneWorker(untilTestEnds);
    worker.settings.discoveryMaxWorkers = 3;
    worker.cloud.vaults.set(HERE, ["kv-one", "kv-two", "kv-three", "kv-four"]);
    worker.cloud.whileListingSecrets = async () => {
      // One of the first three workers hands its vault off and claims the fourth.
      if (worker.cloud.secretListings > 3) await untilTestEnds();
    };
    const scanId = await started();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(() => worker.cloud.secretListings).toBe(4);
    const claimed = await Promise.all([0, 1, 2, 3].map((place) => claimedOf(scanId, place)));
    expect(claimed.filter((one) => one)).toHaveLength(3);
    // Of four claimed vaults one is handed off. The other three occupy all workers.
    expect(await fixture.active.enterRescan({ worker: "look", subscriptionId: HERE }, 3)).toBe(false);
    await fixture.tables.transaction(PlannedVaults.table, scanPartition(scanId), [
      remove(PlannedVaults, claimedKey("000003")),
    ]);
    expect(await fixture.active.enterRescan({ worker: "look", subscriptionId: HERE }, 3)).toBe(true);
  });

  test("the scan is not over, although another worker has the next vault", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(() => released);
    worker.cloud.whileListingSecrets = async () => {
      if (worker.cloud.secretListings === 2) throw new VaultBusy("kv-two", SECOND_MS);
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
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test.each([49, 1_001])("the next vault waits if %d assets are written", async (count) => {
    const worker = oneWorker(untilTestEnds);
    worker.cloud.listed = { secrets: Array.from({ length: count }, (_, at) => ({ name: `secret-${at}` })) };
    const scanId = await started();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(async () => (await fixture.writer.find("kv-one"))?.pending, { timeout: 10_000 }).toBe(true);
    expect(worker.cloud.secretListings).toBe(1);
    expect(await claimedOf(scanId, 0)).toBeDefined();
  });
});

describe("a worker that crashed with two claimed vaults", () => {
  async function died(begin: (worker: ScanFixture) => Promise<void>) {
    const worker = oneWorker(untilTestEnds);
    startHanging(begin(worker));
    await expect.poll(() => worker.cloud.secretListings).toBe(2);
    await storage.move(LEASE_OVER_MS);
    fixture.cloud.listed = { secrets: MANY };
    fixture.sent.length = 0;
  }

  test("leaves both to messages if it planned the scan, and one of them claims the waiting vaults", async () => {
    const scanId = await started();
    await died((worker) => worker.run.scan(scanId, 1));
    await fixture.run.scan(scanId, 2);
    const [next, handedOff, ...others] = fixture.take(QUEUES.vaults);
    expect([next?.message.index, handedOff?.message.index, others]).toEqual(["000001", "000000", []]);
    await fixture.hand(handedOff!);
    // This vault was handed off, so its worker claims no further vault.
    expect([await doneOf(scanId), fixture.sent]).toEqual([1, []]);
    await fixture.hand(next!);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("is followed by the next delivery of its message, which sends a message for the other vault", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    await died((worker) => worker.run.scanVaults(message!.message, 1));
    await fixture.run.scanVaults(message!.message, 2);
    expect(await doneOf(scanId)).toBe(1);
    expect(fixture.sent).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
    expect(fixture.sent[0]!.message.index).not.toBe(message!.message.index);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("leaves no vault with two workers when the message of the handed-off vault fails five times", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    await died((worker) => worker.run.scanVaults(message!.message, 1));
    await fixture.run.vaultFailed(scanId, message!.message.index);
    expect(await doneOf(scanId)).toBe(1);
    expect(fixture.sent).toHaveLength(1);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
  });
});

/** Lets another worker write the vault first, once. */
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

test("a vault that another worker wrote first is requeued, and its worker continues", async () => {
  const worker = oneWorker(undefined, takenOnce("kv-one"));
  const scanId = await started();
  await worker.run.scan(scanId, 1);
  expect(await doneOf(scanId)).toBe(2);
  expect(worker.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 2 }]);
  await worker.hand(worker.sent[0]!);
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

test("a vault that can't be written fails its worker, and the next delivery writes it", async () => {
  let broken = true;
  const worker = oneWorker(async () => {
    if (broken) throw new Error("The store is away.");
  });
  const scanId = await started();
  await expect(worker.run.scan(scanId, 1)).rejects.toThrow("The store is away.");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  broken = false;
  await storage.move(LEASE_OVER_MS);
  await worker.run.scan(scanId, 2);
  await worker.deliver();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("two workers of one vault", () => {
  /** Eight vaults, and the message of the claimed one. */
  async function withEight() {
    fixture.settings.discoveryMaxWorkers = 1;
    const names = Array.from({ length: 8 }, (_, at) => `kv-${at}`);
    fixture.cloud.vaults.set(HERE, names);
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    return { scanId, message: message!.message };
  }

  /** Number of vaults that are read or claimed, which is the number of active workers. */
  async function places(scanId: string): Promise<number> {
    let count = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    for await (const rows of fixture.tables.pages(PlannedVaults, range))
      count += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
    return count;
  }

  /** The worker waits for `first` in its first vault, and forever in the second one. */
  function hangsInSecond(first: Promise<unknown>): ScanFixture {
    const worker = oneWorker();
    worker.cloud.whileListingSecrets = async () => {
      await (worker.cloud.secretListings === 1 ? first : untilTestEnds());
    };
    return worker;
  }

  test("only one hands it off if the other was merely slow", async () => {
    const { scanId, message } = await withEight();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const slow = hangsInSecond(released);
    startHanging(slow.run.scanVaults(message, 1));
    await expect.poll(() => slow.cloud.secretListings).toBe(1);
    // The worker can't renew its lease: its requests to storage fail, those to the cloud do not.
    await storage.move(65 * SECOND_MS);
    await fixture.watch();
    const [again] = fixture.take(QUEUES.vaults);
    const other = hangsInSecond(released);
    startHanging(other.run.scanVaults(again!.message, 1));
    await expect.poll(() => other.cloud.secretListings).toBe(1);
    release();
    await expect.poll(() => slow.cloud.secretListings + other.cloud.secretListings).toBe(3);
    await delay(500);
    expect([slow.cloud.secretListings + other.cloud.secretListings, await places(scanId)]).toEqual([3, 1]);
  });

  test("a late handoff by a worker that counted as crashed starts no second chain", async () => {
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
    next.cloud.whileListingSecrets = async () => {
      if (next.cloud.secretListings > 1) return await untilTestEnds();
      await late();
    };
    await next.run.scanVaults(message, 2);
    expect([next.cloud.secretListings, await places(scanId)]).toEqual([1, 1]);
  });

  test("a worker continues the chain when the busy vault's message failed once", async () => {
    const { scanId, message } = await withEight();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = oneWorker(undefined, takenOnce("kv-0"));
    worker.cloud.whileListingSecrets = async () => {
      if (worker.cloud.secretListings === 2) await released;
      if (worker.cloud.secretListings > 2) await untilTestEnds();
    };
    startHanging(worker.run.scanVaults(message, 1));
    await expect.poll(() => worker.sent.length).toBe(1);
    const [busy] = worker.sent;
    const failing = oneWorker();
    failing.cloud.whileListingSecrets = async () => {
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

test("a scan ends with its background write when the worker continued in a message", async () => {
  fixture.settings.discoveryMaxWorkers = 1;
  fixture.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
  const scanId = await fixture.planned();
  const [message] = fixture.take(QUEUES.vaults);
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const worker = oneWorker(() => released);
  worker.cloud.whileListingSecrets = async () => {
    if (worker.cloud.secretListings === 2) throw new VaultBusy("kv-two", SECOND_MS);
  };
  const scanned = worker.run.scanVaults(message!.message, 1);
  await expect.poll(() => worker.sent.length).toBe(1);
  await fixture.hand(worker.sent[0]!);
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 1 });
  release();
  await scanned;
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 2 });
});

test.each(["read", "written"])(
  "a vault that is busy when it is %s is not renewed once its message is sent",
  async (when) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      fixture.settings.discoveryMaxWorkers = 1;
      const scanId = await fixture.planned();
      const [message] = fixture.take(QUEUES.vaults);
      const worker = oneWorker(undefined, (tables) => ({
        ...(when === "written" ? takenOnce("kv-one")(tables) : tables),
      }));
      if (when === "read")
        worker.cloud.whileListingSecrets = async () => {
          throw new VaultBusy("kv-one", SECOND_MS);
        };
      const { index } = message!.message;
      const row = async () =>
        when === "read"
          ? await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index))
          : await fixture.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index));
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
