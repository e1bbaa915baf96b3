import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { mortal, type Steps } from "../support/simulated-crash.ts";
import { caller, everything, HERE, type Rooms, scanRooms, THERE } from "./rooms.ts";

const ACCOUNTS = Array.from({ length: 100 }, (_, at) => `account${at}`);

let storage: MovedStorage;
let used = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let rooms: Rooms;
beforeEach(() => {
  rooms = scanRooms(storage.azurite.connectionString(ACCOUNTS[used++]!));
});

describe("a plan", () => {
  test("two messages for one plan at the same time: one plan stands, every vault is scanned once", async () => {
    const { discovery, sent } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent.length = 0;
    let arrived = 0;
    let go = () => {};
    const both = new Promise<void>((resolve) => {
      go = resolve;
    });
    rooms.cloud.whileListing = async () => {
      if (++arrived === 4) go();
      await both;
    };
    await Promise.all([1, 2].map(() => rooms.plan(scanId).then(go)));
    expect(
      sent
        .filter(({ queue }) => queue === QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual(["000000", "000001", "000002"]);
    await rooms.deliver();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("one that was overtaken while it listed the vaults writes nothing over the scan that runs", async () => {
    const { discovery, run, sent } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sent.length = 0;
    let overtaken = false;
    rooms.cloud.whileListing = async () => {
      if (overtaken) return;
      overtaken = true;
      await run.scan(scanId, 1);
    };
    await run.scan(scanId, 1);
    expect(overtaken).toBe(true);
    expect(rooms.cloud.looked).toBe(3);
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsTotal: 3, vaultsDone: 3 });
    expect((await discovery.results(scanId, everything)).page.items).toHaveLength(3);
  });

  test("a duplicate message starts no vault again; a second delivery of the plan's own does", async () => {
    const { discovery, run, sent } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    await rooms.plan(scanId);
    sent.length = 0;
    await run.scan(scanId, 1);
    expect(sent).toEqual([]);
    await run.scan(scanId, 2);
    expect(sent.filter(({ queue }) => queue === QUEUES.vaults)).toHaveLength(3);
  });

  test("while it waits for workers, the watch adds no messages to the one that is waiting", async () => {
    const { discovery, run, watch, sent, settings } = rooms;
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
    // The message is lost: only then another one comes, and no more than one.
    await storage.move(11 * MINUTE_MS);
    sent.length = 0;
    await watch();
    await watch();
    expect(sent.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
  });
});

/** What a room changes storage with. */
const WRITES = ["insert", "put", "replace", "remove", "modify", "transaction", "write"];
/** Every so many steps one death. */
const STRIDE = IS_CAMPAIGN ? 1 : 9;

describe("a scan in the invocation of its one message", () => {
  const names = (count: number) => Array.from({ length: count }, (_, at) => `kv-${String(at).padStart(2, "0")}`);

  test("is planned, scanned and ended by it, and sends no other", async () => {
    rooms.cloud.vaults.set(HERE, names(12));
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    expect(rooms.take(QUEUES.plan)).toHaveLength(1);
    await rooms.run.scan(scanId, 1);
    expect(rooms.sent).toEqual([]);
    expect(rooms.cloud.looked).toBe(12);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 12 });
  });

  test("has ten vaults in hand at once, sends messages for further workers, and never more than there may be", async () => {
    rooms.cloud.vaults.set(HERE, names(16));
    rooms.settings.discoveryMaxWorkers = 12;
    let now = 0;
    let most = 0;
    rooms.cloud.whileLooking = async () => {
      most = Math.max(most, ++now);
      // Only ten together go on.
      while (most < 10) await delay(5);
      now--;
    };
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    rooms.take(QUEUES.plan);
    const first = rooms.run.scan(scanId, 1);
    await expect.poll(() => rooms.sent.length).toBe(2);
    await Promise.all([first, ...rooms.take(QUEUES.vaults).map((one) => rooms.hand(one))]);
    expect(most).toBeGreaterThanOrEqual(10);
    expect(most).toBeLessThanOrEqual(12);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 16 });
    expect(rooms.cloud.looked).toBe(16);
  });

  test("hands on what it does not finish in some seconds, each vault to a message, and goes on with one", async () => {
    rooms.cloud.vaults.set(HERE, names(9));
    rooms.settings.discoveryMaxWorkers = 3;
    let later: Promise<void> | undefined;
    const seconds = async () => {
      await storage.move(16 * SECOND_MS);
      await rooms.clockCatchesUp();
    };
    // No vault is done before the time has passed.
    rooms.cloud.whileLooking = () => {
      later ??= seconds();
      return later;
    };
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    rooms.take(QUEUES.plan);
    await rooms.run.scan(scanId, 1);
    expect(rooms.sent).toHaveLength(2);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 7 });
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 9 });
    expect(rooms.cloud.looked).toBe(9);
  });

  test("whose beginning is written, cancelled, and told it was not written, is scanned and ended nevertheless", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
    const other = scanRooms(connection);
    let isLost = false;
    const unlucky = scanRooms(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        const written = await tables.replace(entity, row);
        if (isLost || (row as { status?: string }).status !== "running") return written;
        // The answer is lost, and the scan cancelled before the same is sent again.
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
    expect(unlucky.cloud.looked).toBe(10);
    for (const index of ["000010", "000011"]) await unlucky.run.scanVaults({ scanId, index }, 1);
    expect(await other.discovery.progress(scanId)).toMatchObject({ status: "cancelled", vaultsDone: 12 });
  });

  test("that fails at one vault scans the others; the message's next delivery gives the one its own", async () => {
    rooms.cloud.vaults.set(HERE, names(5));
    const { known } = rooms.writer;
    rooms.writer.known = async (name) => {
      if (name === "kv-03") throw new Error("storage fails");
      return await known(name);
    };
    const { scanId } = await rooms.discovery.start({ mode: "full" }, caller);
    rooms.take(QUEUES.plan);
    await expect(rooms.run.scan(scanId, 1)).rejects.toThrow("storage fails");
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 4 });
    rooms.writer.known = known;
    await rooms.run.scan(scanId, 2);
    expect(rooms.sent).toEqual([{ queue: QUEUES.vaults, message: { scanId, index: "000003" }, delaySeconds: 0 }]);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 5 });
  });

  test("that died is taken up by its message's next delivery, whichever write it died at, and every vault ends once", async () => {
    let deaths = 0;
    for (let at = 1 + (SEED % STRIDE); ; at += STRIDE) {
      const connection = storage.azurite.connectionString(ACCOUNTS[used++]!);
      const other = scanRooms(connection);
      const { scanId } = await other.discovery.start({ mode: "full" }, caller);
      other.take(QUEUES.plan);
      const steps: Steps = { taken: 0, dieAt: at, when: at % 2 ? "before" : "after" };
      const dying = scanRooms(connection, (tables) => mortal(tables, steps, (method) => WRITES.includes(method)));
      await dying.run.scan(scanId, 1).catch(() => {});
      if (!steps.dead) break;
      deaths++;
      const { status } = await other.discovery.progress(scanId);
      if (status === "queued" || status === "running") {
        await storage.move(11 * MINUTE_MS);
        await other.run.scan(scanId, 2);
        await other.deliver();
        await other.watch();
        await other.deliver();
      }
      expect(await other.discovery.progress(scanId), `death ${at}`).toMatchObject({
        status: "completed",
        vaultsDone: 3,
      });
      expect(await other.ids()).toHaveLength(6);
      expect(await other.entries("scan.finished")).toHaveLength(1);
      expect(await other.active.all()).toEqual([]);
    }
    expect(deaths).toBeGreaterThan(1);
  });
});

describe("the list of scans", () => {
  test("shows a scan as it stands, also while it runs", async () => {
    const { discovery } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    rooms.sent.length = 0;
    const listed = async () => (await discovery.list(everything)).items.map(({ status }) => status);
    expect(await listed()).toEqual(["queued"]);
    await rooms.plan(scanId);
    expect(await listed()).toEqual(["running"]);
    await rooms.deliver();
    expect(await listed()).toEqual(["completed"]);
  });
});

describe("a vault that moved to another subscription", () => {
  test.each(["first", "last"] as const)("stands there and only there, whichever message comes %s", async (order) => {
    await rooms.scan("full");
    rooms.cloud.vaults = new Map([
      [HERE, ["kv-one", "kv-two"]],
      [THERE, ["kv-three"]],
    ]);
    expect(await rooms.scan("delta", order)).toMatchObject({ status: "completed" });
    const wanted = ["1 kv-one", "1 kv-two", "2 kv-three"].flatMap((vault) => [
      `${vault} certificate`,
      `${vault} secret`,
    ]);
    expect(await rooms.ids()).toEqual(wanted);
    expect(await rooms.ids({ subscription: HERE })).toEqual(wanted.slice(0, 4));
    expect(await rooms.ids({ subscription: THERE })).toEqual(wanted.slice(4));
  });

  test("is not taken out by a scan that planned its removal before another one found it", async () => {
    await rooms.scan("full");
    rooms.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    const { discovery, sent } = rooms;
    const removing = await discovery.start({ mode: "delta", subscriptions: [HERE] }, caller);
    await rooms.plan(removing.scanId);
    const messages = sent.splice(0);
    rooms.cloud.vaults.set(THERE, ["kv-three"]);
    await discovery.start({ mode: "delta", subscriptions: [THERE] }, caller);
    await rooms.deliver();
    sent.push(...messages.filter(({ message }) => message.scanId === removing.scanId && "index" in message));
    await rooms.deliver();
    expect(await rooms.ids({ subscription: THERE })).toEqual(["2 kv-three certificate", "2 kv-three secret"]);
  });
});

describe("details that could not be read", () => {
  test("are a failure until a scan of any mode has read them", async () => {
    rooms.cloud.certificate = () => {
      throw new CloudFailure("throttled", "Too many requests.", { remedy: "Wait." });
    };
    expect(await rooms.scan("full")).toMatchObject({ status: "partial" });
    expect(await rooms.scan("delta")).toMatchObject({ status: "partial" });
    rooms.cloud.certificate = () => ({ version: "1", subject: "CN=www" });
    expect(await rooms.scan("delta")).toMatchObject({ status: "completed" });
    const { items } = await rooms.assets.list({ type: "certificate" }, everything, {
      now: 0,
      criticalDays: 7,
      warningDays: 30,
    });
    expect(items.map(({ asset }) => asset.subject)).toEqual(["CN=www", "CN=www", "CN=www"]);
    let asked = 0;
    rooms.cloud.certificate = () => {
      asked++;
      return {};
    };
    expect(await rooms.scan("delta")).toMatchObject({ status: "completed" });
    expect(asked).toBe(0);
  });
});
