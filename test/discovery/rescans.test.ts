/*
 * Re-scans: an event of a vault leads to a read of that vault alone, some seconds later. A row per vault, in `RescanRows`,
 * remembers that a re-scan is due; its message is delivered through a queue. Re-scans and scans share a limit of workers. The
 * watch is a timer that sends lost messages again. The 1 in `requestForEvent(…, 1)` is an event's first delivery.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { timers } from "../../functions/discovery.ts";
import { RESCAN_QUEUE, RESCANS, RescanRows } from "../../shared/discovery/rescan-rows.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../../shared/discovery/scan.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { VaultBusy } from "../../shared/inventory/vault-claim.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { findLostVault } from "../../shared/reconciliation/lost-vault.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import {
  caller,
  createScanFixture,
  event,
  FIRST_SUBSCRIPTION,
  resource,
  type ScanFixture,
  SECOND_SUBSCRIPTION,
} from "./scan-fixture.ts";

/**
 * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
 * Several fixtures on one account act like several processes of the service.
 */
const ACCOUNTS = Array.from({ length: 64 }, (_, index) => `looks${index}`);
let storage: MovedStorage;
let accountIndex = 0;
let fixture: ScanFixture;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

const connection = () => storage.azurite.connectionString(ACCOUNTS[accountIndex]!);
beforeEach(async () => {
  accountIndex++;
  fixture = createScanFixture(connection());
  await fixture.scan("full");
  // A vault is re-scanned 30 seconds after its last read at the earliest.
  await moveTime(MINUTE_MS);
  fixture.sentMessages.length = 0;
  fixture.cloud.secretListings = 0;
});

/** After this time, a re-scan may start: it is delayed by five seconds, because further events usually follow. */
const EVENT_DELAY_OVER_MS = 6 * SECOND_MS;

/** Moves the storage clock forward, and the fixture's clock with it. */
async function moveTime(milliseconds: number): Promise<void> {
  await storage.move(milliseconds);
  await fixture.syncClock();
}
const readRescanRows = async () => {
  const rescans = [];
  for await (const page of fixture.tables.pages(RescanRows, { partitionKey: RESCANS })) rescans.push(...page);
  return rescans;
};
/** Handles the sent messages of re-scans, also delayed ones. */
async function deliverRescans(): Promise<void> {
  for (const message of fixture.takeMessages(RESCAN_QUEUE)) await fixture.handleMessage(message);
}
const rescan = (name: string) => fixture.rescans.rescan(name, "request-2");
const readChangeEntries = () => fixture.auditEntriesOf("vault.changed");
const newSecret = { name: "new", expires: 1_900_000_000 };
function addSecret(): void {
  fixture.cloud.listedEntries = { ...fixture.cloud.listedEntries, secrets: [{ name: "password" }, newSecret] };
}

describe("an event", () => {
  test("of a new secret adds it to the inventory without a scan", async () => {
    const scans = await fixture.discovery.list({ limit: 10, offset: 0, cursor: undefined });
    addSecret();
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    expect(fixture.takeMessages(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" }, delaySeconds: 5 }]);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-one");
    expect((await fixture.assetLines({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect((await fixture.assetLines({ vault: "kv-two", type: "secret" })).length).toBe(1);
    expect(await readRescanRows()).toEqual([]);
    expect(fixture.sentMessages).toEqual([]);
    expect(await fixture.discovery.list({ limit: 10, offset: 0, cursor: undefined })).toEqual(scans);
    expect(await readChangeEntries()).toMatchObject([
      {
        outcome: "success",
        actor: "system",
        requestId: "request-2",
        target: { type: "vault", id: expect.stringMatching(/kv-one$/) },
        details: { trigger: "event", counts: { added: 1, updated: 0, removed: 0 }, added: ["kv-one.secret.new"] },
      },
    ]);
    expect(fixture.inventoryChanges.times).toBe(1);
    expect((await fixture.writer.find("kv-one"))?.lastEventAt).toBeDefined();
    expect((await fixture.writer.find("kv-two"))?.lastEventAt).toBeUndefined();
  });

  test("whose change is already stored is not recorded", async () => {
    const before = await fixture.assetLines();
    for (let copy = 0; copy < 3; copy++) await fixture.rescans.requestForEvent(event("KV-One"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await deliverRescans();
    expect(await fixture.assetLines()).toEqual(before);
    expect(fixture.cloud.secretListings).toBe(1);
    expect([await readChangeEntries(), fixture.inventoryChanges.times, await readRescanRows()]).toEqual([[], 0, []]);
  });

  test.each([
    ["of an unknown vault", event("kv-unknown")],
    ["of the service's own vault", event("kv-service", "resource")],
    ["of another type", { hint: undefined }],
  ])("%s is ignored", async (_, foreign) => {
    await fixture.rescans.requestForEvent(foreign, 1);
    expect([fixture.sentMessages, await readRescanRows()]).toEqual([[], []]);
  });

  test("of a subscription out of scope is ignored", async () => {
    fixture.scope.watched = async (id) => id !== FIRST_SUBSCRIPTION;
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    expect([fixture.sentMessages, await readRescanRows()]).toEqual([[], []]);
    fixture.scope.watched = async () => true;
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await fixture.rescans.requestForEvent(event("kv-two", "resource"), 1);
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, []);
    fixture.scope.watched = async () => false;
    await moveTime(EVENT_DELAY_OVER_MS);
    const cloudReads = [
      vi.spyOn(fixture.cloud.resourceManager, "vault"),
      vi.spyOn(fixture.cloud.resourceManager, "vaults"),
    ];
    await rescan("kv-one");
    await rescan("kv-two");
    expect([
      fixture.cloud.secretListings,
      await readRescanRows(),
      cloudReads.map((calls) => calls.mock.calls.length),
    ]).toEqual([0, [], [0, 0]]);
  });

  test("of a vault that was just read leads to a re-scan 30 seconds later", async () => {
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-one");
    fixture.takeMessages(RESCAN_QUEUE);
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    const [message] = fixture.takeMessages(RESCAN_QUEUE);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await moveTime(31 * SECOND_MS);
    await fixture.handleMessage(message!);
    expect([fixture.cloud.secretListings, await readRescanRows()]).toEqual([2, []]);
  });

  test("during a re-scan leads to exactly one more re-scan", async () => {
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    fixture.cloud.whileListingSecrets = async () => {
      addSecret();
      for (let times = 0; times < 3; times++) await fixture.rescans.requestForEvent(event("kv-one"), 1);
    };
    await rescan("kv-one");
    fixture.cloud.whileListingSecrets = async () => {};
    expect((await fixture.assetLines({ vault: "kv-one", type: "secret" })).length).toBe(1);
    expect(await readRescanRows()).toHaveLength(1);
    const [message] = fixture.takeMessages(RESCAN_QUEUE).filter(({ delaySeconds }) => delaySeconds > 5);
    expect(message!.delaySeconds).toBeGreaterThan(20);
    expect(message!.delaySeconds).toBeLessThanOrEqual(30);
    await rescan("kv-one"); // Too early, so its handler sends the message again with a delay.
    expect([fixture.cloud.secretListings, fixture.takeMessages(RESCAN_QUEUE).length]).toEqual([1, 1]);
    await moveTime(31 * SECOND_MS);
    await fixture.handleMessage(message!);
    expect((await fixture.assetLines({ vault: "kv-one", type: "secret" })).length).toBe(2);
    expect([fixture.cloud.secretListings, await readRescanRows(), fixture.sentMessages]).toEqual([2, [], []]);
  });
});

/** Number of events. A campaign sends a very large burst. */
const EVENT_COUNT = IS_CAMPAIGN ? 9999 : 720;

test(`a burst of ${EVENT_COUNT} events for one vault leads to at most three re-scans`, async () => {
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
  let eventsSent = 0;
  const burst = async (count: number) => {
    for (let start = 0; start < count; start += 24, eventsSent += 24) {
      await Promise.all(Array.from({ length: 24 }, () => counting.rescans.requestForEvent(event("kv-one"), 1)));
    }
  };
  // A third of the events arrives before the re-scan, a third during it and a third after it. The new secret appears before the
  // last event.
  await burst(EVENT_COUNT / 3);
  await moveTime(EVENT_DELAY_OVER_MS);
  await counting.syncClock();
  counting.cloud.whileListingSecrets = async () => {
    counting.cloud.whileListingSecrets = async () => {};
    await burst(EVENT_COUNT / 3);
  };
  await counting.rescans.rescan("kv-one", "request");
  await burst(EVENT_COUNT / 3);
  counting.cloud.listedEntries = { ...counting.cloud.listedEntries, secrets: [{ name: "password" }, newSecret] };
  await counting.rescans.requestForEvent(event("kv-one"), 1);
  await moveTime(31 * SECOND_MS);
  await counting.syncClock();
  for (const message of counting.takeMessages(RESCAN_QUEUE)) await counting.handleMessage(message);
  expect(eventsSent).toBeGreaterThanOrEqual(EVENT_COUNT);
  expect((await counting.assetLines({ vault: "kv-one", type: "secret" })).length).toBe(2);
  expect(counting.cloud.secretListings).toBeGreaterThan(1);
  expect(counting.cloud.secretListings).toBeLessThanOrEqual(3);
  expect(await readRescanRows()).toEqual([]);
  const perEvent = requests / eventsSent;
  console.log(
    `${eventsSent} events: ${counting.cloud.secretListings} re-scans, ${perEvent.toFixed(3)} table requests an event`,
  );
  // An event costs one request. The re-scans cost less than 400 requests in total, however many events there are.
  expect(perEvent).toBeLessThan(1 + 400 / EVENT_COUNT);
});

describe("an event of the resource manager", () => {
  test("adds a new vault of a subscription in scope", async () => {
    fixture.cloud.vaults.get(FIRST_SUBSCRIPTION)!.push("kv-new");
    await fixture.rescans.requestForEvent(event("kv-new", "resource"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-new");
    expect(await fixture.assetLines({ vault: "kv-new" })).toHaveLength(2);
    expect((await fixture.writer.find("kv-new"))?.lastEventAt).toBeUndefined();
    expect(await readChangeEntries()).toMatchObject([{ details: { vault: "added", counts: { added: 2 } } }]);
  });

  test("of a vault that does not exist stores nothing", async () => {
    await fixture.rescans.requestForEvent(event("kv-forged", "resource"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-forged");
    expect([await fixture.writer.find("kv-forged"), await readRescanRows(), await readChangeEntries()]).toEqual([
      undefined,
      [],
      [],
    ]);
  });

  test("removes a vault only after a complete listing without it", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-two", "kv-three"]);
    await fixture.rescans.requestForEvent(event("kv-one", "resource"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    const { vaults } = fixture.cloud.resourceManager;
    fixture.cloud.resourceManager.vaults = async function* () {
      yield { vaults: [], unreadable: [] };
      throw new Error("the second page does not come");
    };
    await expect(rescan("kv-one")).rejects.toThrow("the second page");
    expect(await fixture.assetLines({ vault: "kv-one" })).toHaveLength(2);
    fixture.cloud.resourceManager.vaults = vaults;
    await rescan("kv-one");
    expect(await fixture.assetLines({ vault: "kv-one" })).toEqual([]);
    expect(await fixture.assetLines({ vault: "kv-two" })).toHaveLength(2);
    expect(await readChangeEntries()).toMatchObject([{ details: { vault: "removed", counts: { removed: 2 } } }]);
  });

  test("with a wrong subscription removes nothing, because the listing still has the vault", async () => {
    const forged = event("kv-one", "resource", SECOND_SUBSCRIPTION);
    await fixture.rescans.requestForEvent(forged, 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-one");
    expect(await fixture.assetLines({ vault: "kv-one" })).toHaveLength(2);
    expect(await readChangeEntries()).toEqual([]);
  });

  test("moves a vault that moved to another subscription", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-two", "kv-three"]);
    fixture.cloud.vaults.set(SECOND_SUBSCRIPTION, ["kv-one"]);
    // Both subscriptions send an event: the vault was deleted in the first and created in the second.
    await fixture.rescans.requestForEvent(event("kv-one", "resource", FIRST_SUBSCRIPTION), 1);
    await fixture.rescans.requestForEvent(event("kv-one", "resource", SECOND_SUBSCRIPTION), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    fixture.cloud.whileListingSecrets = async () => {
      for (const id of [FIRST_SUBSCRIPTION, SECOND_SUBSCRIPTION]) {
        await expect(fixture.active.rejectWhileScanned(id)).rejects.toMatchObject({ code: "conflict" });
      }
    };
    await rescan("kv-one");
    expect(await fixture.assetLines({ vault: "kv-one" })).toEqual(["2 kv-one certificate", "2 kv-one secret"]);
    expect((await fixture.assetLines()).filter((id) => id.includes("kv-one"))).toHaveLength(2);
    expect(await readRescanRows()).toEqual([]);
  });
});

describe("a scan and a re-scan", () => {
  test("of the same vault both end, and the re-scan waits for the scan's write", async () => {
    const { readForUpdate } = fixture.writer;
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    addSecret();
    const busy = vi.spyOn(fixture.writer, "readForUpdate").mockImplementation(async (name) => {
      throw new VaultBusy(name, 3 * SECOND_MS);
    });
    fixture.takeMessages(RESCAN_QUEUE);
    await rescan("kv-one");
    expect(fixture.takeMessages(RESCAN_QUEUE)).toMatchObject([{ delaySeconds: 3 }]);
    busy.mockImplementation(readForUpdate);
    await moveTime(4 * SECOND_MS);
    // The re-scan reads the stored vault, then a scan writes it, then the re-scan tries to write.
    fixture.cloud.whileListingSecrets = async () => {
      fixture.cloud.whileListingSecrets = async () => {};
      expect((await fixture.scan("force")).status).toBe("completed");
    };
    await rescan("kv-one");
    expect(await readRescanRows()).toHaveLength(1);
    await moveTime(3 * SECOND_MS);
    await rescan("kv-one");
    expect([await readRescanRows(), (await fixture.assetLines({ vault: "kv-one" })).length]).toEqual([[], 3]);
  });

  test("leave the re-scan's result if the scan was planned before it", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one", "kv-two"]);
    const scanId = await fixture.startAndPlan("full");
    const messages = fixture.takeMessages(QUEUES.vaults);
    // After the plan, one vault is deleted, one is changed and one is created.
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-two", "kv-three"]);
    fixture.cloud.descriptionChanges["kv-two"] = { publicNetworkAccess: "Disabled" };
    for (const name of ["kv-one", "kv-two", "kv-three"])
      await fixture.rescans.requestForEvent(event(name, "resource"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await deliverRescans();
    const linesOfVault = (name: string) => [`1 ${name} certificate`, `1 ${name} secret`];
    expect(await fixture.assetLines()).toEqual([...linesOfVault("kv-three"), ...linesOfVault("kv-two")]);
    for (const message of messages) await fixture.handleMessage(message);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({
      status: "completed",
      vaultsDone: 3,
      tally: { added: 0, updated: 0, removed: 0 },
    });
    expect(await fixture.assetLines()).toEqual([...linesOfVault("kv-three"), ...linesOfVault("kv-two")]);
    expect((await fixture.writer.find("kv-two"))?.publicNetworkAccess).toBe("Disabled");

    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one", "kv-two"]);
    fixture.cloud.descriptionChanges = {};
    await moveTime(MINUTE_MS);
    await fixture.scan("delta");
    expect(await fixture.assetLines()).toEqual([...linesOfVault("kv-one"), ...linesOfVault("kv-two")]);
    expect((await fixture.writer.find("kv-two"))?.publicNetworkAccess).toBe("Enabled");
  });

  test("share the workers: a re-scan waits while a scan uses all of them", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan("delta");
    await fixture.rescans.requestForEvent(event("kv-three"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    fixture.takeMessages(RESCAN_QUEUE);
    await rescan("kv-three");
    // Messages that arrive meanwhile end without effect.
    await moveTime(2 * MINUTE_MS);
    await fixture.rescans.watch();
    await deliverRescans();
    expect([fixture.cloud.secretListings, fixture.takeMessages(RESCAN_QUEUE)]).toEqual([0, []]);
    await fixture.rescans.runWaitingRescan("request-3");
    expect([fixture.cloud.secretListings, await readRescanRows()]).toEqual([1, []]);
    await fixture.deliverMessages();
    for (const message of fixture.takeMessages(QUEUES.vaults)) await fixture.handleMessage(message);
    expect((await fixture.discovery.progress(scanId)).vaultsTotal).toBe(3);
  });

  test("share the workers: a re-scan starts when one worker of the scan has no vault left", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    const scanId = await fixture.startAndPlan("delta");
    const [long, short] = fixture.takeMessages(QUEUES.vaults);
    let finishLongVault = () => {};
    const untilLongVaultFinishes = new Promise<void>((resolve) => {
      finishLongVault = resolve;
    });
    const reached = new Promise<void>((resolve) => {
      fixture.cloud.whileListingSecrets = async () => {
        resolve();
        await untilLongVaultFinishes;
      };
    });
    const working = fixture.handleMessage(long!);
    await reached;
    // The second worker reads two vaults, one after the other. An event arrives while it reads the second one. The re-scan gets no
    // worker, because both workers of the scan are busy.
    fixture.cloud.vaults.get(FIRST_SUBSCRIPTION)!.push("kv-new");
    fixture.cloud.whileListingSecrets = async () => {
      fixture.cloud.whileListingSecrets = async () => {
        fixture.cloud.whileListingSecrets = async () => {};
        await fixture.rescans.requestForEvent(event("kv-new", "resource"), 1);
        await moveTime(EVENT_DELAY_OVER_MS);
        await deliverRescans();
        expect([await readRescanRows(), fixture.takeMessages(RESCAN_QUEUE)]).toMatchObject([
          [{ vaultName: "kv-new" }],
          [],
        ]);
      };
    };
    await fixture.handleMessage(short!);
    await deliverRescans();
    // Listed so far: the three vaults of the scan, and kv-new by the re-scan.
    expect([await readRescanRows(), fixture.cloud.secretListings]).toEqual([[], 4]);
    // Another event arrives while one worker still reads the long vault.
    await moveTime(MINUTE_MS);
    await fixture.rescans.requestForEvent(event("kv-three"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await deliverRescans();
    expect([await readRescanRows(), fixture.cloud.secretListings]).toEqual([[], 5]);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 2 });
    finishLongVault();
    await working;
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("share the workers: the end of a failed scan starts a waiting re-scan", async () => {
    fixture.settings.discoveryMaxWorkers = 1;
    const scanId = await fixture.startAndPlan("delta");
    await fixture.rescans.requestForEvent(event("kv-three"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await deliverRescans();
    expect([fixture.cloud.secretListings, (await readRescanRows()).length]).toEqual([0, 1]);
    await fixture.run.finish(scanId, true);
    await deliverRescans();
    expect([fixture.cloud.secretListings, await readRescanRows()]).toEqual([1, []]);
  });

  test("share the workers: a crashed re-scan's worker is free after a minute", async () => {
    fixture.settings.discoveryMaxWorkers = 2;
    // The last argument of `enterRescan` and `takeWorkers` is the maximum number of workers. The scan asks for five.
    expect(await fixture.active.enterRescan({ worker: "one", subscriptionId: FIRST_SUBSCRIPTION }, 2)).toBe(true);
    expect(await fixture.active.enterRescan({ worker: "two", subscriptionId: FIRST_SUBSCRIPTION }, 2)).toBe(true);
    expect(await fixture.active.enterRescan({ worker: "three", subscriptionId: FIRST_SUBSCRIPTION }, 2)).toBe(false);
    await fixture.active.leaveRescan("two");
    const { scanId } = await fixture.discovery.start({ mode: "delta" }, caller);
    expect(await fixture.active.takeWorkers(scanId, 5, 2)).toBe(1);
    await expect(fixture.active.rejectWhileScanned(FIRST_SUBSCRIPTION)).rejects.toMatchObject({ code: "conflict" });
    await moveTime(61 * SECOND_MS);
    expect(await fixture.active.takeWorkers(scanId, 5, 2)).toBe(2);
    await expect(fixture.active.rejectWhileScanned(FIRST_SUBSCRIPTION)).rejects.toMatchObject({ code: "scanRunning" });
  });

  test("share the workers: a re-scan that renews its lease keeps its worker for another minute", async () => {
    await fixture.active.enterRescan({ worker: "one", subscriptionId: FIRST_SUBSCRIPTION }, 1);
    const another = () => fixture.active.enterRescan({ worker: "two", subscriptionId: FIRST_SUBSCRIPTION }, 1);
    await moveTime(40 * SECOND_MS);
    await fixture.active.renewRescan("one");
    await moveTime(40 * SECOND_MS);
    expect(await another()).toBe(false);
    await moveTime(30 * SECOND_MS);
    expect(await another()).toBe(true);
  });

  test("share the workers: a missing row of active scans counts as no active scan", async () => {
    await fixture.tables.remove(ActiveScans, ACTIVE, ACTIVE);
    expect(await fixture.active.enterRescan({ worker: "one", subscriptionId: FIRST_SUBSCRIPTION }, 1)).toBe(true);
  });
});

describe("recovery of re-scans:", () => {
  test("after a crash at any write, another process finds the change", async () => {
    const isWrite = (method: string) =>
      ["insert", "replace", "modify", "remove", "transaction", "put"].includes(method);
    const createCrashable = async (steps: Steps) => {
      const crashableFixture = createScanFixture(connection(), (tables) => crashable(tables, steps, isWrite));
      crashableFixture.cloud.listedEntries = {
        ...crashableFixture.cloud.listedEntries,
        secrets: [{ name: "password" }, newSecret],
      };
      return crashableFixture;
    };
    const steps: Steps = { taken: 0 };
    const crashFree = await createCrashable(steps);
    await crashFree.rescans.requestForEvent(event("kv-two"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await crashFree.syncClock();
    await crashFree.rescans.rescan("kv-two", "request");
    const writes = steps.taken;
    expect(writes).toBeGreaterThan(4);
    const allWrites = Array.from({ length: writes }, (_, index) => index + 1);
    const crashWrites = IS_CAMPAIGN ? allWrites : allWrites.filter((at) => at % 2 === 1);
    for (const [round, crashAt] of crashWrites.entries()) {
      accountIndex++;
      fixture = createScanFixture(connection());
      await fixture.scan("full");
      await moveTime(MINUTE_MS);
      fixture.sentMessages.length = 0;
      const crashing = await createCrashable({ taken: 0, crashAt, when: round % 2 === 0 ? "before" : "after" });
      const work = async () => {
        await crashing.rescans.requestForEvent(event("kv-two"), 1);
        await moveTime(EVENT_DELAY_OVER_MS);
        await crashing.syncClock();
        await crashing.rescans.rescan("kv-two", "request");
      };
      await expect(work()).rejects.toThrow(SimulatedCrash);
      // Another process: if the crash was at the first write, the platform redelivers the event. Otherwise the watch continues.
      addSecret();
      if (crashAt === 1) await fixture.rescans.requestForEvent(event("kv-two"), 2);
      for (let minute = 0; minute < 4; minute++) {
        await moveTime(MINUTE_MS);
        await fixture.rescans.watch();
        await deliverRescans();
      }
      expect((await fixture.assetLines({ vault: "kv-two", type: "secret" })).length, `crash at ${crashAt}`).toBe(2);
      expect(await readRescanRows(), `crash at ${crashAt}`).toEqual([]);
      expect((await readChangeEntries()).length, `crash at ${crashAt}`).toBeGreaterThanOrEqual(1);
    }
  });

  test("a redelivered event sends the re-scan's message, if the process crashed before it did", async () => {
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    fixture.takeMessages(RESCAN_QUEUE);
    await fixture.rescans.requestForEvent(event("kv-one"), 2);
    expect(fixture.takeMessages(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
  });

  test("the watch sends a lost message of a re-scan again", async () => {
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    fixture.takeMessages(RESCAN_QUEUE);
    await moveTime(EVENT_DELAY_OVER_MS);
    await fixture.rescans.watch();
    expect(fixture.sentMessages).toEqual([]);
    // A message counts as lost ten seconds after the re-scan was due.
    await moveTime(10 * SECOND_MS);
    await fixture.rescans.watch();
    expect(fixture.takeMessages(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-one" } }]);
    vi.spyOn(fixture.writer, "find").mockRejectedValueOnce(new Error("storage is unavailable"));
    await expect(rescan("kv-one")).rejects.toThrow("storage is unavailable");
    expect(await readRescanRows()).toMatchObject([{ failures: 1 }]);
    await fixture.rescans.failed("kv-one");
    expect(await readRescanRows()).toEqual([]);
  });

  test("a re-scan that fails starts the next waiting re-scan, not itself", async () => {
    for (const name of ["kv-one", "kv-three"]) await fixture.rescans.requestForEvent(event(name, "resource"), 1);
    fixture.takeMessages(RESCAN_QUEUE);
    await moveTime(EVENT_DELAY_OVER_MS);
    vi.spyOn(fixture.writer, "find").mockRejectedValue(new Error("storage is unavailable"));
    await expect(rescan("kv-one")).rejects.toThrow("storage is unavailable");
    expect(fixture.takeMessages(RESCAN_QUEUE)).toMatchObject([{ message: { vaultName: "kv-three" } }]);
    await expect(rescan("kv-three")).rejects.toThrow("storage is unavailable");
    expect(fixture.takeMessages(RESCAN_QUEUE)).toEqual([]);
  });

  test("a lease is renewed again after a failed renewal", async () => {
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    const renew = vi.spyOn(fixture.active, "renewRescan").mockRejectedValueOnce(new Error("storage is unavailable"));
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    fixture.cloud.whileListingSecrets = async () => {
      // A lease is renewed every 20 seconds.
      for (const times of [1, 2]) {
        vi.advanceTimersByTime(20 * SECOND_MS);
        await vi.waitFor(() => expect(renew).toHaveBeenCalledTimes(times), { timeout: 150_000 });
      }
    };
    try {
      await rescan("kv-one");
    } finally {
      vi.useRealTimers();
    }
    expect([renew.mock.calls.length, await readRescanRows()]).toEqual([2, []]);
  });

  test("the watch of re-scans runs although the watch of scans fails", async () => {
    const watchedParts: string[] = [];
    const watchScans = async () => {
      throw new Error("a scan's row is broken");
    };
    const timer = timers.find(({ name }) => name === "watchScans")!;
    const watch = async (rescans: () => Promise<unknown>) =>
      await timer.handle({
        services: {
          watchScans,
          rescans: { watch: rescans },
          startFirstScan: async () => {},
          signedRows: { check: async () => {} },
        },
      } as never);
    await expect(watch(async () => watchedParts.push("rescans"))).rejects.toThrow("a scan's row is broken");
    expect(watchedParts).toEqual(["rescans"]);
    const failing = watch(async () => {
      throw new Error("a re-scan's row too");
    });
    await expect(failing).rejects.toThrow("a scan's row is broken; Error: a re-scan's row too");
  });

  test("a re-scan that can't read its vault records the failure without a back-off", async () => {
    fixture.cloud.keyVaults.open = () => {
      throw new CloudFailure("firewall", "The vault's firewall refuses.", { remedy: "Let it in." });
    };
    await fixture.rescans.requestForEvent(event("kv-one"), 1);
    await moveTime(EVENT_DELAY_OVER_MS);
    await rescan("kv-one");
    const after = (await fixture.writer.find("kv-one"))!;
    expect(after.failures.secret).toMatchObject({ code: "firewall" });
    expect([after.failedScans, after.retryAt, await fixture.assetLines({ vault: "kv-one" })]).toEqual([
      0,
      undefined,
      ["1 kv-one certificate", "1 kv-one secret"],
    ]);
    await fixture.scan("delta");
    expect((await fixture.writer.find("kv-one"))!.failedScans).toBe(1);
  });
});

describe("a vault whose own row is lost", () => {
  test("is restored from its copy if its subscription is no longer watched", async () => {
    await fixture.tables.remove(Vaults, VAULTS, vaultKey("kv-one"));
    fixture.scope.watched = async () => false;
    const lost = await findLostVault(fixture.tables, "kv-one", [], fixture.rescans);
    expect(lost).toMatchObject({ copy: { name: "kv-one" }, isRequested: false });
  });

  test("is found if it was created after the last listing of its subscription", async () => {
    const { requestForLostVault } = fixture.rescans;
    expect(await requestForLostVault("kv-made-up", [resource(FIRST_SUBSCRIPTION, "kv-made-up").id])).toBe("gone");
    fixture.cloud.vaults.get(FIRST_SUBSCRIPTION)!.push("kv-new");
    expect(await requestForLostVault("kv-new", [resource(FIRST_SUBSCRIPTION, "kv-new").id])).toBe("requested");
  });

  test("costs one listing of its subscription, also if rows name many such vaults and IDs", async () => {
    let listings = 0;
    fixture.cloud.whileListingVaults = async () => void listings++;
    for (let vault = 0; vault < 5; vault++) {
      const ids = Array.from({ length: 20 }, (_, id) => resource(FIRST_SUBSCRIPTION, `kv-made-up-${vault}-${id}`).id);
      expect(await fixture.rescans.requestForLostVault(`kv-made-up-${vault}`, ids)).toBe("gone");
    }
    expect(listings).toBe(1);
    expect(await fixture.rescans.requestForLostVault("kv-two", [resource(FIRST_SUBSCRIPTION, "x").id])).toBe(
      "requested",
    );
  });
});
