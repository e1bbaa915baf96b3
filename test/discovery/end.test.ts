import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { LOOK_QUEUE } from "../../shared/discovery/look.ts";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { caller, event, everything, HERE, type Rooms, scanRooms } from "./rooms.ts";

const ACCOUNTS = Array.from({ length: 80 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());
const freshStorage = () => storage.azurite.connectionString(ACCOUNTS[used++]!);

async function expectEndedOnce(rooms: Rooms, scanId: string): Promise<void> {
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  expect((await rooms.discovery.list(everything)).items).toMatchObject([
    { scanId, status: "completed", vaultsDone: 3 },
  ]);
  expect(await rooms.active.all()).toEqual([]);
  expect(await rooms.entries("scan.finished")).toMatchObject([
    { outcome: "success", details: { status: "completed", vaultsDone: 3, vaultsFailed: 0 } },
  ]);
}

describe("a scan's end is entered once and written whole", () => {
  test.each(["before", "after"] as const)("whichever write a worker dies %s", async (moment) => {
    let deaths = 0;
    for (let at = 1; ; at++) {
      const connection = freshStorage();
      const scanId = await allButTheEnd(connection);
      const death = dyingAt(at, moment);
      await scanRooms(connection, death.wrap)
        .run.finish(scanId)
        .catch(() => undefined);
      if (!death.happened()) break;
      deaths++;
      const other = scanRooms(connection);
      await other.run.finish(scanId);
      await expectEndedOnce(other, scanId);
      await other.run.finish(scanId);
      expect(await other.entries("scan.finished")).toHaveLength(1);
    }
    // How it ends, the list's copy, the active scans, the scan's own row.
    expect(deaths).toBe(4);
  });

  // What is refused is only asked again: every third write in the suite.
  test.each([
    ["LostAnswer", 1, 6],
    ["ServerBusy", IS_CAMPAIGN ? 1 : 3, IS_CAMPAIGN ? 6 : 2],
  ] as const)(
    "whichever write meets %s",
    async (fault, stride, least) => {
      let met = 0;
      for (let at = 1; ; at += stride) {
        const account = freshStorage();
        const scanId = await allButTheEnd(account);
        const proxy = await startTableProxy(account);
        const rooms = scanRooms(proxy.connectionString);
        let writes = 0;
        proxy.fail([fault], ({ method }) => method !== "GET" && ++writes === at);
        await rooms.run.finish(scanId);
        await expectEndedOnce(rooms, scanId);
        await proxy.stop();
        if (writes < at) break;
        met++;
      }
      // At each: the four of its own rows, and the entry with its index.
      expect(met).toBeGreaterThanOrEqual(least);
    },
    300_000,
  );

  test("by ten workers at the same time", async () => {
    const connection = freshStorage();
    const scanId = await allButTheEnd(connection);
    await Promise.all(Array.from({ length: 10 }, () => scanRooms(connection).run.finish(scanId)));
    await expectEndedOnce(scanRooms(connection), scanId);
  });

  test("when its worker died before it could enter it, and that time of the audit log is sealed", async () => {
    const connection = freshStorage();
    const scanId = await allButTheEnd(connection);
    // It dies with the decision how the scan ends, before the entry.
    await expect(scanRooms(connection, dyingAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    await storage.move(25 * MINUTE_MS);
    const rooms = scanRooms(connection);
    await rooms.clockCatchesUp();
    expect((await rooms.audit.seal()).sealed).toBeGreaterThan(0);
    await rooms.run.finish(scanId);
    await expectEndedOnce(rooms, scanId);
  });

  test("also when the inventory can't be counted anew, which is said", async () => {
    const connection = freshStorage();
    const scanId = await allButTheEnd(connection);
    const rooms = scanRooms(connection);
    rooms.totals.renew = async () => {
      throw new Error("the totals are broken");
    };
    await expect(rooms.run.finish(scanId)).rejects.toThrow("the totals are broken");
    await expectEndedOnce(rooms, scanId);
    await rooms.run.finish(scanId);
  });

  test("and sends no message to itself, however often it is asked for", async () => {
    const connection = freshStorage();
    const scanId = await allButTheEnd(connection);
    const rooms = scanRooms(connection, dyingAt(1, "before").wrap);
    await expect(rooms.run.finish(scanId)).rejects.toThrow("died");
    const other = scanRooms(connection);
    await storage.move(2 * MINUTE_MS);
    for (let minute = 0; minute < 3; minute++) await other.watch();
    expect(rooms.sent).toEqual([]);
    expect(other.sent).toEqual([]);
    await expectEndedOnce(other, scanId);
  });
});

describe("a scan says how it ended", () => {
  let rooms: Rooms;
  beforeEach(() => {
    rooms = scanRooms(freshStorage());
  });
  const refusal = new CloudFailure("accessDenied", "Not allowed.", { remedy: "Allow it." });
  const entered = async () => (await rooms.entries("scan.finished")).map(({ outcome, details }) => [outcome, details]);

  test("partial when a vault could not be read whole: in the audit log no success", async () => {
    rooms.cloud.certificate = () => {
      throw refusal;
    };
    expect(await rooms.scan("full")).toMatchObject({ status: "partial", vaultsFailed: 0 });
    expect(await entered()).toMatchObject([["failure", { status: "partial", vaults: 3, vaultsDone: 3 }]]);
  });

  test("failed, and why, when no vault could be read", async () => {
    rooms.cloud.vaults.set(HERE, []);
    rooms.cloud.unreadable = [{ name: "kv-odd", failure: refusal }];
    expect(await rooms.scan("full")).toMatchObject({
      status: "failed",
      failure: {
        code: "accessDenied",
        message: "No vault could be read. The first, kv-odd: Not allowed.",
        remedy: "Allow it.",
      },
    });
    expect(await entered()).toMatchObject([["failure", { status: "failed", vaultsFailed: 1 }]]);
  });

  test("failed, and why, when its vaults were left alone, also where a look has read them since", async () => {
    const { keyVaults } = rooms.cloud;
    const { open } = keyVaults;
    rooms.cloud.vaults.set(HERE, ["kv-one"]);
    keyVaults.open = () => {
      throw refusal;
    };
    await rooms.scan("full");
    const scanId = await rooms.planned("delta");
    keyVaults.open = open;
    await rooms.looks.note(event("kv-one"), 1);
    await storage.move(MINUTE_MS);
    await rooms.clockCatchesUp();
    for (const message of rooms.take(LOOK_QUEUE)) await rooms.hand(message);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({
      status: "failed",
      failure: { code: "skipped", remedy: expect.stringContaining("force") },
    });
  });

  test("timedOut when its time was over before all vaults were begun, and begins no further one", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    rooms.settings.discoveryScanTimeout = 60;
    const scanId = await rooms.planned();
    await storage.move(2 * MINUTE_MS);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsTotal: 3, vaultsDone: 1 });
    expect(await entered()).toMatchObject([["failure", { status: "timedOut" }]]);
  });

  test("timedOut when its vaults were cut off by its deadline", async () => {
    rooms.settings.discoveryScanTimeout = 60;
    rooms.cloud.certificate = () => {
      throw new CloudFailure("timedOut", "Stopped.", { remedy: "Raise the limit." });
    };
    const scanId = await rooms.planned();
    await storage.move(2 * MINUTE_MS);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 3 });
  });

  test("gives a vault's reading the time that is left to the scan, and no more", async () => {
    rooms.settings.discoveryScanTimeout = 60;
    const signals: AbortSignal[] = [];
    const open = rooms.cloud.keyVaults.open;
    rooms.cloud.keyVaults.open = (vault) => ({
      ...open(vault),
      secrets: (signal, unreadable) => {
        signals.push(signal!);
        return open(vault).secrets(signal, unreadable);
      },
    });
    await rooms.planned();
    const [early, late] = rooms.take(QUEUES.vaults);
    await rooms.hand(early!);
    await storage.move(2 * MINUTE_MS);
    await rooms.clockCatchesUp();
    await rooms.hand(late!);
    expect(signals).toHaveLength(2);
    // The second one had a millisecond.
    await expect.poll(() => signals[1]!.aborted).toBe(true);
    expect(signals[0]!.aborted).toBe(false);
  });

  test("and is not ended while a vault is claimed, but a minute past its time it is, by the watch", async () => {
    rooms.settings.discoveryScanTimeout = 60;
    const scanId = await rooms.planned();
    const [first] = rooms.take(QUEUES.vaults);
    await rooms.hand(first!);
    await rooms.run.finish(scanId);
    await rooms.watch();
    const status = async () => (await rooms.discovery.progress(scanId)).status;
    expect(await status()).toBe("running");
    await storage.move(MINUTE_MS + 10_000);
    await rooms.clockCatchesUp();
    await rooms.watch();
    expect(await status()).toBe("running");
    await storage.move(MINUTE_MS);
    await rooms.clockCatchesUp();
    await rooms.watch();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "timedOut", vaultsDone: 1 });
    expect(await rooms.active.all()).toEqual([]);
  });

  test("cancelled also before it was planned; a stray message ends no queued scan", async () => {
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    await rooms.run.finish(scanId);
    expect((await rooms.discovery.progress(scanId)).status).toBe("queued");
    await rooms.discovery.cancel(scanId, caller);
    await rooms.deliver("last");
    expect((await rooms.discovery.progress(scanId)).status).toBe("cancelled");
  });

  test("and can't be cancelled any more once it is decided how it ends", async () => {
    const connection = freshStorage();
    const scanId = await allButTheEnd(connection);
    await expect(scanRooms(connection, dyingAt(1, "after").wrap).run.finish(scanId)).rejects.toThrow("died");
    const other = scanRooms(connection);
    await expect(other.discovery.cancel(scanId, caller)).rejects.toMatchObject({ code: "conflict" });
    expect(await other.entries("scan.cancelled")).toEqual([]);
  });
});

describe("a message that failed for good", () => {
  let rooms: Rooms;
  beforeEach(() => {
    rooms = scanRooms(freshStorage());
  });

  test("of a vault is that vault's failure, and its chain goes on with the next", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned();
    const [message] = rooms.take(QUEUES.vaults);
    await rooms.run.vaultFailed(scanId, message!.message.index);
    // Twice: the second one finds it done, and sends the next again, should the first have died before.
    await rooms.run.vaultFailed(scanId, message!.message.index);
    const other = { scanId, index: expect.stringMatching(/^00000[12]$/) };
    expect(rooms.sent).toMatchObject([{ queue: QUEUES.vaults, message: other }, rooms.sent[0]]);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "partial", vaultsDone: 3, vaultsFailed: 1 });
    const { page } = await rooms.discovery.results(scanId, everything);
    expect(page.items[0]).toMatchObject({
      outcome: "failed",
      failures: [{ list: "vault", code: "internal", remedy: expect.stringContaining("logs") }],
      tally: { added: 0, updated: 0, removed: 0 },
      added: [],
      updated: [],
      removed: [],
    });
  });

  test("of a plan ends the scan, which says why", async () => {
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    await rooms.run.planFailed(scanId);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({
      status: "failed",
      failure: { code: "internal", message: "The scan could not be planned, in five tries." },
    });
    expect(await rooms.entries("scan.finished")).toMatchObject([{ outcome: "failure", details: { status: "failed" } }]);
    expect(await rooms.active.all()).toEqual([]);
  });

  test("of a plan whose scan runs since is no failure of the scan: its vaults go on", async () => {
    const scanId = await rooms.planned();
    await rooms.run.planFailed(scanId);
    await rooms.deliver();
    await expectEndedOnce(rooms, scanId);
  });
});

test("a scheduled scan that another one keeps from beginning is entered, and so is one that could not begin", async () => {
  const rooms = scanRooms(freshStorage());
  const running = await rooms.planned("full");
  await rooms.discovery.startScheduled("delta", "request-7");
  await rooms.discovery.scheduledFailed("full", "request-8");
  expect(await rooms.entries("scan.skipped")).toMatchObject([
    {
      actor: "system",
      requestId: "request-7",
      outcome: "failure",
      details: { mode: "delta", runningScan: running },
    },
  ]);
  expect(await rooms.entries("scan.startFailed")).toMatchObject([
    { actor: "system", requestId: "request-8", outcome: "failure", details: { mode: "full" } },
  ]);
});

test("an error of storage is no vault's failure: the message comes again", async () => {
  const connection = freshStorage();
  const rooms = scanRooms(connection);
  await rooms.scan("full");
  const scanId = await rooms.planned("delta");
  const changed = { secrets: [{ name: "other" }] };
  // Only the vault's assets can't be read; whatever else it asks of storage is answered.
  const broken = scanRooms(connection, (tables) => ({
    ...tables,
    pages: ((entity: { table: string }, range: never) => {
      if (entity.table === "Assets") throw new Error("storage fails");
      return tables.pages(entity as never, range);
    }) as Tables["pages"],
  }));
  broken.cloud.listed = changed;
  const message = { scanId, index: "000000" };
  await expect(broken.run.scanVaults(message, 2)).rejects.toThrow("storage fails");
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 0 });
  rooms.cloud.listed = changed;
  await rooms.run.scanVaults(message, 2);
  const { page } = await rooms.discovery.results(scanId, everything);
  expect(page.items).toMatchObject([{ outcome: "succeeded", tally: { added: 1, removed: 2 } }]);
});

/** Plans a scan and ends its vaults; the worker of the last one dies before it ends the scan. */
async function allButTheEnd(connection: string): Promise<string> {
  const rooms = scanRooms(connection);
  const scanId = await rooms.planned();
  const [last, ...others] = rooms.take(QUEUES.vaults);
  for (const message of others) await rooms.hand(message);
  const doomed = scanRooms(connection, (tables) =>
    dying(tables, (method, [, range]) => (method === "pages" && isClaimsRange(range) ? "before" : undefined)),
  );
  await expect(doomed.hand(last!)).rejects.toThrow("died");
  expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 3 });
  return scanId;
}

const isClaimsRange = (range: unknown): boolean => (range as { from?: string }).from === "2!";

const WRITES = new Set<keyof Tables>(["insert", "put", "replace", "remove", "modify", "transaction", "write"]);

/** A worker that dies before or after its `at`th write. */
function dyingAt(at: number, moment: "before" | "after") {
  let writes = 0;
  const dies = (method: keyof Tables) => (WRITES.has(method) && ++writes === at ? moment : undefined);
  return { wrap: (tables: Tables) => dying(tables, dies), happened: () => writes >= at };
}

/** Tables whose worker dies at the call that `dies` names: from then on nothing it does happens. */
function dying(
  tables: Tables,
  dies: (method: keyof Tables, args: unknown[]) => "before" | "after" | undefined,
): Tables {
  let dead = false;
  const check = (now: boolean) => {
    dead ||= now;
    if (dead) throw new Error("died");
  };
  return new Proxy(tables, {
    get: (target, method: keyof Tables) => {
      const call = target[method] as (...args: unknown[]) => unknown;
      // These two answer at once, with what is asked for later.
      if (method === "pages" || method === "fence") {
        return (...args: unknown[]) => {
          check(dies(method, args) !== undefined);
          return call(...args);
        };
      }
      return async (...args: unknown[]) => {
        check(false);
        const moment = dies(method, args);
        check(moment === "before");
        const result = await call(...args);
        check(moment === "after");
        return result;
      };
    },
  });
}
