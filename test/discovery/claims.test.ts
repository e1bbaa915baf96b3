/*
 * Recovery of crashed workers and lost messages. A worker claims a vault of a scan with a row, and renews the claim while it
 * works. The watch, a timer, finds crashed workers and lost messages by the age of these rows, measured with the storage clock.
 * `startHanging` starts a worker that hangs in `untilTestEnds`, like a crashed one. Stored members call re-scans `looks`.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { RESCANS, RescanRows } from "../../shared/discovery/rescan-rows.ts";
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
import { caller, createScanFixture, FIRST_SUBSCRIPTION, type ScanFixture } from "./scan-fixture.ts";

/**
 * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
 * Several fixtures on one account act like several processes of the service.
 */
const ACCOUNTS = Array.from({ length: 32 }, (_, index) => `account${index}`);

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

endHangingWorkers();

/** Starts a worker that claims the message's vault and then hangs, like a crashed one. */
async function startHangingIn(message: { scanId: string; index: string }): Promise<void> {
  const worker = createScanFixture(connection);
  const reached = new Promise<void>((resolve) => {
    worker.cloud.keyVaults.open = () => {
      resolve();
      return { secrets: hangUntilTestEnds, keys: hangUntilTestEnds, certificates: hangUntilTestEnds } as never;
    };
  });
  startHanging(worker.run.scanVaults(message, 1));
  await reached;
}
async function* hangUntilTestEnds(): AsyncGenerator<never> {
  yield await untilTestEnds();
}

describe("a crashed worker", () => {
  test("is detected after a minute, and its vault gets a new message", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    await startHangingIn(message!.message);
    await storage.move(40 * SECOND_MS);
    await fixture.watch();
    expect(fixture.sentMessages).toEqual([]);
    await storage.move(25 * SECOND_MS);
    await fixture.watch();
    await fixture.watch();
    expect(fixture.sentMessages).toEqual([
      { queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 0 },
    ]);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("does not delay other workers of the scan", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    const scanId = await fixture.startAndPlan();
    const [ofCrashedWorker, ofOtherWorker] = fixture.takeMessages(QUEUES.vaults);
    await startHangingIn(ofCrashedWorker!.message);
    await fixture.handleMessage(ofOtherWorker!);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
  });

  test("is not detected while the worker renews its lease", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      const scanId = await fixture.startAndPlan();
      const [message] = fixture.takeMessages(QUEUES.vaults);
      await startHangingIn(message!.message);
      const etag = async () =>
        (await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey("000000")))?.etag;
      for (let renewal = 0; renewal < 4; renewal++) {
        await storage.move(30 * SECOND_MS);
        const before = await etag();
        vi.advanceTimersByTime(20 * SECOND_MS);
        await expect.poll(etag).not.toBe(before);
        await fixture.watch();
      }
      expect(fixture.sentMessages).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });
});

test("a handler of a failed message that crashes is recovered like a crashed worker", async () => {
  fixture.settings.discoveryMaxWorkers = 1;
  const scanId = await fixture.startAndPlan();
  const [message] = fixture.takeMessages(QUEUES.vaults);
  // The handler crashes after its first transaction, which ends the vault, and before it claims the next vault.
  let hasEndedVault = false;
  const crashing = createScanFixture(connection, (tables) => ({
    ...tables,
    transaction: async (...args) => {
      if (hasEndedVault) throw new Error("died");
      hasEndedVault = true;
      return await tables.transaction(...args);
    },
  }));
  await expect(crashing.run.vaultFailed(scanId, message!.message.index)).rejects.toThrow("died");
  await storage.move(65 * SECOND_MS);
  await fixture.watch();
  expect(fixture.sentMessages).toMatchObject([{ queue: QUEUES.vaults, message: { scanId } }]);
  await fixture.deliverMessages();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3 });
});

test("the watch fails at a scan with a damaged row, and still checks the other scans", async () => {
  const [broken, other] = [
    await fixture.discovery.start({ mode: "force" }, caller),
    await fixture.discovery.start({ mode: "force" }, caller),
  ];
  fixture.sentMessages.length = 0;
  const DamagedRows = entity(Scans.table, z.object({ status: z.string() }));
  await fixture.tables.put(DamagedRows, scanPartition(broken.scanId), SCAN_ROW, { status: "nonsense" });
  expect((await fixture.active.all()).map(({ scanId }) => scanId)).toEqual([broken.scanId, other.scanId]);
  // The message that plans a scan counts as lost after ten minutes.
  await storage.move(11 * MINUTE_MS);
  await expect(fixture.watch()).rejects.toThrow(StorageCorrupt);
  expect(fixture.sentMessages).toMatchObject([{ queue: QUEUES.plan, message: { scanId: other.scanId } }]);
});

describe("a row of active scans that can't be read", () => {
  /** Replaces the row with one whose scans lack their creation time. */
  const damage = () =>
    fixture.tables.put(
      entity(ActiveScans.table, z.object({ scans: z.array(z.object({ scanId: z.string() })) })),
      ACTIVE,
      ACTIVE,
      { scans: [{ scanId: "nonsense" }] },
    );
  /** Returns the audit entries of repairs, oldest first. */
  const readRepairs = async () =>
    (await fixture.auditEntriesOf("scans.mended"))
      .map(({ outcome, details }) => ({ outcome, ...(details as { row: string; scans: string[] }) }))
      .reverse();

  test("is rebuilt from the scans by the next scan, and the audit log has that once", async () => {
    const scanId = await fixture.startAndPlan();
    const [before] = await fixture.active.all();
    expect(before!.workers).toBeGreaterThan(0);
    await damage();
    await expect(fixture.discovery.start({ mode: "full" }, caller)).rejects.toMatchObject({
      code: "scanRunning",
      members: { scanId },
    });
    expect(await fixture.active.all()).toEqual([before]);
    const details = { row: "unreadable", scans: [scanId] };
    expect(await readRepairs()).toEqual([
      { outcome: "intent", ...details },
      { outcome: "success", ...details },
    ]);
  });

  test("does not stop the watch, and a scan can start after the running one has ended", async () => {
    const scanId = await fixture.startAndPlan();
    await damage();
    await fixture.watch();
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
    await damage();
    expect((await fixture.scan("full")).status).toBe("completed");
    expect(await fixture.active.all()).toEqual([]);
  });

  test("keeps the workers of re-scans, so that their subscriptions stay protected", async () => {
    const row = { vaultName: "kv-one", subscriptionId: FIRST_SUBSCRIPTION, dueAt: "2026-11-27T00:00:00Z", failures: 0 };
    const want = { at: row.dueAt, fromVault: true };
    await fixture.tables.put(RescanRows, RESCANS, "kv-one", { ...row, want, worker: "one", begunAt: row.dueAt });
    await damage();
    await expect(fixture.active.rejectWhileScanned(FIRST_SUBSCRIPTION)).rejects.toMatchObject({ code: "conflict" });
  });

  test("and a scan that the row lacks are found by the verification", async () => {
    const scanId = await fixture.startAndPlan();
    const [before] = await fixture.active.all();
    expect(await fixture.active.verify()).toBeUndefined();
    await damage();
    expect(await fixture.active.verify()).toBe("unreadable");
    await fixture.tables.remove(ActiveScans, ACTIVE, ACTIVE);
    expect(await fixture.active.verify()).toBe("missing");
    expect(await fixture.active.all()).toEqual([before]);
    expect((await readRepairs()).map(({ row }) => row)).toEqual(["unreadable", "unreadable", "missing", "missing"]);
    await fixture.deliverMessages();
    expect((await fixture.discovery.progress(scanId)).status).toBe("completed");
    expect(await fixture.active.verify()).toBeUndefined();
  });
});

describe("a vault's message", () => {
  test("counts as lost only after the platform would have redelivered it", async () => {
    const scanId = await fixture.startAndPlan();
    const [, ...others] = fixture.takeMessages(QUEUES.vaults);
    for (const message of others) await fixture.handleMessage(message);
    await storage.move(10 * MINUTE_MS + 30 * SECOND_MS);
    await fixture.watch();
    expect(fixture.sentMessages).toEqual([]);
    await storage.move(MINUTE_MS);
    await fixture.watch();
    expect(fixture.takeMessages(QUEUES.vaults)).toMatchObject([{ message: { scanId, index: "000000" } }]);
  });

  test("that arrives although it counted as lost is processed once", async () => {
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    await storage.move(12 * MINUTE_MS);
    await fixture.watch();
    // The watch sends lost messages concurrently, so in any order.
    const again = fixture.takeMessages(QUEUES.vaults).find((one) => one.message.index === message!.message.index);
    await startHangingIn(message!.message);
    let opened = 0;
    fixture.cloud.keyVaults.open = () => {
      opened++;
      throw new Error("No other worker may read a vault with an active worker.");
    };
    await fixture.handleMessage(again!);
    expect(opened).toBe(0);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ vaultsDone: 0 });
  });

  test("is delayed by at most 30 seconds while another worker writes the vault", async () => {
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    fixture.writer.readForUpdate = async (name) => {
      throw new VaultBusy(name, 3 * HOUR_MS);
    };
    await fixture.handleMessage(message!);
    expect(fixture.takeMessages(QUEUES.vaults)).toEqual([
      { queue: QUEUES.vaults, message: { scanId, index: "000000" }, delaySeconds: 30 },
    ]);
    await storage.move(2 * MINUTE_MS);
    await fixture.watch();
    expect(fixture.sentMessages).toEqual([]);
  });
});

test("after an outage, redelivered messages send one message for each claimed vault", async () => {
  const names = Array.from({ length: 24 }, (_, index) => `kv-${String(index).padStart(2, "0")}`);
  fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, names);
  fixture.settings.discoveryMaxWorkers = 12;
  const scanId = await fixture.startAndPlan();
  const messages = fixture.takeMessages(QUEUES.vaults);
  expect(messages).toHaveLength(12);
  // Ten workers have finished their first vault and claimed a second one when storage fails.
  const workingMessages = messages.slice(0, 10);
  for (const { message } of workingMessages) {
    const worker = createScanFixture(connection);
    await worker.syncClock();
    const { readForUpdate: readStored } = worker.writer;
    const started = new Set<string>();
    worker.writer.readForUpdate = async (name) => {
      if (started.add(name).size > 1) throw new Error("storage is unavailable");
      return await readStored(name);
    };
    await expect(worker.run.scanVaults(message, 1)).rejects.toThrow("storage is unavailable");
  }
  expect(fixture.sentMessages).toEqual([]);
  for (const { message } of workingMessages) await fixture.run.scanVaults(message, 2);
  expect(new Set(fixture.sentMessages.map(({ message }) => message.index)).size).toBe(10);
  expect(fixture.sentMessages).toHaveLength(10);
  await fixture.deliverMessages();
  for (const one of messages.slice(10)) await fixture.handleMessage(one);
  await fixture.deliverMessages();
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 24 });
});

test("messages and claims that the previous version wrote are processed", async () => {
  const scanId = await fixture.startAndPlan();
  const messages = fixture.takeMessages(QUEUES.vaults).map(({ message }) => message);
  for (const { index } of messages) {
    const {
      worker: _,
      begun: __,
      ...row
    } = (await fixture.tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index)))!;
    await fixture.tables.replace(PlannedVaults, row);
    // One of the messages is redelivered.
    const vault = { name: row.name, subscriptionId: row.subscriptionId, action: row.action, resource: {}, chain: 0 };
    await fixture.run.scanVaults(VaultMessage.parse({ scanId, index, vault }), index === "000001" ? 2 : 1);
  }
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
});

describe("the watch and the storage clock:", () => {
  const hoursAhead = () => new Date(Date.now() + 10 * HOUR_MS).toISOString();

  test("the watch continues if a worker writes a vault at the moment at which the watch does", async () => {
    const scanId = await fixture.startAndPlan();
    await storage.move(12 * MINUTE_MS);
    let writesOfFirstRow = 0;
    const racing = createScanFixture(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        // The worker changes the first row before the watch does.
        if (row.rowKey === claimedKey("000000") && writesOfFirstRow++ === 0) await tables.replace(entity, { ...row });
        return await tables.replace(entity, row);
      },
    }));
    await racing.watch();
    expect(writesOfFirstRow).toBe(1);
    expect(
      racing
        .takeMessages(QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual(["000001", "000002"]);
    expect((await racing.active.all()).map((one) => one.scanId)).toEqual([scanId]);
  });

  test("a scan whose creation crashed blocks the next one for at most a minute, even with a wrong clock", async () => {
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

  test("the times of a scan are those of the storage clock", async () => {
    await storage.move(HOUR_MS);
    await fixture.syncClock();
    const started = Date.now();
    const scan = await fixture.scan("full");
    const reported = [scan.createdAt, scan.startedAt, scan.finishedAt].map((at) => Date.parse(at!) - started);
    // Storage times have whole seconds.
    for (const ahead of reported) expect(ahead).toBeGreaterThan(HOUR_MS - 5 * SECOND_MS);
    // The default time limit of a scan is one hour.
    expect(Date.parse(scan.deadline!) - Date.parse(scan.startedAt!)).toBe(HOUR_MS);
  });
});
