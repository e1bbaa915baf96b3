import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { timers } from "../../functions/discovery.ts";
import { RESCAN_QUEUE, RESCANS, RescanRows } from "../../shared/discovery/rescan-rows.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/vault-claim.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { caller, createScanFixture, event, HERE, type ScanFixture, THERE } from "./scan-fixture.ts";

const ACCOUNTS = Array.from({ length: 64 }, (_, index) => `looks${index}`);
let storage: MovedStorage;
let account = 0;
let fixture: ScanFixture;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

const connection = () => storage.azurite.connectionString(ACCOUNTS[account]!);
beforeEach(async () => {
  account++;
  fixture = createScanFixture(connection());
  await fixture.scan("full");
  // A vault that was just read is not re-scanned at once.
  await later(MINUTE_MS);
  fixture.sent.length = 0;
  fixture.cloud.secretListings = 0;
});

const SETTLED_MS = 6 * SECOND_MS;

/** Moves the time forward, for the fixture's clock too. */
async function later(milliseconds: number): Promise<void> {
  await storage.move(milliseconds);
  await fixture.clockCatchesUp();
}
const rows = async () => {
  const found = [];
  for await (const page of fixture.tables.pages(RescanRows, { partitionKey: RESCANS })) found.push(...page);
  return found;
};
/** Delivers the messages of re-scans that are due. */
async function deliverLooks(): Promise<void> {
  for (const message of fixture.take(RESCAN_QUEUE)) await fixture.hand(message);
}
const look = (name: string) => fixture.rescans.rescan(name, "request-2");
const changes = () => fixture.entries("vault.changed");
const newSecret = { name: "new", expires: 1_900_000_000 };
function addSecret(): void {
  fixture.cloud.listed = { ...fixture.cloud.listed, secrets: [{ name: "password" }, newSecret] };
}

describe("an event", () => {
  test("of a new secret adds it to the inventory some seconds later, without a scan", async () => {
    const scans = await fixture.discovery.list({ limit: 10, offset: 0, cursor: undefined });
    addSecret();
    await fixture.rescans.note(event("kv-one"), 1);
    expect(fixture.take(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" }, delaySeconds: 5 }]);
    await later(SETTLED_MS);
    await look("kv-one");
    expect((await fixture.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect((await fixture.ids({ vault: "kv-two", type: "secret" })).length).toBe(1);
    expect(await rows()).toEqual([]);
    expect(fixture.sent).toEqual([]);
    expect(await fixture.discovery.list({ limit: 10, offset: 0, cursor: undefined })).toEqual(scans);
    expect(await changes()).toMatchObject([
      {
        outcome: "success",
        actor: "system",
        requestId: "request-2",
        target: { type: "vault", id: expect.stringMatching(/kv-one$/) },
        details: { trigger: "event", counts: { added: 1, updated: 0, removed: 0 }, added: ["kv-one.secret.new"] },
      },
    ]);
    expect(fixture.changed.times).toBe(1);
    expect((await fixture.writer.find("kv-one"))?.lastEventAt).toBeDefined();
    expect((await fixture.writer.find("kv-two"))?.lastEventAt).toBeUndefined();
  });

  test("that is a duplicate, or arrives after its change was read, changes nothing and is not recorded", async () => {
    const before = await fixture.ids();
    for (let copy = 0; copy < 3; copy++) await fixture.rescans.note(event("KV-One"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect(await fixture.ids()).toEqual(before);
    expect(fixture.cloud.secretListings).toBe(1);
    expect([await changes(), fixture.changed.times, await rows()]).toEqual([[], 0, []]);
  });

  test.each([
    ["of an unknown vault", event("kv-unknown")],
    ["of the service's own vault", event("kv-service", "resource")],
    ["of another type", { hint: undefined }],
  ])("%s is ignored", async (_, foreign) => {
    await fixture.rescans.note(foreign, 1);
    expect([fixture.sent, await rows()]).toEqual([[], []]);
  });

  test("of a subscription out of scope is ignored, also if it leaves the scope before the re-scan", async () => {
    fixture.scope.watched = async (id) => id !== HERE;
    await fixture.rescans.note(event("kv-one"), 1);
    expect([fixture.sent, await rows()]).toEqual([[], []]);
    fixture.scope.watched = async () => true;
    await fixture.rescans.note(event("kv-one"), 1);
    await fixture.rescans.note(event("kv-two", "resource"), 1);
    fixture.cloud.vaults.set(HERE, []);
    fixture.scope.watched = async () => false;
    await later(SETTLED_MS);
    const asked = [vi.spyOn(fixture.cloud.resourceManager, "vault"), vi.spyOn(fixture.cloud.resourceManager, "vaults")];
    await look("kv-one");
    await look("kv-two");
    expect([fixture.cloud.secretListings, await rows(), asked.map((calls) => calls.mock.calls.length)]).toEqual([
      0,
      [],
      [0, 0],
    ]);
  });

  test("of a vault that was just read leads to a re-scan half a minute later", async () => {
    await fixture.rescans.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    await look("kv-one");
    fixture.take(RESCAN_QUEUE);
    await fixture.rescans.note(event("kv-one"), 1);
    const [message] = fixture.take(RESCAN_QUEUE);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await later(31 * SECOND_MS);
    await fixture.hand(message!);
    expect([fixture.cloud.secretListings, await rows()]).toEqual([2, []]);
  });

  test("during a re-scan leads to exactly one more, which reads the change", async () => {
    await fixture.rescans.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    fixture.cloud.whileListingSecrets = async () => {
      addSecret();
      for (let times = 0; times < 3; times++) await fixture.rescans.note(event("kv-one"), 1);
    };
    await look("kv-one");
    fixture.cloud.whileListingSecrets = async () => {};
    expect((await fixture.ids({ vault: "kv-one", type: "secret" })).length).toBe(1);
    expect(await rows()).toHaveLength(1);
    const [message] = fixture.take(RESCAN_QUEUE).filter(({ delaySeconds }) => delaySeconds > 5);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await look("kv-one"); // Too early: the message requeues itself.
    expect([fixture.cloud.secretListings, fixture.take(RESCAN_QUEUE).length]).toEqual([1, 1]);
    await later(31 * SECOND_MS);
    await fixture.hand(message!);
    expect((await fixture.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect([fixture.cloud.secretListings, await rows(), fixture.sent]).toEqual([2, [], []]);
  });
});

/** A campaign sends as many as a burst may have. */
const EVENTS = IS_CAMPAIGN ? 9999 : 720;

test(`${EVENTS} events in a burst for one vault cost at most three re-scans and little more than one read each`, async () => {
  let requests = 0;
  const counting = createScanFixture(
    connection(),
    (tables) =>
      new Proxy(tables, {
        get(target, name: keyof Tables) {
          const member = target[name] as (...args: unknown[]) => unknown;
          return (...args: unknown[]) => {
            // A read and a write are two requests.
            requests += name === "modify" ? 2 : 1;
            return member.apply(target, args);
          };
        },
      }),
  );
  counting.cloud.secretListings = 0;
  let sent = 0;
  const burst = async (count: number) => {
    for (let at = 0; at < count; at += 24, sent += 24) {
      await Promise.all(Array.from({ length: 24 }, () => counting.rescans.note(event("kv-one"), 1)));
    }
  };
  // A third of the events arrives before the re-scan, a third during it and a third after it. The secret arrives with the last
  // event.
  await burst(EVENTS / 3);
  await later(SETTLED_MS);
  await counting.clockCatchesUp();
  counting.cloud.whileListingSecrets = async () => {
    counting.cloud.whileListingSecrets = async () => {};
    await burst(EVENTS / 3);
  };
  await counting.rescans.rescan("kv-one", "request");
  await burst(EVENTS / 3);
  counting.cloud.listed = { ...counting.cloud.listed, secrets: [{ name: "password" }, newSecret] };
  await counting.rescans.note(event("kv-one"), 1);
  await later(31 * SECOND_MS);
  await counting.clockCatchesUp();
  for (const message of counting.take(RESCAN_QUEUE)) await counting.hand(message);
  expect(sent).toBeGreaterThanOrEqual(EVENTS);
  expect((await counting.ids({ vault: "kv-one", type: "secret" })).length).toBe(2);
  expect(counting.cloud.secretListings).toBeGreaterThan(1);
  expect(counting.cloud.secretListings).toBeLessThanOrEqual(3);
  expect(await rows()).toEqual([]);
  const perEvent = requests / sent;
  console.log(`${sent} events: ${counting.cloud.secretListings} looks, ${perEvent.toFixed(3)} table requests an event`);
  // The cost of the re-scans and of the events that arrive with the first one does not grow with the burst.
  expect(perEvent).toBeLessThan(1 + 400 / EVENTS);
});

describe("an event of the resource manager", () => {
  test("adds a new vault of a subscription in scope, with the resource manager's description", async () => {
    fixture.cloud.vaults.get(HERE)!.push("kv-new");
    await fixture.rescans.note(event("kv-new", "resource"), 1);
    await later(SETTLED_MS);
    await look("kv-new");
    expect(await fixture.ids({ vault: "kv-new" })).toHaveLength(2);
    expect((await fixture.writer.find("kv-new"))?.lastEventAt).toBeUndefined();
    expect(await changes()).toMatchObject([{ details: { vault: "added", counts: { added: 2 } } }]);
  });

  test("of a vault that does not exist leaves nothing", async () => {
    await fixture.rescans.note(event("kv-forged", "resource"), 1);
    await later(SETTLED_MS);
    await look("kv-forged");
    expect([await fixture.writer.find("kv-forged"), await rows(), await changes()]).toEqual([undefined, [], []]);
  });

  test("removes a vault only after a complete listing without it", async () => {
    fixture.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    await fixture.rescans.note(event("kv-one", "resource"), 1);
    await later(SETTLED_MS);
    const { vaults } = fixture.cloud.resourceManager;
    fixture.cloud.resourceManager.vaults = async function* () {
      yield { vaults: [], unreadable: [] };
      throw new Error("the second page does not come");
    };
    await expect(look("kv-one")).rejects.toThrow("the second page");
    expect(await fixture.ids({ vault: "kv-one" })).toHaveLength(2);
    fixture.cloud.resourceManager.vaults = vaults;
    await look("kv-one");
    expect(await fixture.ids({ vault: "kv-one" })).toEqual([]);
    expect(await fixture.ids({ vault: "kv-two" })).toHaveLength(2);
    expect(await changes()).toMatchObject([{ details: { vault: "removed", counts: { removed: 2 } } }]);
  });

  test("with the wrong resource group removes nothing, because the listing still has the vault", async () => {
    const forged = event("kv-one", "resource", THERE);
    await fixture.rescans.note(forged, 1);
    await later(SETTLED_MS);
    await look("kv-one");
    expect(await fixture.ids({ vault: "kv-one" })).toHaveLength(2);
    expect(await changes()).toEqual([]);
  });

  test("moves a vault that moved to another subscription", async () => {
    fixture.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    fixture.cloud.vaults.set(THERE, ["kv-one"]);
    // Both places send an event: the vault was deleted in the first and written in the second.
    await fixture.rescans.note(event("kv-one", "resource", HERE), 1);
    await fixture.rescans.note(event("kv-one", "resource", THERE), 1);
    await later(SETTLED_MS);
    fixture.cloud.whileListingSecrets = async () => {
      for (const id of [HERE, THERE]) {
        await expect(fixture.active.rejectWhileScanned(id)).rejects.toMatchObject({ code: "conflict" });
      }
    };
    await look("kv-one");
    expect(await fixture.ids({ vault: "kv-one" })).toEqual(["2 kv-one certificate", "2 kv-one secret"]);
    expect((await fixture.ids()).filter((id) => id.includes("kv-one"))).toHaveLength(2);
    expect(await rows()).toEqual([]);
  });
});

describe("a scan and a re-scan", () => {
  test("of the same vault: the re-scan waits for the scan's write, and both end", async () => {
    const { readForUpdate } = fixture.writer;
    await fixture.rescans.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    addSecret();
    const busy = vi.spyOn(fixture.writer, "readForUpdate").mockImplementation(async (name) => {
      throw new VaultBusy(name, 3 * SECOND_MS);
    });
    fixture.take(RESCAN_QUEUE);
    await look("kv-one");
    expect(fixture.take(RESCAN_QUEUE)).toMatchObject([{ delaySeconds: 3 }]);
    busy.mockImplementation(readForUpdate);
    await later(4 * SECOND_MS);
    // The re-scan reads the stored vault, then a scan writes it, then the re-scan tries to write.
    fixture.cloud.whileListingSecrets = async () => {
      fixture.cloud.whileListingSecrets = async () => {};
      expect((await fixture.scan("force")).status).toBe("completed");
    };
    await look("kv-one");
    expect(await rows()).toHaveLength(1);
    await later(3 * SECOND_MS);
    await look("kv-one");
    expect([await rows(), (await fixture.ids({ vault: "kv-one" })).length]).toEqual([[], 3]);
  });

  test("planned before it: the re-scan's result is kept, and a scan planned later replaces it", async () => {
    fixture.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    const scanId = await fixture.planned("full");
    const messages = fixture.take(QUEUES.vaults);
    // Then one vault is deleted, one is changed and one is restored.
    fixture.cloud.vaults.set(HERE, ["kv-two", "kv-three"]);
    fixture.cloud.described["kv-two"] = { publicNetworkAccess: "Disabled" };
    for (const name of ["kv-one", "kv-two", "kv-three"]) await fixture.rescans.note(event(name, "resource"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    const there = (name: string) => [`1 ${name} certificate`, `1 ${name} secret`];
    expect(await fixture.ids()).toEqual([...there("kv-three"), ...there("kv-two")]);
    for (const message of messages) await fixture.hand(message);
    await fixture.deliver();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "completed",
      vaultsDone: 3,
      tally: { added: 0, updated: 0, removed: 0 },
    });
    expect(await fixture.ids()).toEqual([...there("kv-three"), ...there("kv-two")]);
    expect((await fixture.writer.find("kv-two"))?.publicNetworkAccess).toBe("Disabled");

    fixture.cloud.vaults.set(HERE, ["kv-one", "kv-two"]);
    fixture.cloud.described = {};
    await later(MINUTE_MS);
    await fixture.scan("delta");
    expect(await fixture.ids()).toEqual([...there("kv-one"), ...there("kv-two")]);
    expect((await fixture.writer.find("kv-two"))?.publicNetworkAccess).toBe("Enabled");
  });

  test("share the workers: a re-scan waits while a scan has all workers, and one of them runs it", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned("delta");
    await fixture.rescans.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    fixture.take(RESCAN_QUEUE);
    await look("kv-three");
    // However often the re-scan is woken meanwhile, no message stays.
    await later(2 * MINUTE_MS);
    await fixture.rescans.watch();
    await deliverLooks();
    expect([fixture.cloud.secretListings, fixture.take(RESCAN_QUEUE)]).toEqual([0, []]);
    await fixture.rescans.between("request-3");
    expect([fixture.cloud.secretListings, await rows()]).toEqual([1, []]);
    await fixture.deliver();
    for (const message of fixture.take(QUEUES.vaults)) await fixture.hand(message);
    expect((await fixture.discovery.progress(scanId)).vaultsTotal).toBe(3);
  });

  test("a re-scan starts as soon as a worker of the scan has no vault left, however long the other workers take", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    const scanId = await fixture.planned("delta");
    const [long, short] = fixture.take(QUEUES.vaults);
    let through = () => {};
    const untilThrough = new Promise<void>((resolve) => {
      through = resolve;
    });
    const reached = new Promise<void>((resolve) => {
      fixture.cloud.whileListingSecrets = async () => {
        resolve();
        await untilThrough;
      };
    });
    const working = fixture.hand(long!);
    await reached;
    // One re-scan is denied a worker during the last waiting vault, while both workers are busy.
    fixture.cloud.vaults.get(HERE)!.push("kv-new");
    fixture.cloud.whileListingSecrets = async () => {
      fixture.cloud.whileListingSecrets = async () => {
        fixture.cloud.whileListingSecrets = async () => {};
        await fixture.rescans.note(event("kv-new", "resource"), 1);
        await later(SETTLED_MS);
        await deliverLooks();
        expect([await rows(), fixture.take(RESCAN_QUEUE)]).toMatchObject([[{ vaultName: "kv-new" }], []]);
      };
    };
    await fixture.hand(short!);
    await deliverLooks();
    expect([await rows(), fixture.cloud.secretListings]).toEqual([[], 4]);
    // Another event arrives while only the long vault is left.
    await later(MINUTE_MS);
    await fixture.rescans.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect([await rows(), fixture.cloud.secretListings]).toEqual([[], 5]);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
    through();
    await working;
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("the end of a scan wakes a re-scan that waited for it, whatever the scan's status", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.planned("delta");
    await fixture.rescans.note(event("kv-three"), 1);
    await later(SETTLED_MS);
    await deliverLooks();
    expect([fixture.cloud.secretListings, (await rows()).length]).toEqual([0, 1]);
    await fixture.run.finish(scanId, true);
    await deliverLooks();
    expect([fixture.cloud.secretListings, await rows()]).toEqual([1, []]);
  });

  test("a scan gets only the workers that re-scans leave, and a crashed re-scan's worker is free after a minute", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    expect(await fixture.active.enterRescan({ worker: "one", subscriptionId: HERE }, 2)).toBe(true);
    expect(await fixture.active.enterRescan({ worker: "two", subscriptionId: HERE }, 2)).toBe(true);
    expect(await fixture.active.enterRescan({ worker: "three", subscriptionId: HERE }, 2)).toBe(false);
    await fixture.active.leaveRescan("two");
    const { scanId } = await fixture.discovery.start({ mode: "delta" }, caller);
    expect(await fixture.active.takeWorkers(scanId, 5, 2)).toBe(1);
    await expect(fixture.active.rejectWhileScanned(HERE)).rejects.toMatchObject({ code: "conflict" });
    await later(61 * SECOND_MS);
    expect(await fixture.active.takeWorkers(scanId, 5, 2)).toBe(2);
    await expect(fixture.active.rejectWhileScanned(HERE)).rejects.toMatchObject({ code: "scanRunning" });
  });

  test("a re-scan that renews its lease keeps its worker for another minute", async () => {
    await fixture.active.enterRescan({ worker: "one", subscriptionId: HERE }, 1);
    const another = () => fixture.active.enterRescan({ worker: "two", subscriptionId: HERE }, 1);
    await later(40 * SECOND_MS);
    await fixture.active.renewRescan("one");
    await later(40 * SECOND_MS);
    expect(await another()).toBe(false);
    await later(30 * SECOND_MS);
    expect(await another()).toBe(true);
  });

  test("a row of the previous version, without re-scans, is read", async () => {
    await fixture.tables.remove(ActiveScans, ACTIVE, ACTIVE);
    expect(await fixture.active.enterRescan({ worker: "one", subscriptionId: HERE }, 1)).toBe(true);
  });
});

describe("after a crash", () => {
  test("at any write between the event and the end of the re-scan, the change is found and recorded once, and no row is left", async () => {
    const counted = (method: string) =>
      ["insert", "replace", "modify", "remove", "transaction", "put"].includes(method);
    const inLife = async (steps: Steps) => {
      const mortals = createScanFixture(connection(), (tables) => crashable(tables, steps, counted));
      mortals.cloud.listed = { ...mortals.cloud.listed, secrets: [{ name: "password" }, newSecret] };
      return mortals;
    };
    const steps: Steps = { taken: 0 };
    const whole = await inLife(steps);
    await whole.rescans.note(event("kv-two"), 1);
    await later(SETTLED_MS);
    await whole.clockCatchesUp();
    await whole.rescans.rescan("kv-two", "request");
    const writes = steps.taken;
    expect(writes).toBeGreaterThan(4);
    const all = Array.from({ length: writes }, (_, index) => index + 1);
    const chosen = IS_CAMPAIGN ? all : all.filter((at) => at % 2 === 1);
    for (const [round, crashAt] of chosen.entries()) {
      account++;
      fixture = createScanFixture(connection());
      await fixture.scan("full");
      await later(MINUTE_MS);
      fixture.sent.length = 0;
      const crashing = await inLife({ taken: 0, crashAt, when: round % 2 === 0 ? "before" : "after" });
      const work = async () => {
        await crashing.rescans.note(event("kv-two"), 1);
        await later(SETTLED_MS);
        await crashing.clockCatchesUp();
        await crashing.rescans.rescan("kv-two", "request");
      };
      await expect(work()).rejects.toThrow(SimulatedCrash);
      // The platform redelivers the event's message to another process, and the watch does the rest.
      addSecret();
      if (crashAt === 1) await fixture.rescans.note(event("kv-two"), 2);
      for (let minute = 0; minute < 4; minute++) {
        await later(MINUTE_MS);
        await fixture.rescans.watch();
        await deliverLooks();
      }
      expect((await fixture.ids({ vault: "kv-two", type: "secret" })).length, `death at ${crashAt}`).toBe(2);
      expect(await rows(), `death at ${crashAt}`).toEqual([]);
      expect((await changes()).length, `death at ${crashAt}`).toBeGreaterThanOrEqual(1);
    }
  });

  test("between the re-scan's row and its message, the event is redelivered and sends the message", async () => {
    await fixture.rescans.note(event("kv-one"), 1);
    fixture.take(RESCAN_QUEUE);
    await fixture.rescans.note(event("kv-one"), 2);
    expect(fixture.take(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
  });

  test("the next watch resends a re-scan's lost message, and a re-scan that fails five times is given up", async () => {
    await fixture.rescans.note(event("kv-one"), 1);
    fixture.take(RESCAN_QUEUE);
    await later(SETTLED_MS);
    await fixture.rescans.watch();
    expect(fixture.sent).toEqual([]);
    await later(10 * SECOND_MS);
    await fixture.rescans.watch();
    expect(fixture.take(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
    vi.spyOn(fixture.writer, "find").mockRejectedValueOnce(new Error("storage is away"));
    await expect(look("kv-one")).rejects.toThrow("storage is away");
    expect(await rows()).toMatchObject([{ failures: 1 }]);
    await fixture.rescans.failed("kv-one");
    expect(await rows()).toEqual([]);
  });

  test("a re-scan that fails wakes the one that waits behind it, never itself", async () => {
    for (const name of ["kv-one", "kv-three"]) await fixture.rescans.note(event(name, "resource"), 1);
    fixture.take(RESCAN_QUEUE);
    await later(SETTLED_MS);
    vi.spyOn(fixture.writer, "find").mockRejectedValue(new Error("storage is away"));
    await expect(look("kv-one")).rejects.toThrow("storage is away");
    expect(fixture.take(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-three" } }]);
    await expect(look("kv-three")).rejects.toThrow("storage is away");
    expect(fixture.take(RESCAN_QUEUE)).toEqual([]);
  });

  test("a failed renewal is followed by the next one", async () => {
    await fixture.rescans.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    const renew = vi.spyOn(fixture.active, "renewRescan").mockRejectedValueOnce(new Error("storage is away"));
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    fixture.cloud.whileListingSecrets = async () => {
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

  test("a failing watch of scans does not stop the watch of re-scans, and each failure is reported", async () => {
    const watched: string[] = [];
    const watchScans = async () => {
      throw new Error("a scan's row is broken");
    };
    const timer = timers.find(({ name }) => name === "watchScans")!;
    const watch = async (rescans: () => Promise<unknown>) =>
      await timer.handle({
        services: { watchScans, rescans: { watch: rescans }, startFirstScan: async () => {} },
      } as never);
    await expect(watch(async () => watched.push("rescans"))).rejects.toThrow("a scan's row is broken");
    expect(watched).toEqual(["rescans"]);
    const failing = watch(async () => {
      throw new Error("a re-scan's row too");
    });
    await expect(failing).rejects.toThrow("a scan's row is broken; Error: a re-scan's row too");
  });

  test("a re-scan that can't read anything records the failure at the vault and does not lengthen its back-off", async () => {
    fixture.cloud.keyVaults.open = () => {
      throw new CloudFailure("firewall", "The vault's firewall refuses.", { remedy: "Let it in." });
    };
    await fixture.rescans.note(event("kv-one"), 1);
    await later(SETTLED_MS);
    await look("kv-one");
    const after = (await fixture.writer.find("kv-one"))!;
    expect(after.failures.secret).toMatchObject({ code: "firewall" });
    expect([after.failedScans, after.retryAt, await fixture.ids({ vault: "kv-one" })]).toEqual([
      0,
      undefined,
      ["1 kv-one certificate", "1 kv-one secret"],
    ]);
    await fixture.scan("delta");
    expect((await fixture.writer.find("kv-one"))!.failedScans).toBe(1);
  });
});
