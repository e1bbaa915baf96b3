import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ASSET_TYPES, type AssetRecord, assetId, sourceOf } from "../../shared/inventory/asset.ts";
import { type Moment, statusOf } from "../../shared/inventory/asset-status.ts";
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
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./write-assets.ts";

const moment: Moment = { now: START, criticalDays: 7, warningDays: 30 };
const DAY = 86_400;
const TENANT = "99999999-9999-4999-8999-999999999999";
const VAULTS = ["kv-a", "kv-a-b", "Kv-B", "kv-c"];
/** A subscription out of scope. */
const LEFT = "33333333-3333-4333-8333-333333333333";
const LEFT_AT = "2026-11-20T10:00:00.000Z";

let azurite: TestStorage;
let proxy: TableProxy;
let queries: ReturnType<typeof createAssetQueries>;
let all: AssetRecord[];

beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  const writer = createInventoryWriter({ tables: createTables({ connectionString: proxy.connectionString }) });
  all = [];
  const scope = {
    watchAll: false,
    named: [...SUBSCRIPTIONS],
    namedOnlySince: LEFT_AT,
    left: {},
    names: { [SUBSCRIPTIONS[0]]: "Payments" },
    discovered: { [SUBSCRIPTIONS[0]]: "sub-payments", [SUBSCRIPTIONS[1]]: "Web" },
    unseenSince: {},
  };
  await createTables({ connectionString: proxy.connectionString }).put(ScopeRows, VAULTS_PARTITION, SCOPE_KEY, scope);
  for (const [at, name] of VAULTS.entries()) {
    const vault = vaultRecord(name, name === "kv-c" ? LEFT : SUBSCRIPTIONS[at % 2]);
    const assets: AssetRecord[] = [];
    for (const type of ASSET_TYPES) {
      // Names that are prefixes of each other, in both cases, and the same ones in every vault and of every type.
      for (const [index, title] of ["db", "db-1", "DB-2", "api", "api-db", "x"].entries()) {
        const days = [-3, 3, 12, 400, undefined, 3][(index + at) % 6];
        const expiresOn = days === undefined ? {} : { expiresOn: START / 1000 + days * DAY };
        const tags = index % 2 === 0 ? { tags: { owner: index === 2 ? "pay" : "web", env: "prod" } } : {};
        assets.push(assetRecord(vault, type, title, { ...expiresOn, ...tags, enabled: index !== 3 }));
      }
    }
    await writeVault(writer, vault, assets);
    all.push(...assets);
  }
  // Credentials of two holders, one of which was not seen for more than a week.
  for (const [at, bucket] of ["3", "c"].entries()) {
    const seenAt = new Date(START - at * 8 * DAY * 1000).toISOString();
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
      const expiresOn = days === undefined ? {} : { expiresOn: START / 1000 + days * DAY };
      const type = index % 2 === 0 ? "secret" : "certificate";
      return assetRecord(vault, type, `${appId}-${keyId}`, { ...expiresOn, credential, source: "entra" });
    });
    await writeVault(writer, vault, assets);
    all.push(...assets);
  }
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

const days = (count: number) => count * DAY * 1000;
/** Returns a filter that matches `asset`, or undefined if it lacks the field. */
const facts: { [K in keyof AssetFilter]-?: (asset: AssetRecord) => AssetFilter[K] } = {
  type: (asset) => asset.type,
  status: (asset) => statusOf(asset.expiresOn, moment),
  vault: (asset) => asset.vaultName.toUpperCase(),
  subscription: (asset) => (asset.credential ? undefined : asset.subscriptionId),
  expiresBefore: (asset) => (asset.expiresOn === undefined ? undefined : new Date(asset.expiresOn * 1000 + days(2))),
  expiresAfter: (asset) => (asset.expiresOn === undefined ? undefined : new Date(asset.expiresOn * 1000 - days(2))),
  search: ({ name, credential }) => (credential?.applicationName ?? name).slice(-2).toUpperCase(),
  enabled: (asset) => asset.enabled,
  tag: (asset) => asset.tags && { name: "owner", value: asset.tags.owner! },
  owner: (asset) => asset.tags?.owner ?? asset.credential?.owners?.[0],
  sort: () => "expiresOn",
  source: sourceOf,
  counted: (asset) => !isUnseen(asset) && !isOut(asset),
  outOfScope: (asset) => isOut(asset),
};
const isOut = ({ subscriptionId }: AssetRecord): boolean => subscriptionId === LEFT;
const isUnseen = ({ vaultName }: AssetRecord): boolean => vaultName.startsWith("entra-") && vaultName.endsWith("-c");
const MEMBERS = Object.keys(facts) as (keyof AssetFilter)[];
/** A filter that matches no asset, or other assets. */
const strange: AssetFilter[] = [
  { vault: "kv-none" },
  { search: "none" },
  { tag: { name: "none" } },
  { expiresBefore: new Date(START - days(5)) },
  { expiresBefore: new Date(START + days(3)), expiresAfter: new Date(START + days(3)) },
];
/** Filters of one asset's fields, so that there is a match. One in eight does not match the asset. */
const filters = fc
  .record({
    at: fc.nat(),
    members: fc.uniqueArray(fc.constantFrom(...MEMBERS), { minLength: 1, maxLength: 4, size: "max" }),
    beside: fc.oneof({ weight: 7, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: fc.constantFrom(...strange) }),
  })
  .map(({ at, members, beside }): AssetFilter => {
    const having = all.filter((asset) => members.every((member) => facts[member](asset) !== undefined));
    const asset = having[at % having.length]!;
    return { ...Object.fromEntries(members.map((member) => [member, facts[member](asset)])), ...beside };
  });

/** A naive implementation of every filter over the whole inventory. */
function expected(filter: AssetFilter): string[] {
  const { expiresBefore, expiresAfter, search, tag } = filter;
  const found = all.filter((asset) => {
    const expires = asset.expiresOn === undefined ? undefined : asset.expiresOn * 1000;
    return (
      (!filter.type || asset.type === filter.type) &&
      (!filter.status || statusOf(asset.expiresOn, moment) === filter.status) &&
      // A holder of credentials is no vault.
      (!filter.vault || (!asset.credential && asset.vaultName.toLowerCase() === filter.vault.toLowerCase())) &&
      (!filter.source || sourceOf(asset) === filter.source) &&
      (filter.outOfScope === undefined || isOut(asset) === filter.outOfScope) &&
      (filter.counted === undefined ? !isUnseen(asset) : !(isUnseen(asset) || isOut(asset)) === filter.counted) &&
      (!filter.subscription || asset.subscriptionId === filter.subscription) &&
      (!expiresBefore || (expires !== undefined && expires < expiresBefore.getTime())) &&
      (!expiresAfter || (expires !== undefined && expires > expiresAfter.getTime())) &&
      (!search ||
        [asset.name, asset.credential?.displayName ?? "", asset.credential?.applicationName ?? ""].some((name) =>
          name.toLowerCase().includes(search.toLowerCase()),
        )) &&
      (filter.enabled === undefined || asset.enabled === filter.enabled) &&
      (!tag || (tag.value === undefined ? asset.tags?.[tag.name] : asset.tags?.[tag.name] === tag.value)) &&
      (!filter.owner || (asset.credential?.owners ?? [asset.tags?.owner]).includes(filter.owner))
    );
  });
  const byExpiry = filter.status || expiresBefore || expiresAfter || filter.sort === "expiresOn";
  const place = (asset: AssetRecord) =>
    [
      ...(byExpiry ? [asset.expiresOn === undefined ? "~" : String(asset.expiresOn).padStart(10, "0")] : []),
      asset.name.toLowerCase(),
      asset.vaultName.toLowerCase(),
      asset.type,
    ].join("!");
  return found.sort((a, b) => (place(a) < place(b) ? -1 : 1)).map(assetId);
}

const RUNS = IS_CAMPAIGN ? 1000 : 40;

test("any combination of filters, read in pages of any size, returns exactly the matches, in order, and their total", async () => {
  const reached = { nothing: 0, something: 0, secondPage: 0, offset: 0, unindexed: 0 };
  const found = new Map(MEMBERS.map((member) => [member, 0]));
  await fc.assert(
    fc.asyncProperty(
      filters,
      fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 5, max: 30 })),
      fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 12 })),
      async (filter, limit, offset) => {
        const wanted = expected(filter);
        const walked: string[] = [];
        let pages = 0;
        let cursor: string | undefined;
        do {
          const request = cursor === undefined ? { limit, offset, cursor } : { limit, offset: 0, cursor };
          const page = await queries.list(filter, request, { ...moment, now: moment.now + walked.length });
          if (cursor === undefined && page.total !== null) expect(page.total).toBe(wanted.length);
          expect(page.totalAtLeast ?? 0).toBeLessThanOrEqual(wanted.length);
          expect(page.items.length).toBeLessThanOrEqual(limit);
          walked.push(...page.items.map(({ asset }) => assetId(asset)));
          if (page.items.length > 0) pages++;
          if (page.total === null) reached.unindexed++;
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        expect(walked).toEqual(wanted.slice(offset));

        if (walked.length === 0) reached.nothing++;
        else reached.something++;
        if (pages > 1) reached.secondPage++;
        if (offset > 0 && walked.length > 0) reached.offset++;
        for (const member of MEMBERS)
          if (member in filter && walked.length > 0) found.set(member, found.get(member)! + 1);
      },
    ),
    { numRuns: RUNS },
  );
  // Filters without matches prove nothing. This minimum is far below the average of the generators.
  expect(reached.something, "cases that found something").toBeGreaterThan(RUNS / 2);
  expect(reached.secondPage, "cases with a second page").toBeGreaterThan(RUNS / 4);
  expect(reached.offset, "cases that found something behind an offset").toBeGreaterThan(RUNS / 15);
  expect(reached.nothing, "cases that found nothing").toBeGreaterThan(RUNS / 50);
  expect(reached.unindexed, "pages of filters without an index").toBeGreaterThan(RUNS / 4);
  for (const [member, times] of found)
    expect(times, `cases that found something by ${member}`).toBeGreaterThan(RUNS / 50);
});

test("a filter without an index reads a limited number of pages per call, and all pages together contain every row once", async () => {
  proxy.requests.length = 0;
  const first = await queries.list({ search: "x" }, { limit: 100, offset: 0, cursor: undefined }, moment);
  expect(first).toMatchObject({ total: null, totalAtLeast: first.items.length });
  expect(proxy.requests.filter((request) => request.path === "Assets()").length).toBeLessThanOrEqual(20);
  expect(first.nextCursor).not.toBeNull();
});

test("a list requests at most two pages of rows, however the types are mixed", async () => {
  const requests = await startTableProxy(azurite.connectionString());
  try {
    const tables = createTables({ connectionString: requests.connectionString });
    const plain = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => true });
    for (const filter of [
      { subscription: SUBSCRIPTIONS[0] },
      { type: "key" },
      { type: "key", status: "critical" },
    ] as const) {
      requests.requests.length = 0;
      await plain.list(filter, { limit: 24, offset: 0, cursor: undefined }, moment);
      const asked = requests.requests.filter(({ path }) => path === "Assets()");
      const rows = asked.reduce((sum, { top }) => sum + top!, 0);
      expect(rows, JSON.stringify(filter)).toBeLessThanOrEqual(50);
    }
  } finally {
    await requests.stop();
  }
});

test("an offset larger than one call's pages is skipped over several calls", async () => {
  const filter = { owner: "pay" };
  const first = await queries.list(filter, { limit: 100, offset: 10, cursor: undefined }, moment);
  expect(first.items).toEqual([]);
  const walked: string[] = [];
  for (let cursor = first.nextCursor; cursor !== null; ) {
    const page = await queries.list(filter, { limit: 100, offset: 0, cursor }, moment);
    walked.push(...page.items.map(({ asset }) => assetId(asset)));
    cursor = page.nextCursor;
  }
  expect(walked).toEqual(expected(filter).slice(10));
});

test("a list by name contains whether and since when each asset is out of scope, and its subscription's name", async () => {
  const { items } = await queries.list({ source: "keyVault" }, { limit: 1000, offset: 0, cursor: undefined }, moment);
  const alertItems = new Set(
    items.map((one) => [one.asset.vaultName, one.subscriptionName, one.outOfScopeSince].join(" ")),
  );
  expect([...alertItems].sort()).toEqual(["Kv-B Payments ", "kv-a Payments ", "kv-a-b Web ", `kv-c  ${LEFT_AT}`]);
  const [left] = items.filter(({ asset }) => isOut(asset));
  const { asset: _, ...said } = left!;
  expect(await queries.get(assetId(left!.asset), moment)).toMatchObject(said);
});

describe("the summary", () => {
  const WEEK = new Date(START - days(7));
  const NO_COUNTS = { healthy: 0, warning: 0, critical: 0, expired: 0 };
  const byStatusOf = (assets: AssetRecord[]) =>
    assets.reduce(
      (counts, { expiresOn }) => {
        counts[statusOf(expiresOn, moment)]++;
        return counts;
      },
      { ...NO_COUNTS },
    );
  const ownerOf = ({ credential, tags }: AssetRecord) => credential?.owners?.[0] ?? tags?.owner;

  test.each<[string, Omit<SummaryFilter, "since">]>([
    ["everything", {}],
    ["a type", { type: "secret" }],
    ["a subscription", { subscription: SUBSCRIPTIONS[0].toUpperCase() }],
    ["a subscription out of scope", { subscription: LEFT }],
    ["key vaults", { source: "keyVault" }],
    ["credentials", { source: "entra" }],
    ["a type in a subscription", { type: "certificate", subscription: SUBSCRIPTIONS[1] }],
  ])("of %s equals a count of every asset, with at most six requests", async (_, filter) => {
    const asked = all.filter(
      (asset) =>
        !isUnseen(asset) &&
        (!filter.type || asset.type === filter.type) &&
        (!filter.source || sourceOf(asset) === filter.source) &&
        (!filter.subscription || asset.subscriptionId.toLowerCase() === filter.subscription.toLowerCase()),
    );
    const [left, counted] = [asked.filter(isOut), asked.filter((asset) => !isOut(asset))];
    const vaults = counted.filter((asset) => sourceOf(asset) === "keyVault");
    const plain = createAssetQueries({
      tables: createTables({ connectionString: azurite.connectionString() }),
      ownerTag: "owner",
      licensed: async () => true,
    });
    const summary = await plain.summary({ ...filter, since: WEEK }, moment);
    expect(summary.assets).toBe(counted.length);
    expect(summary.byStatus).toEqual(byStatusOf(counted));
    for (const type of ASSET_TYPES)
      expect(summary.byType[type]).toBe(counted.filter((asset) => asset.type === type).length);
    for (const type of ASSET_TYPES) {
      const own = counted.filter((asset) => asset.type === type);
      expect(summary.byTypeAndStatus[type]).toEqual(byStatusOf(own));
      // From 28 days ago on; today is the 29th.
      const today = Math.floor(START / 1000 / DAY);
      expect(summary.endsByDay[type]).toEqual(
        Array.from({ length: 28 + 91 }, (_, at) => {
          const day = today - 28 + at;
          return own.filter(({ expiresOn }) => expiresOn !== undefined && Math.floor(expiresOn / DAY) === day).length;
        }),
      );
    }
    expect(summary.bySource).toEqual({ keyVault: vaults.length, entra: counted.length - vaults.length, b2c: 0 });
    const bySize = <T extends { assets: number }>(
      own: [string, AssetRecord[]][],
      make: (of: [string, AssetRecord[]]) => T,
    ) => own.map(make).sort((a, b) => b.assets - a.assets);
    const grouped = (keyOf: (asset: AssetRecord) => string) => [...Map.groupBy(vaults, keyOf)];
    const sameInAnyOrder = <T>(found: T[], wanted: T[]) => expect(new Set(found)).toEqual(new Set(wanted));
    sameInAnyOrder(
      summary.subscriptions.largest,
      bySize(
        grouped((asset) => asset.subscriptionId),
        ([subscriptionId, own]) => ({
          subscriptionId,
          name: subscriptionId === SUBSCRIPTIONS[0] ? "Payments" : "Web",
          vaults: new Set(own.map(({ vaultName }) => vaultName)).size,
          assets: own.length,
          byStatus: byStatusOf(own),
        }),
      ),
    );
    sameInAnyOrder(
      summary.vaults.largest,
      bySize(
        grouped((asset) => asset.vaultName),
        ([name, own]) => ({
          name,
          subscriptionId: own[0]!.subscriptionId,
          assets: own.length,
          byStatus: byStatusOf(own),
        }),
      ),
    );
    expect(summary.vaults.total).toBe(grouped((asset) => asset.vaultName).length);
    const owners = Map.groupBy(
      counted.filter((asset) => ownerOf(asset) !== undefined),
      (asset) => ownerOf(asset)!,
    );
    sameInAnyOrder(
      summary.owners.largest,
      [...owners].map(([owner, own]) => ({ owner, assets: own.length })),
    );
    expect(summary.owners).toMatchObject({
      others: { owners: 0, assets: 0 },
      none: counted.filter((asset) => ownerOf(asset) === undefined).length,
      notCounted: 0,
    });
    expect(summary.outOfScope).toEqual({ vaults: left.length > 0 ? 1 : 0, assets: left.length });
    const next = await plain.list(
      { ...filter, counted: true, expiresAfter: new Date(moment.now - 1) },
      { limit: 10, offset: 0, cursor: undefined },
      moment,
    );
    expect(summary.endsNext.map(({ asset }) => assetId(asset))).toEqual(next.items.map(({ asset }) => assetId(asset)));

    const requests = await startTableProxy(azurite.connectionString());
    try {
      await createAssetQueries({
        tables: createTables({ connectionString: requests.connectionString }),
        ownerTag: "owner",
        licensed: async () => true,
      }).summary({ ...filter, since: WEEK }, moment);
      // In addition, the settings' row is read every 20 seconds. For one subscription the scope is a separate request. For all,
      // the totals are a separate request, and this store has none.
      const most = filter.type === "secret" || filter.source === "keyVault" ? 5 : 6;
      expect(requests.requests.length, JSON.stringify(requests.requests)).toBeLessThanOrEqual(most);
    } finally {
      await requests.stop();
    }
  });

  test("the summary contains how many owners still have to be recounted", async () => {
    const tables = createTables({ connectionString: azurite.connectionString() });
    const other = createAssetQueries({ tables, ownerTag: "team", licensed: async () => false });
    const { assets, owners } = await other.summary({ since: WEEK }, moment);
    expect(owners).toEqual({ largest: [], others: { owners: 0, assets: 0 }, none: 0, notCounted: assets });
  });
});
