/*
 * Background writes: a worker hands a vault with many changed assets off, writes it in the background, and reads the next vault
 * meanwhile. Workers claim the vaults of a scan. A crashed worker's vault is left to a queue message.
 *
 * Members of a claim: `begun` is true while a worker scans the vault, and false while its message waits. `worker` is `plan` for the
 * process that planned the scan, otherwise the index in the worker's message. `startHanging` starts a worker that may hang in
 * `untilTestEnds`, like a crashed one.
 */
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
import { caller, createScanFixture, FIRST_SUBSCRIPTION, type ScanFixture } from "./scan-fixture.ts";

/**
 * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
 * Several fixtures on one account act like several processes of the service.
 */
const ACCOUNTS = Array.from({ length: 20 }, (_, index) => `account${index}`);
const SIXTY_SECRETS = Array.from({ length: 60 }, (_, index) => ({ name: `secret-${index}` }));
/** After this time, the lease of a crashed worker on the vault that it writes (15 s) has expired. */
const LEASE_EXPIRED_MS = 20 * SECOND_MS;
/** After this time, the timer counts a claim that was not renewed (60 s) as abandoned, and sends the vault's message again. */
const CLAIM_EXPIRED_MS = 65 * SECOND_MS;

let storage: MovedStorage;
let usedAccounts = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let connection: string;
let fixture: ScanFixture;
beforeEach(() => {
  connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
  fixture = createScanFixture(connection);
});

/**
 * Returns a fixture that acts as a further process. Each vault contains 60 secrets. The limit of workers is 1, unless a test
 * raises `discoveryMaxWorkers`. Calls `beforeWriting` before each write of asset rows.
 *
 * `run.scan(scanId, delivery)` and `run.scanVaults(message, delivery)` receive the number of the message's delivery, from 1.
 */
function createWorker(
  beforeWriting: (vaultName: string) => Promise<void> = async () => {},
  wrap = (tables: Tables) => tables,
) {
  const worker = createScanFixture(connection, (tables) => wrap(withHookBeforeWriting(tables, beforeWriting)));
  worker.settings.discoveryMaxWorkers = 1;
  worker.cloud.listedEntries = { secrets: SIXTY_SECRETS };
  return worker;
}

/** Wraps the fences through which asset rows are written: rows whose ETag each write requires. */
const withHookBeforeWriting = (tables: Tables, beforeWriting: (vaultName: string) => Promise<void>): Tables => ({
  ...tables,
  fence(e, partitionKey, rowKey, options) {
    const fence = tables.fence(e, partitionKey, rowKey, options);
    const write: typeof fence.write = async (...args) => {
      await beforeWriting(vaultOfFence(rowKey));
      return await fence.write(...args);
    };
    return Object.create(fence, { write: { value: write } });
  },
});

endHangingWorkers();

async function startScan(): Promise<string> {
  const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
  fixture.sentMessages.length = 0;
  return scanId;
}

/** Returns the row of a claimed vault, by its index in the plan. Undefined if the vault is not claimed, or handed off. */
const readClaim = (scanId: string, vaultIndex: number) =>
  fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(`00000${vaultIndex}`));

const readHandedOff = (scanId: string, vaultIndex: number) =>
  fixture.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(`00000${vaultIndex}`));

const countDoneVaults = async (scanId: string) => (await fixture.discovery.progress(scanId)).vaultsDone;

describe("while a vault is written in the background", () => {
  test("its worker reads the next vault, and no third one", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = createWorker(() => released);
    const scanId = await startScan();
    const scanRun = worker.run.scan(scanId, 1);
    await expect.poll(() => worker.cloud.secretListings).toBe(2);
    // Time in which the worker would start to read a third vault.
    await delay(200);
    expect(worker.cloud.secretListings).toBe(2);
    expect([await readClaim(scanId, 0), await readHandedOff(scanId, 1)]).toEqual([undefined, undefined]);
    expect(await readHandedOff(scanId, 0)).toMatchObject({ begun: true, worker: "plan" });
    expect(await readClaim(scanId, 1)).toMatchObject({ begun: true, worker: "plan" });
    release();
    await scanRun;
    expect(worker.cloud.secretListings).toBe(3);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
    expect(await worker.assetLines()).toHaveLength(3 * SIXTY_SECRETS.length);
  });

  test("its worker counts once for the limit of workers", async () => {
    const worker = createWorker(untilTestEnds);
    worker.settings.discoveryMaxWorkers = 3;
    worker.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one", "kv-two", "kv-three", "kv-four"]);
    worker.cloud.whileListingSecrets = async () => {
      // One of the first three workers hands its vault off and claims the fourth.
      if (worker.cloud.secretListings > 3) await untilTestEnds();
    };
    const scanId = await startScan();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(() => worker.cloud.secretListings).toBe(4);
    const claimed = await Promise.all([0, 1, 2, 3].map((vaultIndex) => readClaim(scanId, vaultIndex)));
    expect(claimed.filter((one) => one)).toHaveLength(3);
    // One of the four claimed vaults is handed off. The other three occupy all workers.
    expect(await fixture.active.enterRescan({ worker: "rescan", subscriptionId: FIRST_SUBSCRIPTION }, 3)).toBe(false);
    await fixture.tables.transaction(PlannedVaults.table, scanPartition(scanId), [
      remove(PlannedVaults, claimedKey("000003")),
    ]);
    expect(await fixture.active.enterRescan({ worker: "rescan", subscriptionId: FIRST_SUBSCRIPTION }, 3)).toBe(true);
  });

  test("the scan does not end although its other vaults are left to messages", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const worker = createWorker(() => released);
    worker.cloud.whileListingSecrets = async () => {
      if (worker.cloud.secretListings === 2) throw new VaultBusy("kv-two", SECOND_MS);
    };
    const scanId = await startScan();
    let hasEnded = false;
    const scanRun = worker.run.scan(scanId, 1).then(() => {
      hasEnded = true;
    });
    await expect.poll(() => worker.sentMessages).toMatchObject([{ message: { index: "000001" }, delaySeconds: 1 }]);
    // Time in which the scan would end.
    await delay(200);
    expect(hasEnded).toBe(false);
    release();
    await scanRun;
    expect(await countDoneVaults(scanId)).toBe(1);
    await worker.handleMessage(worker.sentMessages[0]!);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });
});

// Only vaults with 50 to 1,000 changed assets are written in the background.
test.each([49, 1_001])(
  "a vault with %d changed assets is not written in the background: its worker does not read the next vault meanwhile",
  async (count) => {
    const worker = createWorker(untilTestEnds);
    worker.cloud.listedEntries = {
      secrets: Array.from({ length: count }, (_, index) => ({ name: `secret-${index}` })),
    };
    const scanId = await startScan();
    startHanging(worker.run.scan(scanId, 1));
    await expect.poll(async () => (await fixture.writer.find("kv-one"))?.pending, { timeout: 10_000 }).toBe(true);
    expect(worker.cloud.secretListings).toBe(1);
    expect(await readClaim(scanId, 0)).toBeDefined();
  },
);

describe("a worker that crashed with two claimed vaults", () => {
  /** Runs a worker that hangs while it writes one vault and reads the next, until its leases have expired. */
  async function crashWithTwoVaults(run: (worker: ScanFixture) => Promise<void>) {
    const worker = createWorker(untilTestEnds);
    startHanging(run(worker));
    await expect.poll(() => worker.cloud.secretListings).toBe(2);
    await storage.move(LEASE_EXPIRED_MS);
    fixture.cloud.listedEntries = { secrets: SIXTY_SECRETS };
    fixture.sentMessages.length = 0;
  }

  test("leaves both to messages if it planned the scan", async () => {
    const scanId = await startScan();
    await crashWithTwoVaults((worker) => worker.run.scan(scanId, 1));
    await fixture.run.scan(scanId, 2);
    const [next, handedOff, ...others] = fixture.takeMessages(QUEUES.vaults);
    expect([next?.message.index, handedOff?.message.index, others]).toEqual(["000001", "000000", []]);
    await fixture.handleMessage(handedOff!);
    // This vault was handed off, so its worker claims no further vault.
    expect([await countDoneVaults(scanId), fixture.sentMessages]).toEqual([1, []]);
    await fixture.handleMessage(next!);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("leaves the second vault to a message that the redelivery of the first one's message sends", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    await crashWithTwoVaults((worker) => worker.run.scanVaults(message!.message, 1));
    await fixture.run.scanVaults(message!.message, 2);
    expect(await countDoneVaults(scanId)).toBe(1);
    expect(fixture.sentMessages).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
    expect(fixture.sentMessages[0]!.message.index).not.toBe(message!.message.index);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("leaves one message for the second vault if the message of the first one fails five times", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    await crashWithTwoVaults((worker) => worker.run.scanVaults(message!.message, 1));
    await fixture.run.vaultFailed(scanId, message!.message.index);
    expect(await countDoneVaults(scanId)).toBe(1);
    expect(fixture.sentMessages).toHaveLength(1);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
  });
});

/** Returns tables that reject the first write of the vault's row, as if another worker had written it. */
const rejectFirstWrite = (vaultName: string) => {
  let isTaken = false;
  return (tables: Tables): Tables => ({
    ...tables,
    async transaction(table, partitionKey, operations) {
      const key = vaultKey(vaultName);
      if (!isTaken && table === Vaults.table && operations.some(({ rowKey }) => rowKey === key)) {
        isTaken = true;
        throw new RowExists(table, partitionKey, key, 0);
      }
      return await tables.transaction(table, partitionKey, operations);
    },
  });
};

test("a vault that another worker writes meanwhile is requeued, and its worker continues with the next one", async () => {
  const worker = createWorker(undefined, rejectFirstWrite("kv-one"));
  const scanId = await startScan();
  await worker.run.scan(scanId, 1);
  expect(await countDoneVaults(scanId)).toBe(2);
  expect(worker.sentMessages).toEqual([
    { queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 2 },
  ]);
  await worker.handleMessage(worker.sentMessages[0]!);
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

test("a failed background write fails the worker, and the next delivery writes the vault", async () => {
  let isBroken = true;
  const worker = createWorker(async () => {
    if (isBroken) throw new Error("Storage is unavailable.");
  });
  const scanId = await startScan();
  await expect(worker.run.scan(scanId, 1)).rejects.toThrow("Storage is unavailable.");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  isBroken = false;
  await storage.move(LEASE_EXPIRED_MS);
  await worker.run.scan(scanId, 2);
  await worker.deliverMessages();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("if two workers scan the same vault,", () => {
  /** Plans a scan of eight vaults for one worker. Returns the message of the claimed vault. */
  async function planEightVaults() {
    fixture.settings.discoveryMaxWorkers = 1;
    const names = Array.from({ length: 8 }, (_, index) => `kv-${index}`);
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, names);
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    return { scanId, message: message!.message };
  }

  /** Returns the number of claimed vaults without handed-off ones, which is the number of active workers. */
  async function countActiveWorkers(scanId: string): Promise<number> {
    let count = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    for await (const rows of fixture.tables.pages(PlannedVaults, range))
      count += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
    return count;
  }

  /** Returns a worker that waits for the promise in its first vault, and until the test ends in its second one. */
  function createWorkerHangingInSecondVault(untilFirstIsRead: Promise<unknown>): ScanFixture {
    const worker = createWorker();
    worker.cloud.whileListingSecrets = async () => {
      await (worker.cloud.secretListings === 1 ? untilFirstIsRead : untilTestEnds());
    };
    return worker;
  }

  test("only one of them hands the vault off if the other one was slow, not crashed", async () => {
    const { scanId, message } = await planEightVaults();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const slow = createWorkerHangingInSecondVault(released);
    startHanging(slow.run.scanVaults(message, 1));
    await expect.poll(() => slow.cloud.secretListings).toBe(1);
    await storage.move(CLAIM_EXPIRED_MS);
    await fixture.watch();
    const [redelivered] = fixture.takeMessages(QUEUES.vaults);
    const other = createWorkerHangingInSecondVault(released);
    startHanging(other.run.scanVaults(redelivered!.message, 1));
    await expect.poll(() => other.cloud.secretListings).toBe(1);
    release();
    // Both have read the first vault, and one of them reads the next.
    await expect.poll(() => slow.cloud.secretListings + other.cloud.secretListings).toBe(3);
    // Time in which the other one would read a vault too.
    await delay(500);
    expect([slow.cloud.secretListings + other.cloud.secretListings, await countActiveWorkers(scanId)]).toEqual([3, 1]);
  });

  test("a late handoff of a worker that counts as crashed leaves no second active worker", async () => {
    const { scanId, message } = await planEightVaults();
    let lateHandoff: () => Promise<unknown> = async () => {};
    const crashed = createWorker(undefined, (tables) => ({
      ...tables,
      async transaction(table, partitionKey, operations) {
        if (operations.some(({ rowKey }) => isHandedOff(rowKey))) {
          lateHandoff = () => tables.transaction(table, partitionKey, operations);
          throw new Error("The response was lost.");
        }
        return await tables.transaction(table, partitionKey, operations);
      },
    }));
    await expect(crashed.run.scanVaults(message, 1)).rejects.toThrow("The response was lost.");
    // The next delivery's worker reads the vault. Meanwhile the crashed worker's handoff arrives at storage.
    const next = createWorker();
    next.cloud.whileListingSecrets = async () => {
      if (next.cloud.secretListings > 1) return await untilTestEnds();
      await lateHandoff();
    };
    await next.run.scanVaults(message, 2);
    expect([next.cloud.secretListings, await countActiveWorkers(scanId)]).toEqual([1, 1]);
  });

  test("the number of active workers stays one after the message of a busy vault failed once", async () => {
    const { scanId, message } = await planEightVaults();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const busyWorker = createWorker(undefined, rejectFirstWrite("kv-0"));
    busyWorker.cloud.whileListingSecrets = async () => {
      if (busyWorker.cloud.secretListings === 2) await released;
      if (busyWorker.cloud.secretListings > 2) await untilTestEnds();
    };
    startHanging(busyWorker.run.scanVaults(message, 1));
    await expect.poll(() => busyWorker.sentMessages.length).toBe(1);
    const [retryMessage] = busyWorker.sentMessages;
    const failedDelivery = createWorker();
    failedDelivery.cloud.whileListingSecrets = async () => {
      throw new Error("once");
    };
    await expect(failedDelivery.run.scanVaults(retryMessage!.message, 1)).rejects.toThrow("once");
    const redelivery = createWorker();
    await redelivery.run.scanVaults(retryMessage!.message, 2);
    const nextWorker = createWorkerHangingInSecondVault(released);
    for (const { message: next } of redelivery.sentMessages) startHanging(nextWorker.run.scanVaults(next, 1));
    release();
    // Time in which both workers would be active.
    await delay(1_500);
    expect(await countActiveWorkers(scanId)).toBe(1);
  });
});

test("a scan ends only after its background write, also if its last vault was read through a message", async () => {
  fixture.settings.discoveryMaxWorkers = 1;
  fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one", "kv-two"]);
  const scanId = await fixture.startAndPlan();
  const [message] = fixture.takeMessages(QUEUES.vaults);
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const worker = createWorker(() => released);
  worker.cloud.whileListingSecrets = async () => {
    if (worker.cloud.secretListings === 2) throw new VaultBusy("kv-two", SECOND_MS);
  };
  const scanRun = worker.run.scanVaults(message!.message, 1);
  await expect.poll(() => worker.sentMessages.length).toBe(1);
  await fixture.handleMessage(worker.sentMessages[0]!);
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 1 });
  release();
  await scanRun;
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 2 });
});

test.each(["read", "written"])(
  "the claim of a vault that is busy when it is %s is not renewed after its message is sent",
  async (when) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      fixture.settings.discoveryMaxWorkers = 1;
      const scanId = await fixture.startAndPlan();
      const [message] = fixture.takeMessages(QUEUES.vaults);
      const worker = createWorker(undefined, (tables) => ({
        ...(when === "written" ? rejectFirstWrite("kv-one")(tables) : tables),
      }));
      if (when === "read")
        worker.cloud.whileListingSecrets = async () => {
          throw new VaultBusy("kv-one", SECOND_MS);
        };
      const { index } = message!.message;
      const readClaimRow = async () =>
        when === "read"
          ? await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index))
          : await fixture.tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index));
      // While the message is being sent, the time of a renewal passes.
      const push = worker.sentMessages.push.bind(worker.sentMessages);
      worker.sentMessages.push = (one) => {
        vi.advanceTimersByTime(20 * SECOND_MS);
        return push(one);
      };
      await worker.run.scanVaults(message!.message, 1);
      // Time in which a renewal would be written.
      await delay(200);
      expect(worker.sentMessages).toHaveLength(1);
      // `begun: false`: the claim waits for the message. A renewal would set `begun` again.
      expect(await readClaimRow()).toMatchObject({ begun: false });
    } finally {
      vi.useRealTimers();
    }
  },
);
