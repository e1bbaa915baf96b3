import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { SCAN_LIST, Scans } from "../../shared/discovery/scan.ts";
import type { SubscriptionCounts } from "../../shared/inventory/inventory.ts";
import { readScopeRow } from "../../shared/inventory/scope.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import type { Identity } from "../../shared/platform/azure/identity.ts";
import type { KeyVaults } from "../../shared/platform/azure/key-vault.ts";
import type { ResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { createSettings } from "../../shared/settings/settings.ts";
import { SUBSCRIPTIONS_PARTITION, SubscriptionRow } from "../../shared/subscriptions/added-subscriptions.ts";
import { watchedAllBefore } from "../../shared/subscriptions/earlier-version.ts";
import { createSubscriptions, type SubscriptionInventory } from "../../shared/subscriptions/subscriptions.ts";
import { recordingLog } from "../azure/services.ts";
import { vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "../settings/support.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";

// Tests of the watched subscriptions without HTTP. The scope is all subscriptions while the setting `watchAll` is true,
// otherwise the named ones: those that administrators added and those of the configuration (AZURE_SUBSCRIPTION_IDS).

const PAYMENTS = "11111111-1111-4111-8111-111111111111";
const CLAIMS = "22222222-2222-4222-8222-222222222222";
const SHARED = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";

let azurite: TestStorage;
let tables: Tables;
let nextAccount = 0;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 60 }, (_, i) => `subscriptions${i}`));
});
afterAll(() => azurite.stop());
/** Opens the tables of a storage account that no test has used. */
const openNewStorage = () => {
  tables = createTables({ connectionString: azurite.connectionString(`subscriptions${nextAccount++}`) });
};
beforeEach(openNewStorage);

/** Clients that only the connection test uses, which has tests of its own. */
const unused = { resourceManager: {} as ResourceManager, keyVaults: {} as KeyVaults, identity: {} as Identity };

interface FixtureOptions {
  configured?: string[];
  watchAll?: boolean;
  /** Numbers of vaults and assets in the inventory, by subscription. */
  counts?: Map<string, SubscriptionCounts>;
  clock?: ReturnType<typeof stillClock>;
  forget?: SubscriptionInventory["forget"];
  rejectWhileScanned?: SubscriptionInventory["rejectWhileScanned"];
}

const countsOf = (vaults: number, assets: number): SubscriptionCounts => ({
  vaults,
  unreadable: 0,
  failing: 0,
  assets,
  withEvents: 0,
});

/** Creates the module with a fake inventory, which records the subscriptions whose data is deleted. */
function createFixture(options: FixtureOptions = {}) {
  const { configured = [], watchAll, counts = new Map(), clock = stillClock() } = options;
  const { rejectWhileScanned = async () => {} } = options;
  const audit = recordingAudit();
  const forgotten: string[] = [];
  const inventory: SubscriptionInventory = {
    counts: async () => counts,
    rejectWhileScanned,
    forget:
      options.forget ??
      (async (id) => {
        forgotten.push(id);
        return { vaults: 3, assets: 40 };
      }),
  };
  const config = configWith({
    AZURE_SUBSCRIPTION_IDS: configured.join(","),
    ...(watchAll === undefined ? {} : { WATCH_ALL: String(watchAll) }),
  });
  const settings = createSettings({
    tables,
    config,
    clock,
    audit,
    log: recordingLog(),
    watchedAllBefore: () => watchedAllBefore(tables, config),
  });
  const subscriptions = createSubscriptions({ tables, config, settings, clock, audit, inventory, ...unused });
  return { audit, clock, counts, forgotten, settings, subscriptions };
}

/** Returns the scope: "all", or the IDs of the named subscriptions. */
const scopeOf = async ({ subscriptions }: Pick<ReturnType<typeof createFixture>, "subscriptions">) => {
  const { all, named } = await subscriptions.watched();
  return all ? "all" : named;
};

const FIRST_PAGE = { limit: 100, offset: 0, cursor: undefined };

describe("listing", () => {
  test("added and configured subscriptions are listed by name", async () => {
    const { subscriptions } = createFixture({ configured: [SHARED.toUpperCase()] });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.add({ subscriptionId: CLAIMS, name: "Claims" }, admin);
    const { items, total } = await subscriptions.list({}, FIRST_PAGE);
    expect(total).toBe(3);
    expect(items).toEqual([
      {
        subscriptionId: SHARED,
        name: SHARED,
        source: "configuration",
        state: "active",
        watched: true,
        outOfScopeSince: null,
        addedAt: null,
        addedBy: null,
        lastScan: null,
        lastFailure: null,
        counts: { vaults: 0, vaultsUnreadable: 0, vaultsWithFailures: 0, assets: 0, vaultsWithEvents: 0 },
        // The configuration has no row, and so no ETag of its own.
        etag: '"configuration"',
      },
      expect.objectContaining({ subscriptionId: CLAIMS, name: "Claims", source: "api" }),
      expect.objectContaining({
        subscriptionId: PAYMENTS,
        name: "payments",
        source: "api",
        state: "active",
        addedAt: "2026-11-21T10:00:00.000Z",
        addedBy: "ada",
        // An ETag that the service computes: those of Azure Storage are weak.
        etag: expect.stringMatching(/^"[\w-]{22}"$/),
      }),
    ]);
    const first = await subscriptions.list({}, { ...FIRST_PAGE, limit: 2 });
    const second = await subscriptions.list({}, { limit: 2, offset: 0, cursor: first.nextCursor! });
    expect([...first.items, ...second.items]).toEqual(items);
    expect(second.nextCursor).toBeNull();
  });

  test("a subscription from both sources is named once, in lower case", async () => {
    const fixture = createFixture({ watchAll: false });
    await fixture.subscriptions.add({ subscriptionId: SHARED.toUpperCase(), name: "shared" }, admin);
    const { subscriptions } = createFixture({ configured: [SHARED.toUpperCase(), PAYMENTS], watchAll: false });
    expect(await scopeOf({ subscriptions })).toEqual([PAYMENTS, SHARED]);
    expect((await subscriptions.list({}, FIRST_PAGE)).items.map((item) => [item.subscriptionId, item.source])).toEqual([
      [PAYMENTS, "configuration"],
      [SHARED, "api"],
    ]);
  });
});

describe("adding", () => {
  test("the same subscription twice is rejected, even in another case or at the same time", async () => {
    const { subscriptions, audit } = createFixture({ configured: [SHARED] });
    const results = await Promise.allSettled([
      subscriptions.add({ subscriptionId: PAYMENTS, name: "a" }, admin),
      subscriptions.add({ subscriptionId: PAYMENTS.toUpperCase(), name: "b" }, admin),
    ]);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const subscriptionId of [PAYMENTS, SHARED.toUpperCase()]) {
      expect((await problemOf(subscriptions.add({ subscriptionId, name: "again" }, admin))).code).toBe("alreadyExists");
    }
    expect(audit.events.filter((event) => event.outcome === "success")).toMatchObject([
      { type: "subscription.added", caller: admin, target: { type: "subscription", id: PAYMENTS } },
    ]);
  });

  test("an added subscription is found under its ID in upper or lower case", async () => {
    const { subscriptions } = createFixture();
    const added = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const { watching: _, ...subscription } = added;
    expect(await subscriptions.get(PAYMENTS.toUpperCase())).toEqual(subscription);
    expect((await problemOf(subscriptions.get(CLAIMS))).code).toBe("notFound");
    expect((await problemOf(subscriptions.test(CLAIMS))).code).toBe("notFound");
  });
});

describe("removing", () => {
  const optionsWithInventory = () => ({ watchAll: false, counts: new Map([[PAYMENTS, countsOf(3, 40)]]) });

  test("a removed subscription leaves the scope, and returns when it is added again", async () => {
    const { subscriptions, audit, forgotten, clock } = createFixture(optionsWithInventory());
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    clock.advance(MINUTE_MS);
    const removed = await subscriptions.remove(PAYMENTS.toUpperCase(), admin);
    expect(removed).toEqual({
      inventory: { outcome: "outOfScope", vaults: 3, assets: 40 },
      watching: { watchAll: false, subscriptions: 0, message: expect.stringContaining("No subscription is watched") },
    });
    expect(forgotten).toEqual([]);
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({
      source: "discovered",
      watched: false,
      outOfScopeSince: "2026-11-21T10:01:00.000Z",
      counts: { vaults: 3, assets: 40 },
    });
    expect(audit.events.map(({ type, outcome }) => `${type} ${outcome}`).slice(-4)).toEqual([
      "subscription.removed intent",
      "scope.changed intent",
      "scope.changed success",
      "subscription.removed success",
    ]);
    expect(audit.events.at(-2)).toMatchObject({
      before: { named: [PAYMENTS] },
      after: { named: [] },
      details: { leaves: { subscriptions: [PAYMENTS], total: 1, vaults: 3, assets: 40 }, returns: { total: 0 } },
    });
    expect(audit.events.at(-1)).toMatchObject({ details: { inventory: { outcome: "outOfScope", vaults: 3 } } });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ source: "api", watched: true, outOfScopeSince: null });
    expect(audit.events.at(-1)).toMatchObject({ details: { returns: { subscriptions: [PAYMENTS], assets: 40 } } });
  });

  test("a subscription's time of leaving the scope does not change when others leave or return", async () => {
    const counts = new Map([PAYMENTS, CLAIMS, SHARED].map((id) => [id, countsOf(1, 2)]));
    const { subscriptions, clock } = createFixture({ watchAll: false, counts });
    for (const id of [PAYMENTS, CLAIMS, SHARED]) await subscriptions.add({ subscriptionId: id, name: id }, admin);
    for (const id of [PAYMENTS, CLAIMS, SHARED]) {
      clock.advance(MINUTE_MS);
      await subscriptions.remove(id, admin);
    }
    clock.advance(MINUTE_MS);
    await subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    const since = async (id: string) => (await subscriptions.get(id)).outOfScopeSince;
    expect(await Promise.all([PAYMENTS, CLAIMS, SHARED].map(since))).toEqual([
      "2026-11-21T10:01:00.000Z",
      null,
      "2026-11-21T10:03:00.000Z",
    ]);
  });

  test("the inventory of a subscription is deleted at once with the option forget", async () => {
    const { subscriptions, audit, forgotten, counts } = createFixture(optionsWithInventory());
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const { inventory } = await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect(inventory).toEqual({ outcome: "removed", vaults: 3, assets: 40 });
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin))).code).toBe("conflict");
    await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect(forgotten).toEqual([PAYMENTS, PAYMENTS]);
    expect(audit.events.at(-1)).toMatchObject({ details: { inventory: { outcome: "removed" } } });
    counts.clear();
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { forget: true }))).code).toBe("notFound");
  });

  test("the inventory of a subscription is not deleted if it is in scope for another reason", async () => {
    await createFixture({ watchAll: false }).subscriptions.add({ subscriptionId: SHARED, name: "shared" }, admin);
    const { subscriptions, forgotten } = createFixture({ configured: [SHARED], watchAll: false });
    const unchanged = { outcome: "kept", vaults: 0, assets: 0 };
    expect((await subscriptions.remove(SHARED, admin, { forget: true })).inventory).toEqual(unchanged);
    expect((await subscriptions.get(SHARED)).source).toBe("configuration");
    expect((await problemOf(subscriptions.remove(SHARED, admin))).code).toBe("conflict");

    const withWatchAll = createFixture({ watchAll: true, counts: new Map([[CLAIMS, countsOf(1, 2)]]) });
    await withWatchAll.subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    expect((await withWatchAll.subscriptions.remove(CLAIMS, admin)).inventory).toEqual(unchanged);
    expect((await problemOf(withWatchAll.subscriptions.remove(CLAIMS, admin, { forget: true }))).code).toBe("conflict");
    expect([...forgotten, ...withWatchAll.forgotten]).toEqual([]);
  });

  test("an interrupted removal is completed by the next removal", async () => {
    const failing = createFixture({
      ...optionsWithInventory(),
      forget: () => Promise.reject(new Error("connection lost")),
    });
    await failing.subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await expect(failing.subscriptions.remove(PAYMENTS, admin, { forget: true })).rejects.toThrow("connection lost");
    expect(failing.audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "failure" });

    const { subscriptions, forgotten, counts } = createFixture({ ...optionsWithInventory(), counts: new Map() });
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ state: "removing", watched: false });
    expect(await scopeOf({ subscriptions })).toEqual([]);
    expect((await problemOf(subscriptions.add({ subscriptionId: PAYMENTS, name: "x" }, admin))).code).toBe("conflict");
    await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect([forgotten, counts.size]).toEqual([[PAYMENTS], 0]);
    expect((await problemOf(subscriptions.get(PAYMENTS))).code).toBe("notFound");
  });

  test("a subscription is not removed while a scan covers it", async () => {
    let isScanRunning = true;
    const { subscriptions, audit, forgotten } = createFixture({
      ...optionsWithInventory(),
      rejectWhileScanned: async () => {
        if (isScanRunning) throw new Problem("scanRunning", "A scan covers this subscription.");
      },
    });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { forget: true }))).code).toBe("scanRunning");
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ name: "payments", state: "active", watched: true });
    expect([await scopeOf({ subscriptions }), forgotten]).toEqual([[PAYMENTS], []]);
    expect(audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "refused" });
    isScanRunning = false;
    expect((await subscriptions.remove(PAYMENTS, admin, { forget: true })).inventory.outcome).toBe("removed");
  });

  test("the subscription is out of scope while its inventory is deleted, so that no scan adds its vaults", async () => {
    let scopeDuringDeletion: Awaited<ReturnType<typeof scopeOf>> | undefined;
    const { subscriptions } = createFixture({
      ...optionsWithInventory(),
      forget: async () => {
        scopeDuringDeletion = await scopeOf({ subscriptions });
        return { vaults: 0, assets: 0 };
      },
    });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect(scopeDuringDeletion).toEqual([]);
  });

  test("a stale ETag is rejected", async () => {
    const { subscriptions, audit } = createFixture(optionsWithInventory());
    const { etag } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const row = await tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS);
    await tables.replace(SubscriptionRow, { ...row!, name: "renamed" });
    const eventsBefore = audit.events.length;
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { ifMatch: etag }))).code).toBe("preconditionFailed");
    expect([await scopeOf({ subscriptions }), audit.events.length]).toEqual([[PAYMENTS], eventsBefore]);
    const current = await subscriptions.get(PAYMENTS);
    expect((await subscriptions.remove(PAYMENTS, admin, { ifMatch: current.etag })).inventory.vaults).toBe(3);
  });
});

describe("watchAll", () => {
  const listedSubscriptions = [
    { subscriptionId: PAYMENTS.toUpperCase(), displayName: "Payments" },
    { subscriptionId: CLAIMS, displayName: "Claims" },
  ];
  /** The inventory has one vault of Payments and two of Claims. */
  const inventoryOfBoth = () => new Map([PAYMENTS, CLAIMS].map((id, index) => [id, countsOf(index + 1, 10)]));

  test("adding the first subscription does not narrow the scope while watchAll is true", async () => {
    const fixture = createFixture();
    expect(await scopeOf(fixture)).toBe("all");
    const added = await fixture.subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(added.watching).toMatchObject({ watchAll: true, message: expect.stringContaining("narrows nothing") });
    expect(await scopeOf(fixture)).toBe("all");
    expect(fixture.audit.events.some(({ type }) => type === "scope.changed")).toBe(false);
  });

  test("adding the first subscription while watchAll is false puts only that subscription in scope", async () => {
    const { subscriptions, ...rest } = createFixture({ watchAll: false, counts: inventoryOfBoth() });
    expect(await scopeOf({ subscriptions })).toEqual([]);
    const { watching } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(watching).toMatchObject({
      watchAll: false,
      subscriptions: 1,
      message: expect.stringMatching(/\b1 subscription\b/),
    });
    expect(await scopeOf({ subscriptions })).toEqual([PAYMENTS]);
    await subscriptions.requireWatched([PAYMENTS]);
    const problem = await problemOf(subscriptions.requireWatched([PAYMENTS, CLAIMS]));
    expect([problem.code, problem.errors![0]!.path]).toEqual(["invalidRequest", "body.subscriptions"]);
    expect(problem.message).toContain(CLAIMS);
    expect(rest.forgotten).toEqual([]);
    const second = await subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    expect(second.watching.message).toMatch(/\b2 subscriptions\b/);
  });

  test("a preview contains a subscription that leaves because its entry is gone", async () => {
    const { subscriptions } = createFixture({ watchAll: false, counts: inventoryOfBoth() });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    // The state after a removal that crashed before the scope was stored.
    await tables.remove(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS);
    const { leaves } = await subscriptions.previewWatchAll(false);
    expect(leaves).toEqual([{ subscriptionId: PAYMENTS, name: "payments", vaults: 1, assets: 10 }]);
  });

  test("turning watchAll off removes subscriptions from the scope, and turning it on returns them", async () => {
    const { subscriptions, settings, audit, clock } = createFixture({ counts: inventoryOfBoth() });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.storeReadable(listedSubscriptions, true);
    const preview = await subscriptions.previewWatchAll(false);
    expect(preview).toEqual({
      leaves: [{ subscriptionId: CLAIMS, name: "Claims", vaults: 2, assets: 10 }],
      returns: [],
    });
    expect(await scopeOf({ subscriptions })).toBe("all");
    clock.advance(SECOND_MS);
    await settings.update("features", { watchAll: false }, admin);
    await subscriptions.refreshScope(admin);
    expect(audit.events.at(-1)).toMatchObject({
      type: "scope.changed",
      caller: admin,
      outcome: "success",
      details: { leaves: { subscriptions: [CLAIMS], vaults: 2, assets: 10 } },
    });
    const listedStates = async () =>
      (await subscriptions.list({}, FIRST_PAGE)).items.map(({ name, watched, outOfScopeSince }) => [
        name,
        watched,
        outOfScopeSince,
      ]);
    const leftAt = "2026-11-21T10:00:01.000Z";
    expect(await listedStates()).toEqual([
      ["Claims", false, leftAt],
      ["payments", true, null],
    ]);
    clock.advance(SECOND_MS);
    // Another refresh does not change the time at which the subscription left.
    await subscriptions.refreshScope(admin);
    expect((await listedStates())[0]).toEqual(["Claims", false, leftAt]);
    expect((await subscriptions.previewWatchAll(true)).returns).toMatchObject([{ subscriptionId: CLAIMS }]);
    await settings.update("features", { watchAll: true }, admin);
    await subscriptions.refreshScope(admin);
    expect((await listedStates())[0]).toEqual(["Claims", true, null]);
  });

  test("reporting unchanged display names costs no table request", async () => {
    const proxy = await startTableProxy(azurite.connectionString(`subscriptions${nextAccount++}`));
    tables = createTables({ connectionString: proxy.connectionString });
    const { subscriptions } = createFixture({ counts: inventoryOfBoth() });
    // Names are stored in the row of the scope, which this call creates.
    await subscriptions.refreshScope(admin);
    await subscriptions.storeReadable(listedSubscriptions, true);
    expect((await subscriptions.watched()).discovered).toEqual([PAYMENTS, CLAIMS]);
    const requestsBefore = proxy.requests.length;
    await subscriptions.storeReadable(listedSubscriptions, true);
    expect(proxy.requests.slice(requestsBefore)).toEqual([]);
    await proxy.stop();
  });

  test("a subscription that the identity can no longer read has a failure with a remedy", async () => {
    const { subscriptions, counts, forgotten } = createFixture({ counts: inventoryOfBoth() });
    await subscriptions.refreshScope(admin);
    // `true`: the list of subscriptions is complete.
    await subscriptions.storeReadable(listedSubscriptions, true);
    // `false`: a part of the list could not be read, so it is unknown whether the subscription still exists.
    await subscriptions.storeReadable(listedSubscriptions.slice(0, 1), false);
    expect((await subscriptions.get(CLAIMS)).lastFailure).toBeNull();
    await subscriptions.storeReadable(listedSubscriptions.slice(0, 1), true);
    expect(await subscriptions.get(CLAIMS)).toMatchObject({
      source: "discovered",
      watched: true,
      lastFailure: { code: "notFound", remedy: expect.stringContaining("forget=true") },
    });
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { forget: true }))).code).toBe("conflict");
    expect((await subscriptions.remove(CLAIMS, admin, { forget: true })).inventory.outcome).toBe("removed");
    expect(forgotten).toEqual([CLAIMS]);
    counts.delete(CLAIMS);
    expect((await problemOf(subscriptions.get(CLAIMS))).code).toBe("notFound");
  });

  test("an ended scan becomes the last scan of its subscriptions unless a later scan has ended", async () => {
    const { subscriptions } = createFixture({ counts: inventoryOfBoth() });
    const failure = { code: "accessDenied", message: "No.", remedy: "Assign a role.", at: "2026-11-21T10:00:00.000Z" };
    const scan = (scanId: string, outcomes: object[]) =>
      subscriptions.scanned({
        scanId,
        status: "partial",
        finishedAt: "2026-11-21T10:05:00.000Z",
        subscriptionOutcomes: outcomes as never,
      });
    const [first, second] = ["01KAAAAAAAAAAAAAAAAAAAAAAA", "01KBBBBBBBBBBBBBBBBBBBBBBB"];
    await scan(second, [{ subscriptionId: PAYMENTS, vaults: 0, failure }]);
    await scan(
      first,
      [PAYMENTS, CLAIMS].map((subscriptionId) => ({ subscriptionId, vaults: 1 })),
    );
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({
      lastScan: { scanId: second, status: "partial", finishedAt: "2026-11-21T10:05:00.000Z" },
      lastFailure: failure,
    });
    expect(await subscriptions.get(CLAIMS)).toMatchObject({ lastScan: { scanId: first }, lastFailure: null });
  });
});

describe("unread subscriptions (those that the last scan did not read)", () => {
  const FAILURE = { code: "badResponse", message: "No.", remedy: "Wait.", at: "2026-11-21T10:00:00.000Z" };
  const SCAN_IDS = ["01KAAAAAAAAAAAAAAAAAAAAAAA", "01KBBBBBBBBBBBBBBBBBBBBBBB", "01KCCCCCCCCCCCCCCCCCCCCCCC"] as const;
  const endedScan = (
    scanId: string,
    status: "completed" | "partial" | "timedOut" | "cancelled",
    outcomes: object[],
  ) => ({
    scanId,
    status,
    finishedAt: "2026-11-21T10:05:00.000Z",
    subscriptionOutcomes: outcomes as never,
  });
  const outcomes = [PAYMENTS, CLAIMS].map((subscriptionId) => ({ subscriptionId, vaults: 1 }));

  test.each(["timedOut", "cancelled"] as const)(
    "include subscriptions whose last scan ended with the status %s",
    async (status) => {
      const { subscriptions } = createFixture({
        counts: new Map([PAYMENTS, CLAIMS].map((id) => [id, countsOf(1, 1)])),
      });
      const unread = async () =>
        (await subscriptions.list({ unread: true }, FIRST_PAGE)).items.map((item) => item.subscriptionId).sort();
      await subscriptions.scanned(endedScan(SCAN_IDS[0], status, outcomes));
      expect(await unread()).toEqual([PAYMENTS, CLAIMS].sort());
      await subscriptions.scanned(endedScan(SCAN_IDS[1], "completed", outcomes));
      expect(await unread()).toEqual([]);
    },
  );

  test("an unreadable entry in the list of subscriptions is reported until a scan reads the whole list", async () => {
    const { subscriptions } = createFixture({ counts: new Map([PAYMENTS, CLAIMS].map((id) => [id, countsOf(1, 1)])) });
    const failure = async () => (await subscriptions.list({}, FIRST_PAGE)).lastFailure;
    await subscriptions.scanned(
      endedScan(SCAN_IDS[0], "partial", [...outcomes, { subscriptionId: "unreadable", vaults: 0, failure: FAILURE }]),
    );
    expect(await failure()).toEqual(FAILURE);
    await subscriptions.scanned({
      ...endedScan(SCAN_IDS[1], "completed", outcomes),
      subscriptions: [PAYMENTS, CLAIMS],
    });
    expect(await failure()).toEqual(FAILURE);
    await subscriptions.scanned(endedScan(SCAN_IDS[2], "completed", outcomes));
    expect(await failure()).toBeNull();
    expect((await subscriptions.list({}, FIRST_PAGE)).items.map((item) => item.subscriptionId).sort()).toEqual(
      [PAYMENTS, CLAIMS].sort(),
    );
  });
});

describe("deleting the inventory of subscriptions that left", () => {
  test("happens after the retention, for all except those that returned", async () => {
    const OTHER = "33333333-3333-4333-8333-333333333333";
    /** Subscriptions whose deletion fails. The failure must not stop the deletion of others. */
    const busy = new Set([CLAIMS]);
    const forgotten: string[] = [];
    const counts = new Map([PAYMENTS, CLAIMS, OTHER].map((id) => [id, countsOf(1, 1)]));
    const { subscriptions, settings, clock, audit } = createFixture({
      counts,
      forget: async (id) => {
        if (busy.has(id)) throw new Problem("conflict", "A worker writes it.");
        counts.delete(id);
        forgotten.push(id);
        return { vaults: 1, assets: 1 };
      },
    });
    await subscriptions.refreshScope(admin);
    await settings.update("features", { watchAll: false }, admin);
    await settings.update("retention", { outOfScopeRetentionDays: 2 }, admin);
    await subscriptions.refreshScope(admin);
    clock.advance(2 * DAY_MS);
    await subscriptions.forgetOutOfScope(admin);
    expect(forgotten).toEqual([]);
    await subscriptions.add({ subscriptionId: OTHER, name: "back" }, admin);
    clock.advance(1);
    expect((await problemOf(subscriptions.forgetOutOfScope(admin))).code).toBe("conflict");
    expect(forgotten).toEqual([PAYMENTS]);
    expect(audit.events.filter(({ type }) => type === "scope.forgotten").map(({ outcome }) => outcome)).toEqual([
      "intent",
      "success",
      "intent",
      "refused",
    ]);
    busy.clear();
    await subscriptions.forgetOutOfScope(admin);
    expect(forgotten).toEqual([PAYMENTS, CLAIMS]);
  });

  test("throws the failures of all subscriptions that could not be deleted", async () => {
    const counts = new Map([PAYMENTS, CLAIMS].map((id) => [id, countsOf(1, 1)]));
    const { subscriptions, clock } = createFixture({
      watchAll: false,
      counts,
      forget: async (id) => Promise.reject(new Problem("conflict", `A worker writes ${id}.`)),
    });
    await subscriptions.refreshScope(admin);
    clock.advance(1000 * DAY_MS);
    await expect(subscriptions.forgetOutOfScope(admin)).rejects.toMatchObject({
      message: "2 subscriptions could not be deleted",
      errors: [PAYMENTS, CLAIMS].map((id) => ({ message: `A worker writes ${id}.` })),
    });
  });

  test("the names and times of subscriptions that left are deleted after the same retention", async () => {
    const { subscriptions, settings, clock } = createFixture({ watchAll: false });
    await settings.update("retention", { outOfScopeRetentionDays: 2 }, admin);
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.remove(PAYMENTS, admin);
    for (const list of [[{ subscriptionId: CLAIMS, displayName: "Claims" }], []]) {
      await subscriptions.refreshScope(admin);
      await subscriptions.storeReadable(list, true);
    }
    const storedKeysAfter = async (milliseconds: number) => {
      clock.advance(milliseconds);
      await subscriptions.forgetOutOfScope(admin);
      // By subscription: when it left the scope, its display name, and since when the list of subscriptions lacks it.
      const { left, discovered, unseenSince } = (await readScopeRow(tables))!;
      return [left, discovered, unseenSince].map((entries) => Object.keys(entries));
    };
    expect(await storedKeysAfter(2 * DAY_MS)).toEqual([[PAYMENTS], [CLAIMS], [CLAIMS]]);
    expect(await storedKeysAfter(1)).toEqual([[], [], []]);
  });
});

// Earlier versions had no setting `watchAll`: they watched all subscriptions until one was added or configured.
describe("a storage account of an earlier version", () => {
  const entry = { subscriptionId: PAYMENTS, name: "payments", addedAt: "2026-11-20T10:00:00.000Z", addedBy: "ada" };
  const addEntry = () => tables.insert(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS, entry);
  const writeVaultRow = (record: ReturnType<typeof vaultRecord>) =>
    writeVault(createInventoryWriter({ tables }), record, []);
  /** Writes a vault, and a holder: a row for credentials of applications, which belongs to no subscription. */
  const addVault = async () => {
    await writeVaultRow({ ...vaultRecord("entra-a", "entra"), source: "entra" });
    await writeVaultRow(vaultRecord("kv-a"));
  };

  test.each([
    // Title, rows of the earlier version, configured subscriptions, and expected scope.
    ["without an added subscription continues to watch all", addVault, [], "all"],
    ["with an added subscription watches only it", addEntry, [], [PAYMENTS]],
    ["with a configured subscription watches only it", addVault, [SHARED], [SHARED]],
    ["with an added and a configured subscription watches both", addEntry, [SHARED], [PAYMENTS, SHARED]],
  ])("%s", async (_description, writeEarlierRows, configured, expectedScope) => {
    for (const watchAll of [undefined, true, false]) {
      openNewStorage();
      await writeEarlierRows();
      const { audit, settings, subscriptions } = createFixture({
        configured,
        ...(watchAll === undefined ? {} : { watchAll }),
      });
      expect((await settings.values()).watchAll).toBe(expectedScope === "all");
      expect(await scopeOf({ subscriptions })).toEqual(expectedScope);
      expect(audit.events.every(({ caller }) => caller.actor === "system")).toBe(true);
      const isConfiguredOtherwise = watchAll !== undefined && watchAll !== (expectedScope === "all");
      if (!isConfiguredOtherwise) continue;
      // The service stored the earlier behavior as an override of the setting, which an administrator can remove.
      await settings.removeAll(admin);
      await subscriptions.refreshScope(admin);
      expect(await scopeOf({ subscriptions })).toEqual(expectedScope === "all" ? configured : "all");
    }
  });

  test("watched all subscriptions if a scan did not fail", async () => {
    for (const status of ["completed", "partial", "timedOut", "failed"] as const) {
      openNewStorage();
      await tables.insert(Scans, SCAN_LIST, "a", {
        scanId: "a",
        mode: "full",
        status,
        trigger: "api",
        requestedBy: "ada",
        requestId: "request",
        createdAt: "2026-11-20T10:00:00.000Z",
        vaultsTotal: 0,
        subscriptionOutcomes: [],
      });
      const watchedAll = status === "failed" ? undefined : true;
      expect([status, await watchedAllBefore(tables, configWith({}))]).toEqual([status, watchedAll]);
    }
  });

  test("a new storage account has the default of watchAll, and is checked only once", async () => {
    const { settings, audit } = createFixture({ configured: [SHARED] });
    expect((await settings.values()).watchAll).toBe(true);
    await addVault();
    await addEntry();
    expect((await createFixture({ configured: [SHARED] }).settings.values()).watchAll).toBe(true);
    expect(audit.events).toEqual([]);
  });
});
