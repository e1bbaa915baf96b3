/*
 * The end of a scan: its status is decided once, and written completely and recorded in the audit log once, also if workers
 * crash, compete or fail. The watch is a timer that ends scans whose workers crashed.
 */
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RESCAN_QUEUE } from "../../shared/discovery/rescan-rows.ts";
import { CLAIMED, DONE, QUEUES, scanPartition, WAITING } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  caller,
  createScanFixture,
  event,
  FIRST_SUBSCRIPTION,
  firstThousand,
  type ScanFixture,
} from "./scan-fixture.ts";

/**
 * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
 * Several fixtures on one account act like several processes of the service.
 */
const ACCOUNTS = Array.from({ length: 80 }, (_, index) => `account${index}`);

let storage: MovedStorage;
let usedAccounts = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());
const openUnusedAccount = () => storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);

async function expectEndedOnce(fixture: ScanFixture, scanId: string): Promise<void> {
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  expect((await fixture.discovery.list(firstThousand)).items).toMatchObject([
    { scanId, status: "completed", vaultsDone: 3 },
  ]);
  expect(await fixture.active.all()).toEqual([]);
  expect(await fixture.auditEntriesOf("scan.finished")).toMatchObject([
    { outcome: "success", details: { status: "completed", vaultsDone: 3, vaultsFailed: 0 } },
  ]);
}

describe("the end of a scan is written completely and recorded once", () => {
  test.each(["before", "after"] as const)("if a worker crashes %s any write", async (moment) => {
    let crashes = 0;
    for (let writeNumber = 1; ; writeNumber++) {
      const connection = openUnusedAccount();
      const scanId = await scanWithoutEnd(connection);
      const crash = crashAt(writeNumber, moment);
      await createScanFixture(connection, crash.wrap)
        .run.finish(scanId)
        .catch(() => undefined);
      if (!crash.happened()) break;
      crashes++;
      const other = createScanFixture(connection);
      await other.run.finish(scanId);
      await expectEndedOnce(other, scanId);
      await other.run.finish(scanId);
      expect(await other.auditEntriesOf("scan.finished")).toHaveLength(1);
    }
    // Four writes: the decided status, the copy in the list, the active scans, the scan's own row.
    expect(crashes).toBe(4);
  });

  // `LostAnswer`: storage applies the write, but its response is lost. `ServerBusy`: storage rejects the write. A rejected
  // request is only retried. So outside of a campaign, only every third write is tested with `ServerBusy`.
  test.each([
    ["LostAnswer", 1, 6],
    ["ServerBusy", IS_CAMPAIGN ? 1 : 3, IS_CAMPAIGN ? 6 : 2],
  ] as const)(
    "if any write fails with %s",
    async (fault, stride, minimum) => {
      let faultsMet = 0;
      for (let writeNumber = 1; ; writeNumber += stride) {
        const account = openUnusedAccount();
        const scanId = await scanWithoutEnd(account);
        const proxy = await startTableProxy(account);
        const fixture = createScanFixture(proxy.connectionString);
        let writes = 0;
        proxy.fail([fault], ({ method }) => method !== "GET" && ++writes === writeNumber);
        await fixture.run.finish(scanId);
        await expectEndedOnce(fixture, scanId);
        await proxy.stop();
        if (writes < writeNumber) break;
        faultsMet++;
      }
      // Four writes of the scan, and two of the audit entry with its index.
      expect(faultsMet).toBeGreaterThanOrEqual(minimum);
    },
    300_000,
  );

  test("if ten workers end the scan at the same time", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    await Promise.all(Array.from({ length: 10 }, () => createScanFixture(connection).run.finish(scanId)));
    await expectEndedOnce(createScanFixture(connection), scanId);
  });

  test("if its worker crashed before the audit entry, and the audit log sealed the time in between", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    // The worker crashes after it decided how the scan ends, before the audit entry.
    await expect(createScanFixture(connection, crashAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    // The audit log seals an interval of ten minutes a minute after its end.
    await storage.move(25 * MINUTE_MS);
    const fixture = createScanFixture(connection);
    await fixture.syncClock();
    expect((await fixture.audit.seal()).sealed).toBeGreaterThan(0);
    await fixture.run.finish(scanId);
    await expectEndedOnce(fixture, scanId);
  });

  test("although an error is thrown because the inventory totals can't be recomputed", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    const fixture = createScanFixture(connection);
    fixture.totals.renew = async () => {
      throw new Error("the totals are broken");
    };
    await expect(fixture.run.finish(scanId)).rejects.toThrow("the totals are broken");
    await expectEndedOnce(fixture, scanId);
    await fixture.run.finish(scanId);
  });

  test("by the watch after a crash, without a message", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    const fixture = createScanFixture(connection, crashAt(1, "before").wrap);
    await expect(fixture.run.finish(scanId)).rejects.toThrow("died");
    const other = createScanFixture(connection);
    await storage.move(2 * MINUTE_MS);
    // The first call ends the scan. The further ones must not end it again.
    for (let call = 0; call < 3; call++) await other.watch();
    expect(fixture.sentMessages).toEqual([]);
    expect(other.sentMessages).toEqual([]);
    await expectEndedOnce(other, scanId);
  });
});

describe("the status of an ended scan", () => {
  let fixture: ScanFixture;
  beforeEach(() => {
    fixture = createScanFixture(openUnusedAccount());
  });
  const refusal = new CloudFailure("accessDenied", "Not allowed.", { remedy: "Allow it." });
  const readEndEntries = async () =>
    (await fixture.auditEntriesOf("scan.finished")).map(({ outcome, details }) => [outcome, details]);

  test("is partial if a vault could not be read completely", async () => {
    fixture.cloud.certificate = () => {
      throw refusal;
    };
    expect(await fixture.scan("full")).toMatchObject({ status: "partial", vaultsFailed: 0 });
    expect(await readEndEntries()).toMatchObject([["failure", { status: "partial", vaults: 3, vaultsDone: 3 }]]);
  });

  test("is failed with the reason if no vault could be read", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, []);
    fixture.cloud.unreadable = [{ name: "kv-odd", failure: refusal }];
    expect(await fixture.scan("full")).toMatchObject({
      status: "failed",
      failure: {
        code: "accessDenied",
        message: "No vault could be read. The first, kv-odd: Not allowed.",
        remedy: "Allow it.",
      },
    });
    expect(await readEndEntries()).toMatchObject([["failure", { status: "failed", vaultsFailed: 1 }]]);
  });

  test("is failed if its vaults were in back-off, also if a re-scan reads them meanwhile", async () => {
    const { keyVaults } = fixture.cloud;
    const { open } = keyVaults;
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one"]);
    keyVaults.open = () => {
      throw refusal;
    };
    await fixture.scan("full");
    const scanId = await fixture.startAndPlan("delta");
    keyVaults.open = open;
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await storage.move(MINUTE_MS);
    await fixture.syncClock();
    for (const message of fixture.takeMessages(RESCAN_QUEUE)) await fixture.handleMessage(message);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "failed",
      failure: { code: "skipped", remedy: expect.stringContaining("force") },
    });
  });

  test("is timedOut if the deadline passes before all vaults are started", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    fixture.settings.discoveryScanTimeout = 60;
    const scanId = await fixture.startAndPlan();
    await storage.move(2 * MINUTE_MS);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "timedOut",
      vaultsTotal: 3,
      vaultsDone: 1,
    });
    expect(await readEndEntries()).toMatchObject([["failure", { status: "timedOut" }]]);
  });

  test("is timedOut if the deadline interrupts the reads of its vaults", async () => {
    fixture.settings.discoveryScanTimeout = 60;
    fixture.cloud.certificate = () => {
      throw new CloudFailure("timedOut", "Stopped.", { remedy: "Raise the limit." });
    };
    const scanId = await fixture.startAndPlan();
    await storage.move(2 * MINUTE_MS);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 3 });
  });

  test("is reached in time, because reads of a vault end at the deadline", async () => {
    fixture.settings.discoveryScanTimeout = 60;
    const signals: AbortSignal[] = [];
    const open = fixture.cloud.keyVaults.open;
    fixture.cloud.keyVaults.open = (vault) => ({
      ...open(vault),
      secrets: (signal) => {
        signals.push(signal!);
        return open(vault).secrets(signal);
      },
    });
    await fixture.startAndPlan();
    const [early, late] = fixture.takeMessages(QUEUES.vaults);
    await fixture.handleMessage(early!);
    await storage.move(2 * MINUTE_MS);
    await fixture.syncClock();
    await fixture.handleMessage(late!);
    expect(signals).toHaveLength(2);
    // The deadline has passed, so the second vault gets the minimum of one millisecond.
    await expect.poll(() => signals[1]!.aborted).toBe(true);
    expect(signals[0]!.aborted).toBe(false);
  });

  test("is decided by the watch a minute after the deadline if a vault is still claimed", async () => {
    fixture.settings.discoveryScanTimeout = 60;
    const scanId = await fixture.startAndPlan();
    const [first] = fixture.takeMessages(QUEUES.vaults);
    await fixture.handleMessage(first!);
    await fixture.run.finish(scanId);
    await fixture.watch();
    const status = async () => (await fixture.discovery.progress(scanId)).status;
    expect(await status()).toBe("running");
    // Ten seconds after the deadline. The minute that the watch grants has not passed.
    await storage.move(MINUTE_MS + 10_000);
    await fixture.syncClock();
    await fixture.watch();
    expect(await status()).toBe("running");
    await storage.move(MINUTE_MS);
    await fixture.syncClock();
    await fixture.watch();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 1 });
    expect(await fixture.active.all()).toEqual([]);
  });

  /** Makes the first row of a scan with this prefix unreadable. */
  async function makeUnreadable(connection: string, scanId: string, prefix: string): Promise<void> {
    const rows = TableClient.fromConnectionString(connection, "Scans", { allowInsecureConnection: true });
    const partitionKey = scanPartition(scanId);
    for await (const row of rows.listEntities({ queryOptions: { filter: `PartitionKey eq '${partitionKey}'` } }))
      if (row.rowKey!.startsWith(prefix))
        return void (await rows.updateEntity({ partitionKey, rowKey: row.rowKey!, name: 7, outcome: 7 }, "Merge"));
    throw new Error(`No row starts with ${prefix}`);
  }

  test("is partial if the outcome of a vault can't be read, which counts as failed", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    await makeUnreadable(connection, scanId, DONE);
    const fixture = createScanFixture(connection);
    await fixture.run.finish(scanId);
    expect(await fixture.auditEntriesOf("scan.finished")).toMatchObject([
      { outcome: "failure", details: { status: "partial", vaultsDone: 3, vaultsFailed: 1 } },
    ]);
  });

  test.each([
    ["waiting", WAITING],
    ["claimed", CLAIMED],
  ])("is partial if the row of a %s vault can't be read, which counts as failed", async (_, prefix) => {
    const connection = openUnusedAccount();
    const fixture = createScanFixture(connection);
    fixture.settings.discoveryMaxWorkers = 2;
    const scanId = await fixture.startAndPlan();
    await makeUnreadable(connection, scanId, prefix);
    // The message of the unreadable vault fails.
    for (const message of fixture.takeMessages(QUEUES.vaults)) await fixture.handleMessage(message).catch(() => {});
    await storage.move(2 * MINUTE_MS);
    await fixture.syncClock();
    await fixture.watch();
    expect(await fixture.auditEntriesOf("scan.finished")).toMatchObject([
      { outcome: "failure", details: { status: "partial", vaultsDone: 3, vaultsFailed: 1 } },
    ]);
  });

  test("is cancelled if the scan is canceled before it is planned", async () => {
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    await fixture.run.finish(scanId);
    expect((await fixture.discovery.progress(scanId)).status).toBe("queued");
    await fixture.discovery.cancel(scanId, caller);
    // `last`: the latest message first. So the message that ends the scan arrives before the message that would plan it.
    await fixture.deliverMessages("last");
    expect((await fixture.discovery.progress(scanId)).status).toBe("cancelled");
  });

  test("can't become cancelled after another status was decided", async () => {
    const connection = openUnusedAccount();
    const scanId = await scanWithoutEnd(connection);
    await expect(createScanFixture(connection, crashAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    const other = createScanFixture(connection);
    await expect(other.discovery.cancel(scanId, caller)).rejects.toMatchObject({ code: "conflict" });
    expect(await other.auditEntriesOf("scan.cancelled")).toEqual([]);
  });
});

describe("a message that failed five times", () => {
  let fixture: ScanFixture;
  beforeEach(() => {
    fixture = createScanFixture(openUnusedAccount());
  });

  test("for a vault fails that vault, and the scan continues with the next one", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan();
    const [message] = fixture.takeMessages(QUEUES.vaults);
    await fixture.run.vaultFailed(scanId, message!.message.index);
    // A second delivery finds the vault done. It sends the next message again, because the first delivery may have crashed
    // before.
    await fixture.run.vaultFailed(scanId, message!.message.index);
    const other = { scanId, index: expect.stringMatching(/^00000[12]$/) };
    expect(fixture.sentMessages).toMatchObject([{ queue: QUEUES.vaults, message: other }, fixture.sentMessages[0]]);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "partial",
      vaultsDone: 3,
      vaultsFailed: 1,
    });
    const { page } = await fixture.discovery.results(scanId, firstThousand);
    expect(page.items[0]).toMatchObject({
      outcome: "failed",
      failures: [{ list: "vault", code: "internal", remedy: expect.stringContaining("logs") }],
      tally: { added: 0, updated: 0, removed: 0 },
      added: [],
      updated: [],
      removed: [],
    });
  });

  test("for a plan ends the scan with the reason", async () => {
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    await fixture.run.planFailed(scanId);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "failed",
      failure: { code: "internal", message: "The scan could not be planned in five attempts." },
    });
    expect(await fixture.auditEntriesOf("scan.finished")).toMatchObject([
      { outcome: "failure", details: { status: "failed" } },
    ]);
    expect(await fixture.active.all()).toEqual([]);
  });

  test("for a plan does not fail a scan that is already running", async () => {
    const scanId = await fixture.startAndPlan();
    await fixture.run.planFailed(scanId);
    await fixture.deliverMessages();
    await expectEndedOnce(fixture, scanId);
  });
});

test("scheduled scans that are skipped or fail to start are recorded in the audit log", async () => {
  const fixture = createScanFixture(openUnusedAccount());
  const running = await fixture.startAndPlan("full");
  await fixture.discovery.startScheduled("delta", "request-7");
  await fixture.discovery.scheduledFailed("full", "request-8");
  expect(await fixture.auditEntriesOf("scan.skipped")).toMatchObject([
    {
      actor: "system",
      requestId: "request-7",
      outcome: "failure",
      details: { mode: "delta", runningScan: running },
    },
  ]);
  expect(await fixture.auditEntriesOf("scan.startFailed")).toMatchObject([
    { actor: "system", requestId: "request-8", outcome: "failure", details: { mode: "full" } },
  ]);
});

test("a storage error does not count as a failure of the vault", async () => {
  const connection = openUnusedAccount();
  const fixture = createScanFixture(connection);
  await fixture.scan("full");
  const scanId = await fixture.startAndPlan("delta");
  const changed = { secrets: [{ name: "other" }] };
  // Only reads of the vault's assets fail. All other storage requests succeed.
  const broken = createScanFixture(connection, (tables) => ({
    ...tables,
    pages: ((entity: { table: string }, range: never) => {
      if (entity.table === "Assets") throw new Error("storage fails");
      return tables.pages(entity as never, range);
    }) as Tables["pages"],
  }));
  broken.cloud.listedEntries = changed;
  const message = { scanId, index: "000000" };
  await expect(broken.run.scanVaults(message, 2)).rejects.toThrow("storage fails");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  fixture.cloud.listedEntries = changed;
  await fixture.run.scanVaults(message, 2);
  const { page } = await fixture.discovery.results(scanId, firstThousand);
  expect(page.items).toMatchObject([{ outcome: "succeeded", tally: { added: 1, removed: 2 } }]);
});

/** Runs a scan up to its end: the worker of the last vault crashes before it ends the scan. */
async function scanWithoutEnd(connection: string): Promise<string> {
  const fixture = createScanFixture(connection);
  const scanId = await fixture.startAndPlan();
  const [last, ...others] = fixture.takeMessages(QUEUES.vaults);
  for (const message of others) await fixture.handleMessage(message);
  const crashing = createScanFixture(connection, (tables) =>
    crashingTables(tables, (method, [, range]) => (method === "pages" && isClaimsRange(range) ? "before" : undefined)),
  );
  await expect(crashing.handleMessage(last!)).rejects.toThrow("died");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 3 });
  return scanId;
}

/** Returns whether the range contains the claims of a scan. A worker reads them to find out whether the scan has ended. */
const isClaimsRange = (range: unknown): boolean => (range as { from?: string }).from === "2!";

/** Methods of `Tables` that write. */
const WRITES = new Set<keyof Tables>(["insert", "put", "replace", "remove", "modify", "transaction", "write"]);

/** Returns tables for a worker that crashes before or after its n-th write, counted from 1. */
function crashAt(writeNumber: number, moment: "before" | "after") {
  let writes = 0;
  const crashesAt = (method: keyof Tables) => (WRITES.has(method) && ++writes === writeNumber ? moment : undefined);
  return { wrap: (tables: Tables) => crashingTables(tables, crashesAt), happened: () => writes >= writeNumber };
}

/** Returns tables for a worker that crashes at the call for which `crashesAt` returns a moment. Later calls throw too. */
function crashingTables(
  tables: Tables,
  crashesAt: (method: keyof Tables, args: unknown[]) => "before" | "after" | undefined,
): Tables {
  let isDead = false;
  const crashIf = (crashesNow: boolean) => {
    isDead ||= crashesNow;
    if (isDead) throw new Error("died");
  };
  return new Proxy(tables, {
    get: (target, method: keyof Tables) => {
      const call = target[method] as (...args: unknown[]) => unknown;
      // These two methods are not asynchronous, so they throw at once.
      if (method === "pages" || method === "fence") {
        return (...args: unknown[]) => {
          crashIf(crashesAt(method, args) !== undefined);
          return call(...args);
        };
      }
      return async (...args: unknown[]) => {
        crashIf(false);
        const moment = crashesAt(method, args);
        crashIf(moment === "before");
        const result = await call(...args);
        crashIf(moment === "after");
        return result;
      };
    },
  });
}
