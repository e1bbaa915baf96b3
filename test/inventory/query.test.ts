/*
 * Lists and summaries of the inventory, compared with naive filters over all assets. The inventory has four vaults, one of them
 * in a subscription out of scope, and two holders. A holder is an entry of the inventory that contains credentials outside of
 * key vaults.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ASSET_TYPES, type AssetRecord, assetId, sourceOf } from "../../shared/inventory/asset.ts";
import type { Moment } from "../../shared/inventory/asset-status.ts";
import { holderName, newHolder } from "../../shared/inventory/holder.ts";
import { type AssetFilter, createAssetQueries } from "../../shared/inventory/query.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import type { SummaryFilter } from "../../shared/inventory/summary.ts";
import { VAULTS as VAULTS_PARTITION } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { assetRecord, expectedStatus, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./write-assets.ts";

const moment: Moment = { now: START, criticalDays: 7, warningDays: 30 };
const DAY_SECONDS = 86_400;
const TENANT = "99999999-9999-4999-8999-999999999999";
const VAULT_NAMES = ["kv-a", "kv-a-b", "Kv-B", "kv-c"];
/** A subscription that left the scope of scans. */
const OUT_OF_SCOPE_SUBSCRIPTION = "33333333-3333-4333-8333-333333333333";
/**
 * Certificates with a renewal plan: days until their expiry and until the end of the window. The first three are on time. Then
 * late ones: healthy by days, warning, past half of the remaining time, critical by days, expired. The last have no known window.
 */
const RENEWALS: [number, number | undefined][] = [
  [3, 1],
  [12, 5],
  [60, 30],
  [60, -1],
  [20, -1],
  [10, -12],
  [3, -1],
  [-3, -20],
  [31, undefined],
  [20, undefined],
  [8, undefined],
];
const LEFT_SCOPE_AT = "2026-11-20T10:00:00.000Z";

let azurite: TestStorage;
let proxy: TableProxy;
let queries: ReturnType<typeof createAssetQueries>;
let allAssets: AssetRecord[];

beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  const writer = createInventoryWriter({ tables: createTables({ connectionString: proxy.connectionString }) });
  allAssets = [];
  const scope = {
    watchAll: false,
    named: [...SUBSCRIPTIONS],
    namedOnlySince: LEFT_SCOPE_AT,
    left: {},
    names: { [SUBSCRIPTIONS[0]]: "Payments" },
    discovered: { [SUBSCRIPTIONS[0]]: "sub-payments", [SUBSCRIPTIONS[1]]: "Web" },
    unseenSince: {},
  };
  await createTables({ connectionString: proxy.connectionString }).put(ScopeRows, VAULTS_PARTITION, SCOPE_KEY, scope);
  for (const [vaultIndex, name] of VAULT_NAMES.entries()) {
    const vault = vaultRecord(name, name === "kv-c" ? OUT_OF_SCOPE_SUBSCRIPTION : SUBSCRIPTIONS[vaultIndex % 2]);
    const assets: AssetRecord[] = [];
    for (const type of ASSET_TYPES) {
      // Some names are prefixes of others or differ in case. Every vault has the same names, of every type.
      for (const [index, title] of ["db", "db-1", "DB-2", "api", "api-db", "x"].entries()) {
        const daysToExpiry = [-3, 3, 12, 400, undefined, 3][(index + vaultIndex) % 6];
        const expiresOn = daysToExpiry === undefined ? {} : { expiresOn: START / 1000 + daysToExpiry * DAY_SECONDS };
        const tags = index % 2 === 0 ? { tags: { owner: index === 2 ? "pay" : "web", env: "prod" } } : {};
        assets.push(assetRecord(vault, type, title, { ...expiresOn, ...tags, enabled: index !== 3 }));
      }
    }
    for (const [index, [expiresInDays, windowEndsInDays]] of RENEWALS.entries()) {
      const expiresOn = START / 1000 + expiresInDays * DAY_SECONDS;
      const lifetime = 90 * DAY_SECONDS;
      const windowEnd = windowEndsInDays === undefined ? undefined : START / 1000 + windowEndsInDays * DAY_SECONDS;
      const renewal = {
        renewedBy: "acmebot" as const,
        ...(windowEnd !== undefined && { source: "policy" as const, windowStart: windowEnd - DAY_SECONDS, windowEnd }),
        // Without a known window, a certificate needs attention in the last third of its lifetime.
        attentionAt: windowEnd === undefined ? expiresOn - lifetime / 3 : windowEnd + 1,
      };
      const notBefore = expiresOn - lifetime;
      const tags = index % 2 === 0 ? { tags: { owner: "web" } } : {};
      assets.push(assetRecord(vault, "certificate", `www-${index}`, { expiresOn, notBefore, renewal, ...tags }));
    }
    await writeVault(writer, vault, assets);
    allAssets.push(...assets);
  }
  // Two holders. The second was last seen eight days ago, so its credentials are not counted.
  for (const [holderIndex, bucket] of ["3", "c"].entries()) {
    const seenAt = new Date(START - holderIndex * 8 * DAY_SECONDS * 1000).toISOString();
    const holder = newHolder({ name: holderName(TENANT, bucket), source: "entra", tenantId: TENANT }, seenAt);
    const vault = { ...holder, listedAt: { secret: seenAt, certificate: seenAt } };
    const assets = [-3, 3, 400, undefined].map((days, index) => {
      const [appId, keyId] = [`${bucket}${TENANT.slice(1)}`, `${index}${TENANT.slice(1)}`];
      const credential = {
        tenantId: TENANT,
        appId,
        keyId,
        of: "application" as const,
        applicationName: index % 2 === 0 ? "Payments DB" : "Web",
        displayName: `api-${index}`,
        owners: index === 1 ? ["web", "pay"] : [],
        secretsUntil: [],
      };
      const expiresOn = days === undefined ? {} : { expiresOn: START / 1000 + days * DAY_SECONDS };
      const type = index % 2 === 0 ? "secret" : "certificate";
      return assetRecord(vault, type, `${appId}-${keyId}`, { ...expiresOn, credential, source: "entra" });
    });
    await writeVault(writer, vault, assets);
    allAssets.push(...assets);
  }
  // Each response has at most four rows.
  proxy.shortPages(4);
  queries = createAssetQueries({
    tables: createTables({ connectionString: proxy.connectionString }),
    ownerTag: "owner",
    licensed: async () => true,
  });
});
afterAll(async () => {
  await proxy?.stop();
  await azurite?.stop();
});

const daysInMs = (count: number) => count * DAY_SECONDS * 1000;
/** For each filter, returns a value that matches the asset. Undefined if the asset lacks the field. */
const filterValueOf: { [K in keyof AssetFilter]-?: (asset: AssetRecord) => AssetFilter[K] } = {
  type: (asset) => asset.type,
  status: (asset) => expectedStatus(asset, moment),
  vault: (asset) => asset.vaultName.toUpperCase(),
  subscription: (asset) => (asset.credential ? undefined : asset.subscriptionId),
  expiresBefore: (asset) =>
    asset.expiresOn === undefined ? undefined : new Date(asset.expiresOn * 1000 + daysInMs(2)),
  expiresAfter: (asset) => (asset.expiresOn === undefined ? undefined : new Date(asset.expiresOn * 1000 - daysInMs(2))),
  search: ({ name, credential }) => (credential?.applicationName ?? name).slice(-2).toUpperCase(),
  namePrefix: ({ name }) => name.slice(0, 2).toUpperCase(),
  enabled: (asset) => asset.enabled,
  tag: (asset) => asset.tags && { name: "owner", value: asset.tags.owner! },
  owner: firstOwnerOf,
  hasOwner: (asset) => firstOwnerOf(asset) !== undefined,
  sort: () => "expiresOn",
  source: sourceOf,
  b2cTenant: () => undefined,
  counted: (asset) => !isUnseen(asset) && !isOutOfScope(asset),
  outOfScope: (asset) => isOutOfScope(asset),
};
function firstOwnerOf({ tags, credential }: AssetRecord): string | undefined {
  return tags?.owner ?? credential?.owners?.[0];
}
const isOutOfScope = ({ subscriptionId }: AssetRecord): boolean => subscriptionId === OUT_OF_SCOPE_SUBSCRIPTION;
/** Returns whether the asset belongs to the second holder, which was last seen eight days ago. */
const isUnseen = ({ vaultName }: AssetRecord): boolean => vaultName.startsWith("entra-") && vaultName.endsWith("-c");
// `namePrefix`, which only the search uses, and `b2cTenant` (test/b2c/http.test.ts) have tests of their own.
const MEMBERS = Object.keys(filterValueOf).filter(
  (name) => !["namePrefix", "b2cTenant"].includes(name),
) as (keyof AssetFilter)[];
/** Filters that match no asset, or few others. */
const filtersOfNoAsset: AssetFilter[] = [
  { vault: "kv-none" },
  { search: "none" },
  { tag: { name: "none" } },
  { expiresBefore: new Date(START - daysInMs(5)) },
  { expiresBefore: new Date(START + daysInMs(3)), expiresAfter: new Date(START + daysInMs(3)) },
];
/**
 * Generates filters from the fields of one asset, so that most of them have a match. One in eight adds a filter that may
 * exclude it.
 */
const anyFilter = fc
  .record({
    assetIndex: fc.nat(),
    members: fc.uniqueArray(fc.constantFrom(...MEMBERS), { minLength: 1, maxLength: 4, size: "max" }),
    addedFilter: fc.oneof(
      { weight: 7, arbitrary: fc.constant({}) },
      { weight: 1, arbitrary: fc.constantFrom(...filtersOfNoAsset) },
    ),
  })
  .map(({ assetIndex, members, addedFilter }): AssetFilter => {
    const candidates = allAssets.filter((asset) =>
      members.every((member) => filterValueOf[member](asset) !== undefined),
    );
    const asset = candidates[assetIndex % candidates.length]!;
    return { ...Object.fromEntries(members.map((member) => [member, filterValueOf[member](asset)])), ...addedFilter };
  });

/** Returns the IDs that a list must return, in its order: a naive implementation of all filters over the whole inventory. */
function expectedIds(filter: AssetFilter): string[] {
  const { expiresBefore, expiresAfter, search, namePrefix = "", tag } = filter;
  const matching = allAssets.filter((asset) => {
    const expires = asset.expiresOn === undefined ? undefined : asset.expiresOn * 1000;
    return (
      (!filter.type || asset.type === filter.type) &&
      (!filter.status || expectedStatus(asset, moment) === filter.status) &&
      // The filter `vault` does not match a holder.
      (!filter.vault || (!asset.credential && asset.vaultName.toLowerCase() === filter.vault.toLowerCase())) &&
      (!filter.source || sourceOf(asset) === filter.source) &&
      (filter.outOfScope === undefined || isOutOfScope(asset) === filter.outOfScope) &&
      (filter.counted === undefined
        ? !isUnseen(asset)
        : !(isUnseen(asset) || isOutOfScope(asset)) === filter.counted) &&
      (!filter.subscription || asset.subscriptionId === filter.subscription) &&
      (!expiresBefore || (expires !== undefined && expires < expiresBefore.getTime())) &&
      (!expiresAfter || (expires !== undefined && expires > expiresAfter.getTime())) &&
      (!search ||
        [asset.name, asset.credential?.displayName ?? "", asset.credential?.applicationName ?? ""].some((name) =>
          name.toLowerCase().includes(search.toLowerCase()),
        )) &&
      asset.name.toLowerCase().startsWith(namePrefix.toLowerCase()) &&
      (filter.enabled === undefined || asset.enabled === filter.enabled) &&
      (!tag || (tag.value === undefined ? asset.tags?.[tag.name] : asset.tags?.[tag.name] === tag.value)) &&
      (!filter.owner || (asset.credential?.owners ?? [asset.tags?.owner]).includes(filter.owner)) &&
      (filter.hasOwner === undefined || (firstOwnerOf(asset) !== undefined) === filter.hasOwner)
    );
  });
  const byExpiry = filter.status || expiresBefore || expiresAfter || filter.sort === "expiresOn";
  const sortKey = (asset: AssetRecord) =>
    [
      ...(byExpiry ? [asset.expiresOn === undefined ? "~" : String(asset.expiresOn).padStart(10, "0")] : []),
      asset.name.toLowerCase(),
      asset.vaultName.toLowerCase(),
      asset.type,
    ].join("!");
  return matching.sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1)).map(assetId);
}

/** Number of generated requests. */
const RUNS = IS_CAMPAIGN ? 1000 : 40;

test("a list with any filters and page size returns exactly the matching assets in order", async () => {
  const caseCounts = { withoutMatches: 0, withMatches: 0, secondPage: 0, offset: 0, unindexed: 0 };
  const matchedByMember = new Map(MEMBERS.map((member) => [member, 0]));
  await fc.assert(
    fc.asyncProperty(
      anyFilter,
      fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 5, max: 30 })),
      fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 12 })),
      async (filter, limit, offset) => {
        const expectedOrder = expectedIds(filter);
        const listedIds: string[] = [];
        let pages = 0;
        let cursor: string | undefined;
        do {
          const request = cursor === undefined ? { limit, offset, cursor } : { limit, offset: 0, cursor };
          const page = await queries.list(filter, request, { ...moment, now: moment.now + listedIds.length });
          if (cursor === undefined && page.total !== null) expect(page.total).toBe(expectedOrder.length);
          expect(page.totalAtLeast ?? 0).toBeLessThanOrEqual(expectedOrder.length);
          expect(page.items.length).toBeLessThanOrEqual(limit);
          listedIds.push(...page.items.map(({ asset }) => assetId(asset)));
          if (page.items.length > 0) pages++;
          if (page.total === null) caseCounts.unindexed++;
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        expect(listedIds).toEqual(expectedOrder.slice(offset));

        if (listedIds.length === 0) caseCounts.withoutMatches++;
        else caseCounts.withMatches++;
        if (pages > 1) caseCounts.secondPage++;
        if (offset > 0 && listedIds.length > 0) caseCounts.offset++;
        for (const member of MEMBERS)
          if (member in filter && listedIds.length > 0) matchedByMember.set(member, matchedByMember.get(member)! + 1);
      },
    ),
    { numRuns: RUNS },
  );
  // Filters without matches prove nothing. These minimums are far below what the generators produce on average.
  expect(caseCounts.withMatches, "cases with matches").toBeGreaterThan(RUNS / 2);
  expect(caseCounts.secondPage, "cases with a second page").toBeGreaterThan(RUNS / 4);
  expect(caseCounts.offset, "cases with matches after an offset").toBeGreaterThan(RUNS / 15);
  expect(caseCounts.withoutMatches, "cases without matches").toBeGreaterThan(RUNS / 50);
  expect(caseCounts.unindexed, "pages of filters without an index").toBeGreaterThan(RUNS / 4);
  for (const [member, times] of matchedByMember)
    expect(times, `cases with matches of ${member}`).toBeGreaterThan(RUNS / 50);
});

test("a filter without an index reads at most 20 pages of rows per request", async () => {
  proxy.requests.length = 0;
  const first = await queries.list({ search: "x" }, { limit: 100, offset: 0, cursor: undefined }, moment);
  expect(first).toMatchObject({ total: null, totalAtLeast: first.items.length });
  expect(proxy.requests.filter((request) => request.path === "Assets()").length).toBeLessThanOrEqual(20);
  expect(first.nextCursor).not.toBeNull();
});

test("the start of a name is found with the index, where a search for a part of a name reads too many rows", async () => {
  const firstPage = { limit: 100, offset: 0, cursor: undefined };
  const page = await queries.list({ namePrefix: "X" }, firstPage, moment);
  expect(page.items.map(({ asset }) => assetId(asset))).toEqual(expectedIds({ namePrefix: "x" }));
  expect(page.total).toBe(page.items.length);
  expect((await queries.list({ search: "x" }, firstPage, moment)).total).toBeNull();
  // A full page ends the reading, so a common start of a name costs one page of rows for each type. The proxy answers with an
  // empty page before it.
  proxy.requests.length = 0;
  const common = await queries.list({ namePrefix: "d" }, { ...firstPage, limit: 2 }, moment);
  expect(common).toMatchObject({ items: [expect.anything(), expect.anything()], total: null, totalAtLeast: 2 });
  expect(proxy.requests.filter(({ path }) => path === "Assets()").length).toBeLessThanOrEqual(2 * ASSET_TYPES.length);
});

test("a list of 24 assets requests at most 50 rows for any mix of types", async () => {
  const proxyOfCall = await startTableProxy(azurite.connectionString());
  try {
    const tables = createTables({ connectionString: proxyOfCall.connectionString });
    const queriesWithoutShortPages = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });
    for (const filter of [
      { subscription: SUBSCRIPTIONS[0] },
      { type: "key" },
      { type: "key", status: "critical" },
    ] as const) {
      proxyOfCall.requests.length = 0;
      await queriesWithoutShortPages.list(filter, { limit: 24, offset: 0, cursor: undefined }, moment);
      const rowQueries = proxyOfCall.requests.filter(({ path }) => path === "Assets()");
      const rows = rowQueries.reduce((sum, { top }) => sum + top!, 0);
      expect(rows, JSON.stringify(filter)).toBeLessThanOrEqual(50);
    }
  } finally {
    await proxyOfCall.stop();
  }
});

test("an offset that one request can't skip is skipped over several requests", async () => {
  const filter = { owner: "pay" };
  const first = await queries.list(filter, { limit: 100, offset: 10, cursor: undefined }, moment);
  expect(first.items).toEqual([]);
  const listedIds: string[] = [];
  for (let cursor = first.nextCursor; cursor !== null; ) {
    const page = await queries.list(filter, { limit: 100, offset: 0, cursor }, moment);
    listedIds.push(...page.items.map(({ asset }) => assetId(asset)));
    cursor = page.nextCursor;
  }
  expect(listedIds).toEqual(expectedIds(filter).slice(10));
});

test("each listed asset has its subscription's name and the time at which it left the scope", async () => {
  const { items } = await queries.list({ source: "keyVault" }, { limit: 1000, offset: 0, cursor: undefined }, moment);
  const vaultLines = new Set(
    items.map((one) => [one.asset.vaultName, one.subscriptionName, one.outOfScopeSince].join(" ")),
  );
  expect([...vaultLines].sort()).toEqual(["Kv-B Payments ", "kv-a Payments ", "kv-a-b Web ", `kv-c  ${LEFT_SCOPE_AT}`]);
  const [left] = items.filter(({ asset }) => isOutOfScope(asset));
  const { asset: _, ...expectedFields } = left!;
  expect(await queries.get(assetId(left!.asset), moment)).toMatchObject(expectedFields);
});

describe("a summary", () => {
  const ONE_WEEK_AGO = new Date(START - daysInMs(7));
  const NO_COUNTS = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  const byStatusOf = (assets: AssetRecord[]) =>
    assets.reduce(
      (counts, asset) => {
        counts[expectedStatus(asset, moment)]++;
        return counts;
      },
      { ...NO_COUNTS },
    );
  const ownerOf = firstOwnerOf;

  test.each<[string, Omit<SummaryFilter, "since">]>([
    ["everything", {}],
    ["a type", { type: "secret" }],
    ["a subscription", { subscription: SUBSCRIPTIONS[0].toUpperCase() }],
    ["a subscription out of scope", { subscription: OUT_OF_SCOPE_SUBSCRIPTION }],
    ["key vaults", { source: "keyVault" }],
    ["credentials", { source: "entra" }],
    ["a type in a subscription", { type: "certificate", subscription: SUBSCRIPTIONS[1] }],
  ])("of %s equals a naive count of all assets", async (_, filter) => {
    const matching = allAssets.filter(
      (asset) =>
        !isUnseen(asset) &&
        (!filter.type || asset.type === filter.type) &&
        (!filter.source || sourceOf(asset) === filter.source) &&
        (!filter.subscription || asset.subscriptionId.toLowerCase() === filter.subscription.toLowerCase()),
    );
    const [outOfScope, counted] = [matching.filter(isOutOfScope), matching.filter((asset) => !isOutOfScope(asset))];
    const vaults = counted.filter((asset) => sourceOf(asset) === "keyVault");
    const queriesWithoutShortPages = createAssetQueries({
      tables: createTables({ connectionString: azurite.connectionString() }),
      ownerTag: "owner",
      licensed: async () => true,
    });
    const summary = await queriesWithoutShortPages.summary({ ...filter, since: ONE_WEEK_AGO }, moment);
    expect(summary.assets).toBe(counted.length);
    expect(summary.byStatus).toEqual(byStatusOf(counted));
    for (const type of ASSET_TYPES)
      expect(summary.byType[type]).toBe(counted.filter((asset) => asset.type === type).length);
    for (const type of ASSET_TYPES) {
      const ofType = counted.filter((asset) => asset.type === type);
      expect(summary.byTypeAndStatus[type]).toEqual(byStatusOf(ofType));
      // The array starts 28 days ago, so today is at index 28.
      const today = Math.floor(START / 1000 / DAY_SECONDS);
      expect(summary.endsByDay[type]).toEqual(
        Array.from({ length: 28 + 91 }, (_, index) => {
          const day = today - 28 + index;
          return ofType.filter(
            ({ expiresOn }) => expiresOn !== undefined && Math.floor(expiresOn / DAY_SECONDS) === day,
          ).length;
        }),
      );
    }
    expect(summary.bySource).toEqual({ keyVault: vaults.length, entra: counted.length - vaults.length, b2c: 0 });
    const bySize = <T extends { assets: number }>(
      groups: [string, AssetRecord[]][],
      toEntry: (group: [string, AssetRecord[]]) => T,
    ) => groups.map(toEntry).sort((a, b) => b.assets - a.assets);
    const grouped = (keyOf: (asset: AssetRecord) => string) => [...Map.groupBy(vaults, keyOf)];
    const expectSameEntries = <T>(actual: T[], expected: T[]) => expect(new Set(actual)).toEqual(new Set(expected));
    expectSameEntries(
      summary.subscriptions.largest,
      bySize(
        grouped((asset) => asset.subscriptionId),
        ([subscriptionId, assets]) => ({
          subscriptionId,
          name: subscriptionId === SUBSCRIPTIONS[0] ? "Payments" : "Web",
          vaults: new Set(assets.map(({ vaultName }) => vaultName)).size,
          assets: assets.length,
          byStatus: byStatusOf(assets),
        }),
      ),
    );
    expectSameEntries(
      summary.vaults.largest,
      bySize(
        grouped((asset) => asset.vaultName),
        ([name, assets]) => ({
          name,
          subscriptionId: assets[0]!.subscriptionId,
          assets: assets.length,
          byStatus: byStatusOf(assets),
        }),
      ),
    );
    expect(summary.vaults.total).toBe(grouped((asset) => asset.vaultName).length);
    const owners = Map.groupBy(
      counted.filter((asset) => ownerOf(asset) !== undefined),
      (asset) => ownerOf(asset)!,
    );
    expectSameEntries(
      summary.owners.largest,
      [...owners].map(([owner, assets]) => ({ owner, assets: assets.length })),
    );
    expect(summary.owners).toMatchObject({
      others: { owners: 0, assets: 0 },
      none: counted.filter((asset) => ownerOf(asset) === undefined).length,
      notCounted: 0,
    });
    expect(summary.outOfScope).toEqual({ vaults: outOfScope.length > 0 ? 1 : 0, assets: outOfScope.length });
    const next = await queriesWithoutShortPages.list(
      { ...filter, counted: true, expiresAfter: new Date(moment.now - 1) },
      { limit: 10, offset: 0, cursor: undefined },
      moment,
    );
    expect(summary.endsNext.map(({ asset }) => assetId(asset))).toEqual(next.items.map(({ asset }) => assetId(asset)));

    const proxyOfCall = await startTableProxy(azurite.connectionString());
    try {
      await createAssetQueries({
        tables: createTables({ connectionString: proxyOfCall.connectionString }),
        ownerTag: "owner",
        licensed: async () => true,
      }).summary({ ...filter, since: ONE_WEEK_AGO }, moment);
      // For one subscription, the scope costs a separate request. For the whole inventory, the totals do; this store has none.
      // One request more is for the settings' row, which is read every 20 seconds.
      // Certificates with a renewal plan have an index of their own.
      const maxRequests = filter.type === "secret" ? 5 : filter.source === "keyVault" ? 6 : 7;
      expect(proxyOfCall.requests.length, JSON.stringify(proxyOfCall.requests)).toBeLessThanOrEqual(maxRequests);
    } finally {
      await proxyOfCall.stop();
    }
  });

  test("counts no owners of assets that were last scanned with another owner tag", async () => {
    const tables = createTables({ connectionString: azurite.connectionString() });
    const queriesOfOtherTag = createAssetQueries({ tables, ownerTag: "team", licensed: async () => false });
    const { assets, owners } = await queriesOfOtherTag.summary({ since: ONE_WEEK_AGO }, moment);
    expect(owners).toEqual({ largest: [], others: { owners: 0, assets: 0 }, none: 0, notCounted: assets });
  });
});
