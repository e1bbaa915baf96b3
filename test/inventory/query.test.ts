import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ASSET_TYPES, type AssetRecord, assetId, sourceOf } from "../../shared/inventory/asset.ts";
import { type Moment, statusOf } from "../../shared/inventory/health.ts";
import { holderName, newHolder } from "../../shared/inventory/holder.ts";
import { type AssetFilter, createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./records.ts";

const moment: Moment = { now: START, criticalDays: 7, warningDays: 30 };
const DAY = 86_400;
const TENANT = "99999999-9999-4999-8999-999999999999";
const VAULTS = ["kv-a", "kv-a-b", "Kv-B", "kv-c"];

let azurite: TestStorage;
let proxy: TableProxy;
let queries: ReturnType<typeof createAssetQueries>;
let all: AssetRecord[];

beforeAll(async () => {
  azurite = await openStorage();
  proxy = await startTableProxy(azurite.connectionString());
  const writer = createInventoryWriter({ tables: createTables({ connectionString: proxy.connectionString }) });
  all = [];
  for (const [at, name] of VAULTS.entries()) {
    const vault = vaultRecord(name, SUBSCRIPTIONS[at % 2]);
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
  // Credentials of two sixteenths of the applications, of which one was not seen for more than a week.
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
/** A filter member that is true of `asset`, or undefined where it has no such fact. */
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
  counted: (asset) => !isUnseen(asset),
};
const isUnseen = ({ vaultName }: AssetRecord): boolean => vaultName.startsWith("entra-") && vaultName.endsWith("-c");
const MEMBERS = Object.keys(facts) as (keyof AssetFilter)[];
/** What matches no asset, or matches the other ones. */
const strange: AssetFilter[] = [
  { vault: "kv-none" },
  { search: "none" },
  { tag: { name: "none" } },
  { expiresBefore: new Date(START - days(5)) },
  { expiresBefore: new Date(START + days(3)), expiresAfter: new Date(START + days(3)) },
];
/** Facts of one asset that has them all, so that there is something to find; one in eight is beside every asset. */
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

/** What the contract says of every filter, over the whole inventory. */
function expected(filter: AssetFilter): string[] {
  const { expiresBefore, expiresAfter, search, tag } = filter;
  const found = all.filter((asset) => {
    const expires = asset.expiresOn === undefined ? undefined : asset.expiresOn * 1000;
    return (
      (!filter.type || asset.type === filter.type) &&
      (!filter.status || statusOf(asset.expiresOn, moment) === filter.status) &&
      // What holds credentials is no vault.
      (!filter.vault || (!asset.credential && asset.vaultName.toLowerCase() === filter.vault.toLowerCase())) &&
      (!filter.source || sourceOf(asset) === filter.source) &&
      isUnseen(asset) !== (filter.counted ?? true) &&
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

test("any filters together, walked in any steps over short pages, answer just what matches, in order, and its total", async () => {
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
    { numRuns: 100 },
  );
  // A walk that finds nothing proves nothing: far fewer than what the generators lead to on average.
  expect(reached.something, "cases that found something").toBeGreaterThan(50);
  expect(reached.secondPage, "cases with a second page").toBeGreaterThan(25);
  expect(reached.offset, "cases that found something behind an offset").toBeGreaterThan(7);
  expect(reached.nothing, "cases that found nothing").toBeGreaterThan(2);
  expect(reached.unindexed, "pages of filters without an index").toBeGreaterThan(25);
  for (const [member, times] of found) expect(times, `cases that found something by ${member}`).toBeGreaterThan(2);
}, 120_000);

test("a filter without an index reads a bounded number of pages a call, and a walk still sees every row once", async () => {
  proxy.requests.length = 0;
  const first = await queries.list({ search: "x" }, { limit: 100, offset: 0, cursor: undefined }, moment);
  expect(first).toMatchObject({ total: null, totalAtLeast: first.items.length });
  expect(proxy.requests.filter((request) => request.path === "Assets()").length).toBeLessThanOrEqual(20);
  expect(first.nextCursor).not.toBeNull();
});

test("an offset that one call's pages do not reach is skipped on the way, not forgotten", async () => {
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
