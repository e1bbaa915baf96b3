import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { CloudFailure } from "../../shared/azure/failure.ts";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { MINUTE_MS } from "../../shared/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { caller, everything, HERE, type Rooms, scanRooms, THERE } from "./rooms.ts";

const ACCOUNTS = Array.from({ length: 16 }, (_, at) => `account${at}`);

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
    const { discovery, run, sent } = rooms;
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
    await Promise.all([1, 2].map(() => run.plan(scanId, 1).then(go)));
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
      await run.plan(scanId, 1);
      await rooms.deliver();
    };
    await run.plan(scanId, 1);
    await rooms.deliver();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsTotal: 3, vaultsDone: 3 });
    expect((await discovery.results(scanId, everything)).page.items).toHaveLength(3);
  });

  test("a message to spare starts no vault again; a second delivery of the plan's own does", async () => {
    const { discovery, run, sent } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    await run.plan(scanId, 1);
    sent.length = 0;
    await run.plan(scanId, 1);
    expect(sent).toEqual([]);
    await run.plan(scanId, 2);
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

describe("the list of scans", () => {
  test("shows a scan as it stands, also while it runs", async () => {
    const { discovery, run } = rooms;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    const listed = async () => (await discovery.list(everything)).items.map(({ status }) => status);
    expect(await listed()).toEqual(["queued"]);
    await run.plan(scanId, 1);
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
    const { discovery, run, sent } = rooms;
    const removing = await discovery.start({ mode: "delta", subscriptions: [HERE] }, caller);
    await run.plan(removing.scanId, 1);
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
