import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { ASSET_TYPES, type AssetRecord, assetId } from "../../shared/inventory/asset.ts";
import { type Moment, STATUSES, statusOf } from "../../shared/inventory/health.ts";
import { type AssetFilter, createAssetQueries } from "../../shared/inventory/query.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/storage/tables.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./records.ts";

const moment: Moment = { now: START, criticalDays: 7, warningDays: 30 };
const DAY = 86_400;
const VAULTS = ["kv-a", "kv-a-b", "Kv-B", "kv-c"];

let azurite: Azurite;
let proxy: TableProxy;
let queries: ReturnType<typeof createAssetQueries>;
let all: AssetRecord[];

beforeAll(async () => {
  azurite = await startAzurite();
  proxy = await startTableProxy(azurite.connectionString());
  const clock = { now: () => new Date(START) };
  const writer = createInventoryWriter({ tables: createTables({ connectionString: proxy.connectionString }), clock });
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
  proxy.shortPages(4);
  queries = createAssetQueries({
    tables: createTables({ connectionString: proxy.connectionString }),
    ownerTag: "owner",
  });
});
afterAll(async () => {
  await proxy?.stop();
  await azurite?.stop();
});

const some = <T>(values: fc.Arbitrary<T>) => fc.option(values, { nil: undefined });
const filters = fc
  .record({
    type: some(fc.constantFrom(...ASSET_TYPES)),
    status: some(fc.constantFrom(...STATUSES)),
    vault: some(fc.constantFrom("KV-A", "kv-a-b", "kv-b", "kv-none")),
    subscription: some(fc.constantFrom(...SUBSCRIPTIONS)),
    expiresBefore: some(fc.integer({ min: -5, max: 20 }).map((days) => new Date(START + days * DAY * 1000))),
    expiresAfter: some(fc.integer({ min: -5, max: 20 }).map((days) => new Date(START + days * DAY * 1000))),
    search: some(fc.constantFrom("db", "API", "1", "none")),
    enabled: some(fc.boolean()),
    tag: some(fc.constantFrom({ name: "owner" }, { name: "owner", value: "pay" }, { name: "none" })),
    owner: some(fc.constantFrom("web", "pay")),
    sort: some(fc.constant("expiresOn" as const)),
  })
  .map((filter) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined)));

/** What the contract says of every filter, over the whole inventory. */
function expected(filter: AssetFilter): string[] {
  const { expiresBefore, expiresAfter, search, tag } = filter;
  const found = all.filter((asset) => {
    const expires = asset.expiresOn === undefined ? undefined : asset.expiresOn * 1000;
    return (
      (!filter.type || asset.type === filter.type) &&
      (!filter.status || statusOf(asset.expiresOn, moment) === filter.status) &&
      (!filter.vault || asset.vaultName.toLowerCase() === filter.vault.toLowerCase()) &&
      (!filter.subscription || asset.subscriptionId === filter.subscription) &&
      (!expiresBefore || (expires !== undefined && expires < expiresBefore.getTime())) &&
      (!expiresAfter || (expires !== undefined && expires > expiresAfter.getTime())) &&
      (!search || asset.name.toLowerCase().includes(search.toLowerCase())) &&
      (filter.enabled === undefined || asset.enabled === filter.enabled) &&
      (!tag || (tag.value === undefined ? asset.tags?.[tag.name] : asset.tags?.[tag.name] === tag.value)) &&
      (!filter.owner || asset.tags?.owner === filter.owner)
    );
  });
  const byExpiry = filter.status || expiresBefore || expiresAfter || filter.sort === "expiresOn";
  const place = (asset: AssetRecord) =>
    [
      ...(byExpiry ? [asset.expiresOn === undefined ? "~" : String(asset.expiresOn).padStart(10, "0")] : []),
      ...[asset.name.toLowerCase(), asset.vaultName.toLowerCase(), asset.type],
    ].join("!");
  return found.sort((a, b) => (place(a) < place(b) ? -1 : 1)).map(assetId);
}

test("any filters together, walked in any steps over short pages, answer just what matches, in order, and its total", async () => {
  await fc.assert(
    fc.asyncProperty(
      filters,
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 0, max: 12 }),
      async (filter, limit, offset) => {
        const wanted = expected(filter);
        const walked: string[] = [];
        let cursor: string | undefined;
        do {
          const request = cursor === undefined ? { limit, offset, cursor } : { limit, offset: 0, cursor };
          const page = await queries.list(filter, request, { ...moment, now: moment.now + walked.length });
          if (cursor === undefined && page.total !== null) expect(page.total).toBe(wanted.length);
          expect(page.totalAtLeast ?? 0).toBeLessThanOrEqual(wanted.length);
          expect(page.items.length).toBeLessThanOrEqual(limit);
          walked.push(...page.items.map(({ asset }) => assetId(asset)));
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        expect(walked).toEqual(wanted.slice(offset));
      },
    ),
    { numRuns: 200 },
  );
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
