import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { timers } from "../../functions/discovery.ts";
import { LOOK_QUEUE, LOOKS, LookRows } from "../../shared/discovery/look.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/claim.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { Death, mortal, type Steps } from "../support/simulated-crash.ts";
import { caller, event, HERE, type Rooms, scanRooms, THERE } from "./rooms.ts";

const ACCOUNTS = Array.from({ length: 64 }, (_, index) => `looks${index}`);
let storage: MovedStorage;
let account = 0;
let rooms: Rooms;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

const connection = () => storage.azurite.connectionString(ACCOUNTS[account]!);
beforeEach(async () => {
  account++;
  rooms = scanRooms(connection());
  await rooms.scan("full");
  // A vault that was just read is not looked at again at once.
  await later(MINUTE_MS);
  rooms.sent.length = 0;
  rooms.cloud.looked = 0;
});

const SETTLED_MS = 6 * SECOND_MS;

/** Later by so much, as the rooms' clock has it too. */
async function later(milliseconds: number): Promise<void> {
  await storage.move(milliseconds);
  await rooms.clockCatchesUp();
}
const rows = async () => {
  const found = [];
  for await (const page of rooms.tables.pages(LookRows, { partitionKey: LOOKS })) found.push(...page);
  return found;
};
/** Hands over the messages for looks that are due by now. */
async function deliverLooks(): Promise<void> {
  for (const message of rooms.take(LOOK_QUEUE)) await rooms.hand(message);
}
const look = (name: string) => rooms.looks.look(name, "request-2");
const changes = () => rooms.entries("vault.changed");
const newSecret = { name: "new", expires: 1_900_000_000 };
function addSecret(): void {
  rooms.cloud.listed = { ...rooms.cloud.listed, secrets: [{ name: "password" }, newSecret] };
}

describe("an event", () => {
  test("of a new secret brings it into the inventory some seconds later, without a scan", async () => {
    const scans = await rooms.discovery.list({ limit: 10, offset: 0, cursor: undefined });
    addSecret();
    await rooms.looks.note(event("kv-one"), 1);
    expect(rooms.take(LOOK_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" }, delaySeconds: 5 }]);
    await later(SETTLED_MS);
    await look("kv-one");
    expect((await rooms.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect((await rooms.ids({ vault: "kv-two", type: "secret" })).length).toBe(1);
    expect(await rows()).toEqual([]);
    expect(rooms.sent).toEqual([]);
    expect(await rooms.discovery.list({ limit: 10, offset: 0, cursor: undefined })).toEqual(scans);
    expect(await changes()).toMatchObject([
      {
        outcome: "success",
        actor: "system",
        requestId: "request-2",
        target: { type: "vault", id: expect.stringMatching(/kv-one$/) },
        details: { trigger: "event", counts: { added: 1, updated: 0, removed: 0 }, added: ["kv-one.secret.new"] },
      },
    ]);
    expect(rooms.changed.times).toBe(1);
    expect((await rooms.writer.find("kv-one"))?.lastEventAt).toBeDefined();
    expect((await rooms.writer.find("kv-two"))?.lastEventAt).toBeUndefined();
  });

  test("that is a duplicate, or comes after all is seen, changes nothing and is entered nowhere", async () => {
    const before = await rooms.ids();
    for (let copy = 0; copy < 3; copy++) await rooms.looks.note(event("KV-One"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect(await rooms.ids()).toEqual(before);
    expect(rooms.cloud.looked).toBe(1);
    expect([await changes(), rooms.changed.times, await rows()]).toEqual([[], 0, []]);
  });

  test.each([
    ["of a vault nobody knows", event("kv-unknown")],
    ["of the service's own vault", event("kv-service", "resource")],
    ["of another type", { hint: undefined }],
  ])("%s is ignored", async (_, foreign) => {
    await rooms.looks.note(foreign, 1);
    expect([rooms.sent, await rows()]).toEqual([[], []]);
  });

  test("of a subscription that is not watched is ignored, also when it leaves before the look", async () => {
    rooms.scope.watched = async (id) => id !== HERE;
    await rooms.looks.note(event("kv-one"), 1);
    expect([rooms.sent, await rows()]).toEqual([[], []]);
    rooms.scope.watched = async () => true;
    await rooms.looks.note(event("kv-one"), 1);
    await rooms.looks.note(event("kv-two", "resource"), 1);
    rooms.cloud.vaults.set(HERE, []);
    rooms.scope.watched = async () => false;
    await later(SETTLED_MS);
    const asked = [vi.spyOn(rooms.cloud.resourceManager, "vault"), vi.spyOn(rooms.cloud.resourceManager, "vaults")];
    await look("kv-one");
    await look("kv-two");
    expect([rooms.cloud.looked, await rows(), asked.map((calls) => calls.mock.calls.length)]).toEqual([0, [], [0, 0]]);
  });

  test("of a vault that was read just now is followed by a look half a minute after that", async () => {
    await rooms.looks.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    await look("kv-one");
    rooms.take(LOOK_QUEUE);
    await rooms.looks.note(event("kv-one"), 1);
    const [message] = rooms.take(LOOK_QUEUE);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await later(31 * SECOND_MS);
    await rooms.hand(message!);
    expect([rooms.cloud.looked, await rows()]).toEqual([2, []]);
  });

  test("during a look causes exactly one more after it, which sees what came then", async () => {
    await rooms.looks.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    rooms.cloud.whileLooking = async () => {
      addSecret();
      for (let times = 0; times < 3; times++) await rooms.looks.note(event("kv-one"), 1);
    };
    await look("kv-one");
    rooms.cloud.whileLooking = async () => {};
    expect((await rooms.ids({ vault: "kv-one", type: "secret" })).length).toBe(1);
    expect(await rows()).toHaveLength(1);
    const [message] = rooms.take(LOOK_QUEUE).filter(({ delaySeconds }) => delaySeconds > 5);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await look("kv-one"); // Too early: the message sends itself on.
    expect([rooms.cloud.looked, rooms.take(LOOK_QUEUE).length]).toEqual([1, 1]);
    await later(31 * SECOND_MS);
    await rooms.hand(message!);
    expect((await rooms.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect([rooms.cloud.looked, await rows(), rooms.sent]).toEqual([2, [], []]);
  });
});

/** A campaign sends as many as a burst may have. */
const EVENTS = IS_CAMPAIGN ? 9999 : 720;

test(`${EVENTS} events in a burst for one vault cost at most three looks and hardly more than a read each`, async () => {
  let requests = 0;
  const counting = scanRooms(
    connection(),
    (tables) =>
      new Proxy(tables, {
        get(target, name: keyof Tables) {
          const member = target[name] as (...args: unknown[]) => unknown;
          return (...args: unknown[]) => {
            // What reads and writes makes two requests.
            requests += name === "modify" ? 2 : 1;
            return member.apply(target, args);
          };
        },
      }),
  );
  counting.cloud.looked = 0;
  let sent = 0;
  const burst = async (count: number) => {
    for (let at = 0; at < count; at += 24, sent += 24) {
      await Promise.all(Array.from({ length: 24 }, () => counting.looks.note(event("kv-one"), 1)));
    }
  };
  // A third before the look, one while it goes on, one after it; the secret comes with the last event.
  await burst(EVENTS / 3);
  await later(SETTLED_MS);
  await counting.clockCatchesUp();
  counting.cloud.whileLooking = async () => {
    counting.cloud.whileLooking = async () => {};
    await burst(EVENTS / 3);
  };
  await counting.looks.look("kv-one", "request");
  await burst(EVENTS / 3);
  counting.cloud.listed = { ...counting.cloud.listed, secrets: [{ name: "password" }, newSecret] };
  await counting.looks.note(event("kv-one"), 1);
  await later(31 * SECOND_MS);
  await counting.clockCatchesUp();
  for (const message of counting.take(LOOK_QUEUE)) await counting.hand(message);
  expect(sent).toBeGreaterThanOrEqual(EVENTS);
  expect((await counting.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
  expect(counting.cloud.looked).toBeGreaterThan(1);
  expect(counting.cloud.looked).toBeLessThanOrEqual(3);
  expect(await rows()).toEqual([]);
  const perEvent = requests / sent;
  console.log(`${sent} events: ${counting.cloud.looked} looks, ${perEvent.toFixed(3)} table requests an event`);
  // What those cost that arrive with the first, and the looks themselves, does not grow with the burst.
  expect(perEvent).toBeLessThan(1 + 400 / EVENTS);
});

describe("an event of the resource manager", () => {
  test("takes in a new vault of a watched subscription, as the resource manager describes it", async () => {
    rooms.cloud.vaults.get(HERE)!.push("kv-new");
    await rooms.looks.note(event("kv-new", "resource"), 1);
    await later(SETTLED_MS);
    await look("kv-new");
    expect(await rooms.ids({ vault: "kv-new" })).toHaveLength(2);
    expect((await rooms.writer.find("kv-new"))?.lastEventAt).toBeUndefined();
    expect(await changes()).toMatchObject([{ details: { vault: "added", counts: { added: 2 } } }]);
  });

  test("of a vault that is nowhere leaves nothing", async () => {
    await rooms.looks.note(event("kv-forged", "resource"), 1);
    await later(SETTLED_MS);
    await look("kv-forged");
    expect([await rooms.writer.find("kv-forged"), await rows(), await changes()]).toEqual([undefined, [], []]);
  });

  test("removes a vault only after a complete listing without it", async () => {
    rooms.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    await rooms.looks.note(event("kv-one", "resource"), 1);
    await later(SETTLED_MS);
    const { vaults } = rooms.cloud.resourceManager;
    rooms.cloud.resourceManager.vaults = async function* () {
      yield { vaults: [], unreadable: [] };
      throw new Error("the second page does not come");
    };
    await expect(look("kv-one")).rejects.toThrow("the second page");
    expect(await rooms.ids({ vault: "kv-one" })).toHaveLength(2);
    rooms.cloud.resourceManager.vaults = vaults;
    await look("kv-one");
    expect(await rooms.ids({ vault: "kv-one" })).toEqual([]);
    expect(await rooms.ids({ vault: "kv-two" })).toHaveLength(2);
    expect(await changes()).toMatchObject([{ details: { vault: "removed", counts: { removed: 2 } } }]);
  });

  test("with a group that is not the vault's removes nothing: the listing still has it", async () => {
    const forged = event("kv-one", "resource", THERE);
    await rooms.looks.note(forged, 1);
    await later(SETTLED_MS);
    await look("kv-one");
    expect(await rooms.ids({ vault: "kv-one" })).toHaveLength(2);
    expect(await changes()).toEqual([]);
  });

  test("follows a vault that moved", async () => {
    rooms.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    rooms.cloud.vaults.set(THERE, ["kv-one"]);
    // Both places send one: it was deleted in the first, and written in the second.
    await rooms.looks.note(event("kv-one", "resource", HERE), 1);
    await rooms.looks.note(event("kv-one", "resource", THERE), 1);
    await later(SETTLED_MS);
    rooms.cloud.whileLooking = async () => {
      for (const id of [HERE, THERE]) {
        await expect(rooms.active.refuseWhileScanned(id)).rejects.toMatchObject({ code: "conflict" });
      }
    };
    await look("kv-one");
    expect(await rooms.ids({ vault: "kv-one" })).toEqual(["2 kv-one certificate", "2 kv-one secret"]);
    expect((await rooms.ids()).filter((id) => id.includes("kv-one"))).toHaveLength(2);
    expect(await rows()).toEqual([]);
  });
});

describe("a scan and a look", () => {
  test("at the same vault: the look waits for who writes it, and both end", async () => {
    const { known } = rooms.writer;
    await rooms.looks.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    addSecret();
    const busy = vi.spyOn(rooms.writer, "known").mockImplementation(async (name) => {
      throw new VaultBusy(name, 3 * SECOND_MS);
    });
    rooms.take(LOOK_QUEUE);
    await look("kv-one");
    expect(rooms.take(LOOK_QUEUE)).toMatchObject([{ delaySeconds: 3 }]);
    busy.mockImplementation(known);
    await later(4 * SECOND_MS);
    // The look reads what is known, then a scan writes the vault, then the look wants to.
    rooms.cloud.whileLooking = async () => {
      rooms.cloud.whileLooking = async () => {};
      expect((await rooms.scan("force")).status).toBe("completed");
    };
    await look("kv-one");
    expect(await rows()).toHaveLength(1);
    await later(3 * SECOND_MS);
    await look("kv-one");
    expect([await rows(), (await rooms.ids({ vault: "kv-one" })).length]).toEqual([[], 3]);
  });

  test("planned before it: what the look saw stands, and what a scan planned after it sees comes after that", async () => {
    rooms.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    const scanId = await rooms.planned("full");
    const messages = rooms.take(QUEUES.vaults);
    // One is deleted then, one is written, one comes back.
    rooms.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    rooms.cloud.described["kv-two"] = { publicNetworkAccess: "Disabled" };
    for (const name of ["kv-one", "kv-two", "kv-three"]) await rooms.looks.note(event(name, "resource"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    const there = (name: string) => [`1 ${name} certificate`, `1 ${name} secret`];
    expect(await rooms.ids()).toEqual([...there("kv-three"), ...there("kv-two")]);
    for (const message of messages) await rooms.hand(message);
    await rooms.deliver();
    expect(await rooms.discovery.progress(scanId)).toMatchObject({
      status: "completed",
      vaultsDone: 3,
      tally: { added: 0, updated: 0, removed: 0 },
    });
    expect(await rooms.ids()).toEqual([...there("kv-three"), ...there("kv-two")]);
    expect((await rooms.writer.find("kv-two"))?.publicNetworkAccess).toBe("Disabled");

    rooms.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    rooms.cloud.described = {};
    await later(MINUTE_MS);
    await rooms.scan("delta");
    expect(await rooms.ids()).toEqual([...there("kv-one"), ...there("kv-two")]);
    expect((await rooms.writer.find("kv-two"))?.publicNetworkAccess).toBe("Enabled");
  });

  test("share the workers: a look waits while a scan has all, and is done by that scan's worker", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned("delta");
    await rooms.looks.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    rooms.take(LOOK_QUEUE);
    await look("kv-three");
    // However often it is woken meanwhile, no message stays.
    await later(2 * MINUTE_MS);
    await rooms.looks.watch();
    await deliverLooks();
    expect([rooms.cloud.looked, rooms.take(LOOK_QUEUE)]).toEqual([0, []]);
    await rooms.looks.between("request-3");
    expect([rooms.cloud.looked, await rows()]).toEqual([1, []]);
    await rooms.deliver();
    for (const message of rooms.take(QUEUES.vaults)) await rooms.hand(message);
    expect((await rooms.discovery.progress(scanId)).vaultsTotal).toBe(3);
  });

  test("a look begins as soon as a worker of the scan has no vault left, however long the others take", async () => {
    rooms.settings.discoveryMaxWorkers = 2;
    const scanId = await rooms.planned("delta");
    const [long, short] = rooms.take(QUEUES.vaults);
    let through = () => {};
    const untilThrough = new Promise<void>((resolve) => {
      through = resolve;
    });
    const reached = new Promise<void>((resolve) => {
      rooms.cloud.whileLooking = async () => {
        resolve();
        await untilThrough;
      };
    });
    const working = rooms.hand(long!);
    await reached;
    // One is refused during the last vault that waits, while both are at work.
    rooms.cloud.vaults.get(HERE)!.push("kv-new");
    rooms.cloud.whileLooking = async () => {
      rooms.cloud.whileLooking = async () => {
        rooms.cloud.whileLooking = async () => {};
        await rooms.looks.note(event("kv-new", "resource"), 1);
        await later(SETTLED_MS);
        await deliverLooks();
        expect([await rows(), rooms.take(LOOK_QUEUE)]).toMatchObject([[{ vaultName: "kv-new" }], []]);
      };
    };
    await rooms.hand(short!);
    await deliverLooks();
    expect([await rows(), rooms.cloud.looked]).toEqual([[], 4]);
    // Another one comes while only the long vault is left.
    await later(MINUTE_MS);
    await rooms.looks.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect([await rows(), rooms.cloud.looked]).toEqual([[], 5]);
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
    through();
    await working;
    expect(await rooms.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("a look that waited for a scan to end is woken by its end, whatever it ends by", async () => {
    rooms.settings.discoveryMaxWorkers = 1;
    const scanId = await rooms.planned("delta");
    await rooms.looks.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect([rooms.cloud.looked, (await rows()).length]).toEqual([0, 1]);
    await rooms.run.finish(scanId, true);
    await deliverLooks();
    expect([rooms.cloud.looked, await rows()]).toEqual([1, []]);
  });

  test("and a scan that begins gets no more workers than the looks leave; a dead look's is free after a minute", async () => {
    rooms.settings.discoveryMaxWorkers = 2;
    expect(await rooms.active.enterLook({ worker: "one", subscriptionId: HERE }, 2)).toBe(true);
    expect(await rooms.active.enterLook({ worker: "two", subscriptionId: HERE }, 2)).toBe(true);
    expect(await rooms.active.enterLook({ worker: "three", subscriptionId: HERE }, 2)).toBe(false);
    await rooms.active.leaveLook("two");
    const { scanId } = await rooms.discovery.start({ mode: "delta" }, caller);
    expect(await rooms.active.takeWorkers(scanId, 5, 2)).toBe(1);
    await expect(rooms.active.refuseWhileScanned(HERE)).rejects.toMatchObject({ code: "conflict" });
    await later(61 * SECOND_MS);
    expect(await rooms.active.takeWorkers(scanId, 5, 2)).toBe(2);
    await expect(rooms.active.refuseWhileScanned(HERE)).rejects.toMatchObject({ code: "scanRunning" });
  });

  test("a look that says that it lives keeps its worker for a minute more", async () => {
    await rooms.active.enterLook({ worker: "one", subscriptionId: HERE }, 1);
    const another = () => rooms.active.enterLook({ worker: "two", subscriptionId: HERE }, 1);
    await later(40 * SECOND_MS);
    await rooms.active.renewLook("one");
    await later(40 * SECOND_MS);
    expect(await another()).toBe(false);
    await later(30 * SECOND_MS);
    expect(await another()).toBe(true);
  });

  test("a row of the version before, without looks, is read", async () => {
    await rooms.tables.remove(ActiveScans, ACTIVE, ACTIVE);
    expect(await rooms.active.enterLook({ worker: "one", subscriptionId: HERE }, 1)).toBe(true);
  });
});

describe("whoever dies", () => {
  test("at any write between the event and the look's end: the change is seen, once told of, and nothing is left", async () => {
    const counted = (method: string) =>
      ["insert", "replace", "modify", "remove", "transaction", "put"].includes(method);
    const inLife = async (steps: Steps) => {
      const mortals = scanRooms(connection(), (tables) => mortal(tables, steps, counted));
      mortals.cloud.listed = { ...mortals.cloud.listed, secrets: [{ name: "password" }, newSecret] };
      return mortals;
    };
    const steps: Steps = { taken: 0 };
    const whole = await inLife(steps);
    await whole.looks.note(event("kv-two"), 1);
    await later(SETTLED_MS);
    await whole.clockCatchesUp();
    await whole.looks.look("kv-two", "request");
    const writes = steps.taken;
    expect(writes).toBeGreaterThan(4);
    const all = Array.from({ length: writes }, (_, index) => index + 1);
    const chosen = IS_CAMPAIGN ? all : all.filter((at) => at % 2 === 1);
    for (const [round, dieAt] of chosen.entries()) {
      account++;
      rooms = scanRooms(connection());
      await rooms.scan("full");
      await later(MINUTE_MS);
      rooms.sent.length = 0;
      const dying = await inLife({ taken: 0, dieAt, when: round % 2 === 0 ? "before" : "after" });
      const work = async () => {
        await dying.looks.note(event("kv-two"), 1);
        await later(SETTLED_MS);
        await dying.clockCatchesUp();
        await dying.looks.look("kv-two", "request");
      };
      await expect(work()).rejects.toThrow(Death);
      // The platform gives an event's message to another process, and the watch does what is left.
      addSecret();
      if (dieAt === 1) await rooms.looks.note(event("kv-two"), 2);
      for (let minute = 0; minute < 4; minute++) {
        await later(MINUTE_MS);
        await rooms.looks.watch();
        await deliverLooks();
      }
      expect((await rooms.ids({ vault: "kv-two", type: "secret" })).length, `death at ${dieAt}`).toBe(2);
      expect(await rows(), `death at ${dieAt}`).toEqual([]);
      expect((await changes()).length, `death at ${dieAt}`).toBeGreaterThanOrEqual(1);
    }
  });

  test("between the look's row and its message: the event comes again, and sends the message", async () => {
    await rooms.looks.note(event("kv-one"), 1);
    rooms.take(LOOK_QUEUE);
    await rooms.looks.note(event("kv-one"), 2);
    expect(rooms.take(LOOK_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
  });

  test("a look whose message was lost is sent again by the next watch; one that fails for good is given up", async () => {
    await rooms.looks.note(event("kv-one"), 1);
    rooms.take(LOOK_QUEUE);
    await later(SETTLED_MS);
    await rooms.looks.watch();
    expect(rooms.sent).toEqual([]);
    await later(10 * SECOND_MS);
    await rooms.looks.watch();
    expect(rooms.take(LOOK_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
    vi.spyOn(rooms.writer, "find").mockRejectedValueOnce(new Error("storage is away"));
    await expect(look("kv-one")).rejects.toThrow("storage is away");
    expect(await rows()).toMatchObject([{ failures: 1 }]);
    await rooms.looks.failed("kv-one");
    expect(await rows()).toEqual([]);
  });

  test("a look that fails wakes the one that waits behind it, never itself", async () => {
    for (const name of ["kv-one", "kv-three"]) await rooms.looks.note(event(name, "resource"), 1);
    rooms.take(LOOK_QUEUE);
    await later(SETTLED_MS);
    vi.spyOn(rooms.writer, "find").mockRejectedValue(new Error("storage is away"));
    await expect(look("kv-one")).rejects.toThrow("storage is away");
    expect(rooms.take(LOOK_QUEUE)).toMatchObject([{ message: { vaultName: "kv-three" } }]);
    await expect(look("kv-three")).rejects.toThrow("storage is away");
    expect(rooms.take(LOOK_QUEUE)).toEqual([]);
  });

  test("a renewal that fails is followed by the next", async () => {
    await rooms.looks.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    const renew = vi.spyOn(rooms.active, "renewLook").mockRejectedValueOnce(new Error("storage is away"));
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    rooms.cloud.whileLooking = async () => {
      for (const times of [1, 2]) {
        vi.advanceTimersByTime(20 * SECOND_MS);
        await vi.waitFor(() => expect(renew).toHaveBeenCalledTimes(times), { timeout: 150_000 });
      }
    };
    try {
      await look("kv-one");
    } finally {
      vi.useRealTimers();
    }
    expect([renew.mock.calls.length, await rows()]).toEqual([2, []]);
  });

  test("the watch of scans that fails holds up no look's, and each that fails is said", async () => {
    const watched: string[] = [];
    const watchScans = async () => {
      throw new Error("a scan's row is broken");
    };
    const timer = timers.find(({ name }) => name === "watchScans")!;
    const watch = async (looks: () => Promise<unknown>) =>
      await timer.handle({
        services: { watchScans, looks: { watch: looks }, startFirstScan: async () => {} },
      } as never);
    await expect(watch(async () => watched.push("looks"))).rejects.toThrow("a scan's row is broken");
    expect(watched).toEqual(["looks"]);
    const failing = watch(async () => {
      throw new Error("a look's row too");
    });
    await expect(failing).rejects.toThrow("a scan's row is broken; Error: a look's row too");
  });

  test("a look that can read nothing says so at the vault, and does not lengthen its back-off", async () => {
    rooms.cloud.keyVaults.open = () => {
      throw new CloudFailure("firewall", "The vault's firewall refuses.", { remedy: "Let it in." });
    };
    await rooms.looks.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    await look("kv-one");
    const after = (await rooms.writer.find("kv-one"))!;
    expect(after.failures.secret).toMatchObject({ code: "firewall" });
    expect([after.failedScans, after.retryAt, await rooms.ids({ vault: "kv-one" })]).toEqual([
      0,
      undefined,
      ["1 kv-one certificate", "1 kv-one secret"],
    ]);
    await rooms.scan("delta");
    expect((await rooms.writer.find("kv-one"))!.failedScans).toBe(1);
  });
});
