import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RESCAN_QUEUE } from "../../shared/discovery/rescan-rows.ts";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { caller, createScanFixture, event, everything, HERE, type ScanFixture } from "./scan-fixture.ts";

const ACCOUNTS = Array.from({ length: 80 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());
const freshStorage = () => storage.azurite.connectionString(ACCOUNTS[used++]!);

async function expectEndedOnce(fixture: ScanFixture, scanId: string): Promise<void> {
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  expect((await fixture.discovery.list(everything)).items).toMatchObject([
    { scanId, status: "completed", vaultsDone: 3 },
  ]);
  expect(await fixture.active.all()).toEqual([]);
  expect(await fixture.entries("scan.finished")).toMatchObject([
    { outcome: "success", details: { status: "completed", vaultsDone: 3, vaultsFailed: 0 } },
  ]);
}

describe("the end of a scan is recorded once and written completely", () => {
  test.each(["before", "after"] as const)("if a worker crashes %s any write", async (moment) => {
    let crashes = 0;
    for (let at = 1; ; at++) {
      const connection = freshStorage();
      const scanId = await scanWithoutEnd(connection);
      const crash = crashAt(at, moment);
      await createScanFixture(connection, crash.wrap)
        .run.finish(scanId)
        .catch(() => undefined);
      if (!crash.happened()) break;
      crashes++;
      const other = createScanFixture(connection);
      await other.run.finish(scanId);
      await expectEndedOnce(other, scanId);
      await other.run.finish(scanId);
      expect(await other.entries("scan.finished")).toHaveLength(1);
    }
    // The decided end, the list's copy, the active scans, the scan's own row.
    expect(crashes).toBe(4);
  });

  // A rejected request is only retried: every third write in the suite.
  test.each([
    ["LostAnswer", 1, 6],
    ["ServerBusy", IS_CAMPAIGN ? 1 : 3, IS_CAMPAIGN ? 6 : 2],
  ] as const)(
    "if any write meets %s",
    async (fault, stride, least) => {
      let met = 0;
      for (let at = 1; ; at += stride) {
        const account = freshStorage();
        const scanId = await scanWithoutEnd(account);
        const proxy = await startTableProxy(account);
        const fixture = createScanFixture(proxy.connectionString);
        let writes = 0;
        proxy.fail([fault], ({ method }) => method !== "GET" && ++writes === at);
        await fixture.run.finish(scanId);
        await expectEndedOnce(fixture, scanId);
        await proxy.stop();
        if (writes < at) break;
        met++;
      }
      // The four rows of the scan, and the audit entry with its index.
      expect(met).toBeGreaterThanOrEqual(least);
    },
    300_000,
  );

  test("if ten workers end it at the same time", async () => {
    const connection = freshStorage();
    const scanId = await scanWithoutEnd(connection);
    await Promise.all(Array.from({ length: 10 }, () => createScanFixture(connection).run.finish(scanId)));
    await expectEndedOnce(createScanFixture(connection), scanId);
  });

  test("if its worker crashed before the audit entry, and that interval of the audit log is sealed", async () => {
    const connection = freshStorage();
    const scanId = await scanWithoutEnd(connection);
    // The worker crashes after it decided how the scan ends, before the audit entry.
    await expect(createScanFixture(connection, crashAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    await storage.move(25 * MINUTE_MS);
    const fixture = createScanFixture(connection);
    await fixture.clockCatchesUp();
    expect((await fixture.audit.seal()).sealed).toBeGreaterThan(0);
    await fixture.run.finish(scanId);
    await expectEndedOnce(fixture, scanId);
  });

  test("and an error is thrown if the inventory totals can't be recomputed", async () => {
    const connection = freshStorage();
    const scanId = await scanWithoutEnd(connection);
    const fixture = createScanFixture(connection);
    fixture.totals.renew = async () => {
      throw new Error("the totals are broken");
    };
    await expect(fixture.run.finish(scanId)).rejects.toThrow("the totals are broken");
    await expectEndedOnce(fixture, scanId);
    await fixture.run.finish(scanId);
  });

  test("and sends no message to itself, however often it is requested", async () => {
    const connection = freshStorage();
    const scanId = await scanWithoutEnd(connection);
    const fixture = createScanFixture(connection, crashAt(1, "before").wrap);
    await expect(fixture.run.finish(scanId)).rejects.toThrow("died");
    const other = createScanFixture(connection);
    await storage.move(2 * MINUTE_MS);
    for (let minute = 0; minute < 3; minute++) await other.watch();
    expect(fixture.sent).toEqual([]);
    expect(other.sent).toEqual([]);
    await expectEndedOnce(other, scanId);
  });
});

describe("the status of an ended scan", () => {
  let fixture: ScanFixture;
  beforeEach(() => {
    fixture = createScanFixture(freshStorage());
  });
  const refusal = new CloudFailure("accessDenied", "Not allowed.", { remedy: "Allow it." });
  const entered = async () =>
    (await fixture.entries("scan.finished")).map(({ outcome, details }) => [outcome, details]);

  test("is partial if a vault could not be read completely, which is no success in the audit log", async () => {
    fixture.cloud.certificate = () => {
      throw refusal;
    };
    expect(await fixture.scan("full")).toMatchObject({ status: "partial", vaultsFailed: 0 });
    expect(await entered()).toMatchObject([["failure", { status: "partial", vaults: 3, vaultsDone: 3 }]]);
  });

  test("is failed with the reason if no vault could be read", async () => {
    fixture.cloud.vaults.set(HERE, []);
    fixture.cloud.unreadable = [{ name: "kv-odd", failure: refusal }];
    expect(await fixture.scan("full")).toMatchObject({
      status: "failed",
      failure: {
        code: "accessDenied",
        message: "No vault could be read. The first, kv-odd: Not allowed.",
        remedy: "Allow it.",
      },
    });
    expect(await entered()).toMatchObject([["failure", { status: "failed", vaultsFailed: 1 }]]);
  });

  test("is failed with the reason if its vaults were in back-off, also if a re-scan has read them since", async () => {
    const { keyVaults } = fixture.cloud;
    const { open } = keyVaults;
    fixture.cloud.vaults.set(HERE, ["kv-one"]);
    keyVaults.open = () => {
      throw refusal;
    };
    await fixture.scan("full");
    const scanId = await fixture.planned("delta");
    keyVaults.open = open;
    await fixture.rescans.note(event("kv-one"), 1);
    await storage.move(MINUTE_MS);
    await fixture.clockCatchesUp();
    for (const message of fixture.take(RESCAN_QUEUE)) await fixture.hand(message);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "failed",
      failure: { code: "skipped", remedy: expect.stringContaining("force") },
    });
  });

  test("is timedOut if the deadline passed before all vaults were started, and no further vault is started", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    fixture.settings.discoveryScanTimeout = 60;
    const scanId = await fixture.planned();
    await storage.move(2 * MINUTE_MS);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "timedOut",
      vaultsTotal: 3,
      vaultsDone: 1,
    });
    expect(await entered()).toMatchObject([["failure", { status: "timedOut" }]]);
  });

  test("is timedOut if the deadline interrupted its vaults", async () => {
    fixture.settings.discoveryScanTimeout = 60;
    fixture.cloud.certificate = () => {
      throw new CloudFailure("timedOut", "Stopped.", { remedy: "Raise the limit." });
    };
    const scanId = await fixture.planned();
    await storage.move(2 * MINUTE_MS);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 3 });
  });

  test("limits the reading of a vault to the time left until the deadline", async () => {
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
    await fixture.planned();
    const [early, late] = fixture.take(QUEUES.vaults);
    await fixture.hand(early!);
    await storage.move(2 * MINUTE_MS);
    await fixture.clockCatchesUp();
    await fixture.hand(late!);
    expect(signals).toHaveLength(2);
    // The second vault had a millisecond.
    await expect.poll(() => signals[1]!.aborted).toBe(true);
    expect(signals[0]!.aborted).toBe(false);
  });

  test("is not decided while a vault is claimed, but the watch decides it a minute after the deadline", async () => {
    fixture.settings.discoveryScanTimeout = 60;
    const scanId = await fixture.planned();
    const [first] = fixture.take(QUEUES.vaults);
    await fixture.hand(first!);
    await fixture.run.finish(scanId);
    await fixture.watch();
    const status = async () => (await fixture.discovery.progress(scanId)).status;
    expect(await status()).toBe("running");
    await storage.move(MINUTE_MS + 10_000);
    await fixture.clockCatchesUp();
    await fixture.watch();
    expect(await status()).toBe("running");
    await storage.move(MINUTE_MS);
    await fixture.clockCatchesUp();
    await fixture.watch();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 1 });
    expect(await fixture.active.all()).toEqual([]);
  });

  test("is cancelled also before the plan; a stray message ends no queued scan", async () => {
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    await fixture.run.finish(scanId);
    expect((await fixture.discovery.progress(scanId)).status).toBe("queued");
    await fixture.discovery.cancel(scanId, caller);
    await fixture.deliver("last");
    expect((await fixture.discovery.progress(scanId)).status).toBe("cancelled");
  });

  test("can't become cancelled once it is decided", async () => {
    const connection = freshStorage();
    const scanId = await scanWithoutEnd(connection);
    await expect(createScanFixture(connection, crashAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    const other = createScanFixture(connection);
    await expect(other.discovery.cancel(scanId, caller)).rejects.toMatchObject({ code: "conflict" });
    expect(await other.entries("scan.cancelled")).toEqual([]);
  });
});

describe("a message that failed five times", () => {
  let fixture: ScanFixture;
  beforeEach(() => {
    fixture = createScanFixture(freshStorage());
  });

  test("for a vault makes that vault fail, and the worker continues with the next one", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned();
    const [message] = fixture.take(QUEUES.vaults);
    await fixture.run.vaultFailed(scanId, message!.message.index);
    // Delivered twice: the second delivery finds the vault done, and sends the next message again in case the first delivery
    // crashed before.
    await fixture.run.vaultFailed(scanId, message!.message.index);
    const other = { scanId, index: expect.stringMatching(/^00000[12]$/) };
    expect(fixture.sent).toMatchObject([{ queue: QUEUES.vaults, message: other }, fixture.sent[0]]);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "partial",
      vaultsDone: 3,
      vaultsFailed: 1,
    });
    const { page } = await fixture.discovery.results(scanId, everything);
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
      failure: { code: "internal", message: "The scan could not be planned, in five tries." },
    });
    expect(await fixture.entries("scan.finished")).toMatchObject([
      { outcome: "failure", details: { status: "failed" } },
    ]);
    expect(await fixture.active.all()).toEqual([]);
  });

  test("for a plan whose scan runs by now does not fail the scan: its vaults continue", async () => {
    const scanId = await fixture.planned();
    await fixture.run.planFailed(scanId);
    await fixture.deliver();
    await expectEndedOnce(fixture, scanId);
  });
});

test("a scheduled scan that is skipped because of another one, or could not start, is recorded in the audit log", async () => {
  const fixture = createScanFixture(freshStorage());
  const running = await fixture.planned("full");
  await fixture.discovery.startScheduled("delta", "request-7");
  await fixture.discovery.scheduledFailed("full", "request-8");
  expect(await fixture.entries("scan.skipped")).toMatchObject([
    {
      actor: "system",
      requestId: "request-7",
      outcome: "failure",
      details: { mode: "delta", runningScan: running },
    },
  ]);
  expect(await fixture.entries("scan.startFailed")).toMatchObject([
    { actor: "system", requestId: "request-8", outcome: "failure", details: { mode: "full" } },
  ]);
});

test("an error of storage does not count as a vault's failure: the message is redelivered", async () => {
  const connection = freshStorage();
  const fixture = createScanFixture(connection);
  await fixture.scan("full");
  const scanId = await fixture.planned("delta");
  const changed = { secrets: [{ name: "other" }] };
  // Only reads of the vault's assets fail. All other storage requests succeed.
  const broken = createScanFixture(connection, (tables) => ({
    ...tables,
    pages: ((entity: { table: string }, range: never) => {
      if (entity.table === "Assets") throw new Error("storage fails");
      return tables.pages(entity as never, range);
    }) as Tables["pages"],
  }));
  broken.cloud.listed = changed;
  const message = { scanId, index: "000000" };
  await expect(broken.run.scanVaults(message, 2)).rejects.toThrow("storage fails");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  fixture.cloud.listed = changed;
  await fixture.run.scanVaults(message, 2);
  const { page } = await fixture.discovery.results(scanId, everything);
  expect(page.items).toMatchObject([{ outcome: "succeeded", tally: { added: 1, removed: 2 } }]);
});

/** Plans a scan and finishes its vaults. The worker of the last vault crashes before it ends the scan. */
async function scanWithoutEnd(connection: string): Promise<string> {
  const fixture = createScanFixture(connection);
  const scanId = await fixture.planned();
  const [last, ...others] = fixture.take(QUEUES.vaults);
  for (const message of others) await fixture.hand(message);
  const doomed = createScanFixture(connection, (tables) =>
    crashingTables(tables, (method, [, range]) => (method === "pages" && isClaimsRange(range) ? "before" : undefined)),
  );
  await expect(doomed.hand(last!)).rejects.toThrow("died");
  expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 3 });
  return scanId;
}

const isClaimsRange = (range: unknown): boolean => (range as { from?: string }).from === "2!";

const WRITES = new Set<keyof Tables>(["insert", "put", "replace", "remove", "modify", "transaction", "write"]);

/** Crashes a worker before or after its write number `at`. */
function crashAt(at: number, moment: "before" | "after") {
  let writes = 0;
  const crashesAt = (method: keyof Tables) => (WRITES.has(method) && ++writes === at ? moment : undefined);
  return { wrap: (tables: Tables) => crashingTables(tables, crashesAt), happened: () => writes >= at };
}

/** Tables whose worker crashes at the call that `crashesAt` names. After that, its calls have no effect. */
function crashingTables(
  tables: Tables,
  crashesAt: (method: keyof Tables, args: unknown[]) => "before" | "after" | undefined,
): Tables {
  let dead = false;
  const check = (now: boolean) => {
    dead ||= now;
    if (dead) throw new Error("died");
  };
  return new Proxy(tables, {
    get: (target, method: keyof Tables) => {
      const call = target[method] as (...args: unknown[]) => unknown;
      // These two return at once, and read later.
      if (method === "pages" || method === "fence") {
        return (...args: unknown[]) => {
          check(crashesAt(method, args) !== undefined);
          return call(...args);
        };
      }
      return async (...args: unknown[]) => {
        check(false);
        const moment = crashesAt(method, args);
        check(moment === "before");
        const result = await call(...args);
        check(moment === "after");
        return result;
      };
    },
  });
}
