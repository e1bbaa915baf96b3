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
import { createSettings } from "../../shared/settings/settings.ts";
import { SUBSCRIPTIONS_PARTITION, SubscriptionRow } from "../../shared/subscriptions/added-subscriptions.ts";
import { watchedAllBefore } from "../../shared/subscriptions/earlier-version.ts";
import { createSubscriptions, type SubscriptionInventory } from "../../shared/subscriptions/subscriptions.ts";
import { recordingLog } from "../azure/services.ts";
import { vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "../settings/support.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";

const PAYMENTS = "11111111-1111-4111-8111-111111111111";
const CLAIMS = "22222222-2222-4222-8222-222222222222";
const SHARED = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";

let azurite: TestStorage;
let tables: Tables;
let account = 0;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 60 }, (_, i) => `subscriptions${i}`));
});
afterAll(() => azurite.stop());
const freshStore = () => {
  tables = createTables({ connectionString: azurite.connectionString(`subscriptions${account++}`) });
};
beforeEach(freshStore);

/** These modules are not used here. The connection test has tests of its own. */
const unused = { resourceManager: {} as ResourceManager, keyVaults: {} as KeyVaults, identity: {} as Identity };

interface FixtureOptions {
  configured?: string[];
  watchAll?: boolean;
  /** The content of the inventory. */
  counts?: Map<string, SubscriptionCounts>;
  clock?: ReturnType<typeof stillClock>;
  forget?: SubscriptionInventory["forget"];
  rejectWhileScanned?: SubscriptionInventory["rejectWhileScanned"];
}

const holding = (vaults: number, assets: number): SubscriptionCounts => ({
  vaults,
  unreadable: 0,
  assets,
  withEvents: 0,
});

function fixture(options: FixtureOptions = {}) {
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

/** Returns the scope in short form. */
const watchedIn = async ({ subscriptions }: Pick<ReturnType<typeof fixture>, "subscriptions">) => {
  const { all, named } = await subscriptions.watched();
  return all ? "all" : named;
};

const firstPage = { limit: 100, offset: 0, cursor: undefined };

describe("listing", () => {
  test("added and configured subscriptions are listed by name, each once", async () => {
    const { subscriptions } = fixture({ configured: [SHARED.toUpperCase()] });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.add({ subscriptionId: CLAIMS, name: "Claims" }, admin);
    const { items, total } = await subscriptions.list({}, firstPage);
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
        counts: { vaults: 0, vaultsUnreadable: 0, assets: 0, vaultsWithEvents: 0 },
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
        // The service's own ETag: storage's would be weak.
        etag: expect.stringMatching(/^"[\w-]{22}"$/),
      }),
    ]);
    const first = await subscriptions.list({}, { ...firstPage, limit: 2 });
    const second = await subscriptions.list({}, { limit: 2, offset: 0, cursor: first.nextCursor! });
    expect([...first.items, ...second.items]).toEqual(items);
    expect(second.nextCursor).toBeNull();
  });

  test("the named subscriptions are those of both sources, in lower case and each once", async () => {
    const earlier = fixture({ watchAll: false });
    await earlier.subscriptions.add({ subscriptionId: SHARED.toUpperCase(), name: "shared" }, admin);
    const { subscriptions } = fixture({ configured: [SHARED.toUpperCase(), PAYMENTS], watchAll: false });
    expect(await watchedIn({ subscriptions })).toEqual([PAYMENTS, SHARED]);
    expect((await subscriptions.list({}, firstPage)).items.map((one) => [one.subscriptionId, one.source])).toEqual([
      [PAYMENTS, "configuration"],
      [SHARED, "api"],
    ]);
  });
});

describe("adding", () => {
  test("the same subscription twice is rejected, in upper or lower case, at once or one after the other", async () => {
    const { subscriptions, audit } = fixture({ configured: [SHARED] });
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
    const { subscriptions } = fixture();
    const added = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const { watching: _, ...shown } = added;
    expect(await subscriptions.get(PAYMENTS.toUpperCase())).toEqual(shown);
    expect((await problemOf(subscriptions.get(CLAIMS))).code).toBe("notFound");
    expect((await problemOf(subscriptions.test(CLAIMS))).code).toBe("notFound");
  });
});

describe("removing", () => {
  const narrow = () => ({ watchAll: false, counts: new Map([[PAYMENTS, holding(3, 40)]]) });

  test("a subscription leaves the scope, reported in the response and the audit log, and returns when it is added again", async () => {
    const { subscriptions, audit, forgotten, clock } = fixture(narrow());
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    clock.forward(60_000);
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

  test("each keeps the time at which it left the scope, whatever leaves or returns later", async () => {
    const counts = new Map([PAYMENTS, CLAIMS, SHARED].map((id) => [id, holding(1, 2)]));
    const { subscriptions, clock } = fixture({ watchAll: false, counts });
    for (const id of [PAYMENTS, CLAIMS, SHARED]) await subscriptions.add({ subscriptionId: id, name: id }, admin);
    for (const id of [PAYMENTS, CLAIMS, SHARED]) {
      clock.forward(60_000);
      await subscriptions.remove(id, admin);
    }
    clock.forward(60_000);
    await subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    const since = async (id: string) => (await subscriptions.get(id)).outOfScopeSince;
    expect(await Promise.all([PAYMENTS, CLAIMS, SHARED].map(since))).toEqual([
      "2026-11-21T10:01:00.000Z",
      null,
      "2026-11-21T10:03:00.000Z",
    ]);
  });

  test("with forget its inventory is deleted at once, also if it left before", async () => {
    const { subscriptions, audit, forgotten, counts } = fixture(narrow());
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

  test("a subscription in scope for another reason keeps its inventory", async () => {
    await fixture({ watchAll: false }).subscriptions.add({ subscriptionId: SHARED, name: "shared" }, admin);
    const { subscriptions, forgotten } = fixture({ configured: [SHARED], watchAll: false });
    const kept = { outcome: "kept", vaults: 0, assets: 0 };
    expect((await subscriptions.remove(SHARED, admin, { forget: true })).inventory).toEqual(kept);
    expect((await subscriptions.get(SHARED)).source).toBe("configuration");
    expect((await problemOf(subscriptions.remove(SHARED, admin))).code).toBe("conflict");

    const all = fixture({ watchAll: true, counts: new Map([[CLAIMS, holding(1, 2)]]) });
    await all.subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    expect((await all.subscriptions.remove(CLAIMS, admin)).inventory).toEqual(kept);
    expect((await problemOf(all.subscriptions.remove(CLAIMS, admin, { forget: true }))).code).toBe("conflict");
    expect([...forgotten, ...all.forgotten]).toEqual([]);
  });

  test("an interrupted removal is shown, is out of scope, and is completed by the next one", async () => {
    const failing = fixture({ ...narrow(), forget: () => Promise.reject(new Error("cut off")) });
    await failing.subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await expect(failing.subscriptions.remove(PAYMENTS, admin, { forget: true })).rejects.toThrow("cut off");
    expect(failing.audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "failure" });

    const { subscriptions, forgotten, counts } = fixture({ ...narrow(), counts: new Map() });
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ state: "removing", watched: false });
    expect(await watchedIn({ subscriptions })).toEqual([]);
    expect((await problemOf(subscriptions.add({ subscriptionId: PAYMENTS, name: "x" }, admin))).code).toBe("conflict");
    await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect([forgotten, counts.size]).toEqual([[PAYMENTS], 0]);
    expect((await problemOf(subscriptions.get(PAYMENTS))).code).toBe("notFound");
  });

  test("while a scan covers it, nothing of it is deleted or changed", async () => {
    let refused = true;
    const { subscriptions, audit, forgotten } = fixture({
      ...narrow(),
      rejectWhileScanned: async () => {
        if (refused) throw new Problem("scanRunning", "A scan covers this subscription.");
      },
    });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { forget: true }))).code).toBe("scanRunning");
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ name: "payments", state: "active", watched: true });
    expect([await watchedIn({ subscriptions }), forgotten]).toEqual([[PAYMENTS], []]);
    expect(audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "refused" });
    refused = false;
    expect((await subscriptions.remove(PAYMENTS, admin, { forget: true })).inventory.outcome).toBe("removed");
  });

  test("no scan can add the subscription's vaults while its inventory is deleted", async () => {
    let during: Awaited<ReturnType<typeof watchedIn>> | undefined;
    const { subscriptions } = fixture({
      ...narrow(),
      forget: async () => {
        during = await watchedIn({ subscriptions });
        return { vaults: 0, assets: 0 };
      },
    });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.remove(PAYMENTS, admin, { forget: true });
    expect(during).toEqual([]);
  });

  test("a stale ETag is rejected and nothing leaves", async () => {
    const { subscriptions, audit } = fixture(narrow());
    const { etag } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const row = await tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS);
    await tables.replace(SubscriptionRow, { ...row!, name: "renamed" });
    const before = audit.events.length;
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, { ifMatch: etag }))).code).toBe("preconditionFailed");
    expect([await watchedIn({ subscriptions }), audit.events.length]).toEqual([[PAYMENTS], before]);
    const current = await subscriptions.get(PAYMENTS);
    expect((await subscriptions.remove(PAYMENTS, admin, { ifMatch: current.etag })).inventory.vaults).toBe(3);
  });
});

describe("watchAll", () => {
  const seen = [
    { subscriptionId: PAYMENTS.toUpperCase(), displayName: "Payments" },
    { subscriptionId: CLAIMS, displayName: "Claims" },
  ];
  const both = () => new Map([PAYMENTS, CLAIMS].map((id, at) => [id, holding(at + 1, 10)]));

  test("adding the first subscription does not narrow the scope while watchAll is true", async () => {
    const all = fixture();
    expect(await watchedIn(all)).toBe("all");
    const added = await all.subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(added.watching).toMatchObject({ watchAll: true, message: expect.stringContaining("narrows nothing") });
    expect(await watchedIn(all)).toBe("all");
    expect(all.audit.events.some(({ type }) => type === "scope.changed")).toBe(false);
  });

  test("adding the first one while watchAll is false puts only that one in scope, and a scan of others is rejected", async () => {
    const { subscriptions, ...rest } = fixture({ watchAll: false, counts: both() });
    expect(await watchedIn({ subscriptions })).toEqual([]);
    const { watching } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(watching).toMatchObject({
      watchAll: false,
      subscriptions: 1,
      message: expect.stringMatching(/\b1 subscription\b/),
    });
    expect(await watchedIn({ subscriptions })).toEqual([PAYMENTS]);
    await subscriptions.requireWatched([PAYMENTS]);
    const refused = await problemOf(subscriptions.requireWatched([PAYMENTS, CLAIMS]));
    expect([refused.code, refused.errors![0]!.path]).toEqual(["invalidRequest", "body.subscriptions"]);
    expect(refused.message).toContain(CLAIMS);
    expect(rest.forgotten).toEqual([]);
    const second = await subscriptions.add({ subscriptionId: CLAIMS, name: "claims" }, admin);
    expect(second.watching.message).toMatch(/\b2 subscriptions\b/);
  });

  test("a preview contains a subscription that leaves because its entry is gone", async () => {
    const { subscriptions } = fixture({ watchAll: false, counts: both() });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    // As after a removal that crashed before the scope was stored.
    await tables.remove(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS);
    const { leaves } = await subscriptions.previewWatchAll(false);
    expect(leaves).toEqual([{ subscriptionId: PAYMENTS, name: "payments", vaults: 1, assets: 10 }]);
  });

  test("turning it off previews what leaves and records it; turning it on brings everything back", async () => {
    const { subscriptions, settings, audit, clock } = fixture({ counts: both() });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.discovered(seen, true);
    const preview = await subscriptions.previewWatchAll(false);
    expect(preview).toEqual({
      leaves: [{ subscriptionId: CLAIMS, name: "Claims", vaults: 2, assets: 10 }],
      returns: [],
    });
    expect(await watchedIn({ subscriptions })).toBe("all");
    clock.forward(1000);
    await settings.update("features", { watchAll: false }, admin);
    await subscriptions.refreshScope(admin);
    expect(audit.events.at(-1)).toMatchObject({
      type: "scope.changed",
      caller: admin,
      outcome: "success",
      details: { leaves: { subscriptions: [CLAIMS], vaults: 2, assets: 10 } },
    });
    const shown = async () =>
      (await subscriptions.list({}, firstPage)).items.map(({ name, watched, outOfScopeSince }) => [
        name,
        watched,
        outOfScopeSince,
      ]);
    const leftAt = "2026-11-21T10:00:01.000Z";
    expect(await shown()).toEqual([
      ["Claims", false, leftAt],
      ["payments", true, null],
    ]);
    clock.forward(1000);
    // After another refresh, the time at which it left is unchanged.
    await subscriptions.refreshScope(admin);
    expect((await shown())[0]).toEqual(["Claims", false, leftAt]);
    expect((await subscriptions.previewWatchAll(true)).returns).toMatchObject([{ subscriptionId: CLAIMS }]);
    await settings.update("features", { watchAll: true }, admin);
    await subscriptions.refreshScope(admin);
    expect((await shown())[0]).toEqual(["Claims", true, null]);
  });

  test("unchanged display names cost no request", async () => {
    const proxy = await startTableProxy(azurite.connectionString(`subscriptions${account++}`));
    tables = createTables({ connectionString: proxy.connectionString });
    const { subscriptions } = fixture({ counts: both() });
    await watchedIn({ subscriptions });
    await subscriptions.discovered(seen, true);
    expect((await subscriptions.watched()).discovered).toEqual([PAYMENTS, CLAIMS]);
    const before = proxy.requests.length;
    await subscriptions.discovered(seen, true);
    expect(proxy.requests.slice(before)).toEqual([]);
    await proxy.stop();
  });

  test("subscriptions that the identity can no longer read are reported with a remedy, and can be deleted", async () => {
    const { subscriptions, counts, forgotten } = fixture({ counts: both() });
    await watchedIn({ subscriptions });
    await subscriptions.discovered(seen, true);
    // If some entries could not be read, it is unknown whether the subscription is gone.
    await subscriptions.discovered(seen.slice(0, 1), false);
    expect((await subscriptions.get(CLAIMS)).lastFailure).toBeNull();
    await subscriptions.discovered(seen.slice(0, 1), true);
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

  test("an ended scan is stored as the last one of its subscriptions, unless a later one is", async () => {
    const { subscriptions } = fixture({ counts: both() });
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

describe("subscriptions that were not read", () => {
  const FAILURE = { code: "badResponse", message: "No.", remedy: "Wait.", at: "2026-11-21T10:00:00.000Z" };
  const IDS = ["01KAAAAAAAAAAAAAAAAAAAAAAA", "01KBBBBBBBBBBBBBBBBBBBBBBB", "01KCCCCCCCCCCCCCCCCCCCCCCC"] as const;
  const scanned = (scanId: string, status: "completed" | "partial" | "timedOut" | "cancelled", outcomes: object[]) => ({
    scanId,
    status,
    finishedAt: "2026-11-21T10:05:00.000Z",
    subscriptionOutcomes: outcomes as never,
  });
  const outcomes = [PAYMENTS, CLAIMS].map((subscriptionId) => ({ subscriptionId, vaults: 1 }));

  test.each(["timedOut", "cancelled"] as const)("include those whose last scan ended as %s", async (status) => {
    const { subscriptions } = fixture({ counts: new Map([PAYMENTS, CLAIMS].map((id) => [id, holding(1, 1)])) });
    const unread = async () =>
      (await subscriptions.list({ unread: true }, firstPage)).items.map((one) => one.subscriptionId).sort();
    await subscriptions.scanned(scanned(IDS[0], status, outcomes));
    expect(await unread()).toEqual([PAYMENTS, CLAIMS].sort());
    await subscriptions.scanned(scanned(IDS[1], "completed", outcomes));
    expect(await unread()).toEqual([]);
  });

  test("an unreadable entry in the list of subscriptions is reported until a scan reads the whole list", async () => {
    const { subscriptions } = fixture({ counts: new Map([PAYMENTS, CLAIMS].map((id) => [id, holding(1, 1)])) });
    const failure = async () => (await subscriptions.list({}, firstPage)).lastFailure;
    await subscriptions.scanned(
      scanned(IDS[0], "partial", [...outcomes, { subscriptionId: "unreadable", vaults: 0, failure: FAILURE }]),
    );
    expect(await failure()).toEqual(FAILURE);
    await subscriptions.scanned({ ...scanned(IDS[1], "completed", outcomes), subscriptions: [PAYMENTS, CLAIMS] });
    expect(await failure()).toEqual(FAILURE);
    await subscriptions.scanned(scanned(IDS[2], "completed", outcomes));
    expect(await failure()).toBeNull();
    expect((await subscriptions.list({}, firstPage)).items.map((one) => one.subscriptionId).sort()).toEqual(
      [PAYMENTS, CLAIMS].sort(),
    );
  });
});

describe("deleting the inventory of subscriptions that left", () => {
  test("happens only after the retention, a failure does not stop the others, and returned subscriptions are kept", async () => {
    const OTHER = "33333333-3333-4333-8333-333333333333";
    const busy = new Set([CLAIMS]);
    const forgotten: string[] = [];
    const counts = new Map([PAYMENTS, CLAIMS, OTHER].map((id) => [id, holding(1, 1)]));
    const { subscriptions, settings, clock, audit } = fixture({
      counts,
      forget: async (id) => {
        if (busy.has(id)) throw new Problem("conflict", "A worker writes it.");
        counts.delete(id);
        forgotten.push(id);
        return { vaults: 1, assets: 1 };
      },
    });
    await watchedIn({ subscriptions });
    await settings.update("features", { watchAll: false }, admin);
    await settings.update("retention", { outOfScopeRetentionDays: 2 }, admin);
    await subscriptions.refreshScope(admin);
    clock.forward(2 * 86_400_000);
    await subscriptions.forgetOutOfScope(admin);
    expect(forgotten).toEqual([]);
    await subscriptions.add({ subscriptionId: OTHER, name: "back" }, admin);
    clock.forward(1);
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

  test("throws the failures of all subscriptions that failed", async () => {
    const counts = new Map([PAYMENTS, CLAIMS].map((id) => [id, holding(1, 1)]));
    const { subscriptions, clock } = fixture({
      watchAll: false,
      counts,
      forget: async (id) => Promise.reject(new Problem("conflict", `A worker writes ${id}.`)),
    });
    await subscriptions.refreshScope(admin);
    clock.forward(1000 * 86_400_000);
    await expect(subscriptions.forgetOutOfScope(admin)).rejects.toMatchObject({
      message: "2 subscriptions could not be forgotten",
      errors: [PAYMENTS, CLAIMS].map((id) => ({ message: `A worker writes ${id}.` })),
    });
  });

  test("the scope keeps times and names of subscriptions that left as long", async () => {
    const { subscriptions, settings, clock } = fixture({ watchAll: false });
    await settings.update("retention", { outOfScopeRetentionDays: 2 }, admin);
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.remove(PAYMENTS, admin);
    for (const seen of [[{ subscriptionId: CLAIMS, displayName: "Claims" }], []]) {
      await watchedIn({ subscriptions });
      await subscriptions.discovered(seen, true);
    }
    const keptAfter = async (milliseconds: number) => {
      clock.forward(milliseconds);
      await subscriptions.forgetOutOfScope(admin);
      const { left, discovered, unseenSince } = (await readScopeRow(tables))!;
      return [left, discovered, unseenSince].map((kept) => Object.keys(kept));
    };
    expect(await keptAfter(2 * 86_400_000)).toEqual([[PAYMENTS], [CLAIMS], [CLAIMS]]);
    expect(await keptAfter(1)).toEqual([[], [], []]);
  });
});

describe("a store of an earlier version", () => {
  const entry = { subscriptionId: PAYMENTS, name: "payments", addedAt: "2026-11-20T10:00:00.000Z", addedBy: "ada" };
  const anEntry = () => tables.insert(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS, entry);
  const written = (record: ReturnType<typeof vaultRecord>) => writeVault(createInventoryWriter({ tables }), record, []);
  /** In addition, a holder of application credentials, which belongs to no subscription. */
  const aVault = async () => {
    await written({ ...vaultRecord("entra-a", "entra"), source: "entra" });
    await written(vaultRecord("kv-a"));
  };

  test.each([
    ["none was added: all are watched, and go on to be, whatever the setting would say", aVault, [], "all"],
    ["one was added: it alone is watched", anEntry, [], [PAYMENTS]],
    ["the configuration names one: it alone is watched", aVault, [SHARED], [SHARED]],
    ["both", anEntry, [SHARED], [PAYMENTS, SHARED]],
  ])("%s", async (_, left, configured, wanted) => {
    for (const watchAll of [undefined, true, false]) {
      freshStore();
      await left();
      const { audit, settings, subscriptions } = fixture({
        configured,
        ...(watchAll === undefined ? {} : { watchAll }),
      });
      expect((await settings.values()).watchAll).toBe(wanted === "all");
      expect(await watchedIn({ subscriptions })).toEqual(wanted);
      expect(audit.events.every(({ caller }) => caller.actor === "system")).toBe(true);
      if (watchAll !== (wanted !== "all")) continue;
      // It is a normal override, which an administrator may remove.
      await settings.removeAll(admin);
      await subscriptions.refreshScope(admin);
      expect(await watchedIn({ subscriptions })).toEqual(wanted === "all" ? configured : "all");
    }
  });

  test("watched all subscriptions if a scan read vaults; a scan that failed before is no evidence", async () => {
    for (const status of ["completed", "partial", "timedOut", "failed"] as const) {
      freshStore();
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
      const reported = status === "failed" ? undefined : true;
      expect([status, await watchedAllBefore(tables, configWith({}))]).toEqual([status, reported]);
    }
  });

  test("a new store has the default, with a configured subscription too, and is checked only once", async () => {
    const { settings, audit } = fixture({ configured: [SHARED] });
    expect((await settings.values()).watchAll).toBe(true);
    await aVault();
    await anEntry();
    expect((await fixture({ configured: [SHARED] }).settings.values()).watchAll).toBe(true);
    expect(audit.events).toEqual([]);
  });
});
