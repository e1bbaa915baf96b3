/*
 * The totals: one row with the counts of all vaults' assets, so that counts need not read every vault's row. A changed vault
 * gets a mark, a row with its counts before and after, until `renewTotals` counts it. Concurrent writers, crashes and earlier
 * versions of the service must not make counts differ from a recount. A holder is an entry that contains credentials outside of
 * key vaults.
 */
import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ASSET_TYPES, type AssetRecord, assetId, sourceOf } from "../../shared/inventory/asset.ts";
import { type Moment, STATUSES } from "../../shared/inventory/asset-status.ts";
import type { LoggedChange } from "../../shared/inventory/change-log.ts";
import {
  ChangedVaults,
  MARK_PREFIX,
  markKey,
  writeVault as writeChangedVault,
} from "../../shared/inventory/changed-vaults.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { holderName, newHolder } from "../../shared/inventory/holder.ts";
import { type AssetFilter, createAssetQueries } from "../../shared/inventory/query.ts";
import { renewTotals } from "../../shared/inventory/renew-totals.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import { changeView } from "../../shared/inventory/summary-api.ts";
import { summaryLayoutAt } from "../../shared/inventory/summary-totals.ts";
import { TOTALS_END_KEY, TOTALS_KEY, TotalsRows } from "../../shared/inventory/totals.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { type Entity, withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, put, type Range, RowChanged, type Tables } from "../../shared/platform/storage/tables.ts";
import { startDelayedWork } from "../support/delayed-tables.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetRecord, expectedStatus, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./write-assets.ts";

const DAY_SECONDS = 86_400;
const VAULT_NAMES = ["kv-a", "kv-b", "kv-c"];
const HOLDER = holderName("99999999-9999-4999-8999-999999999999", "3");
/** Expiries in seconds after `START`: at and next to the times at which statuses change, far away, and none. */
const EXPIRIES = [
  -1,
  0,
  1,
  7 * DAY_SECONDS,
  7 * DAY_SECONDS + 1,
  30 * DAY_SECONDS,
  30 * DAY_SECONDS + 1,
  -400 * DAY_SECONDS,
  400 * DAY_SECONDS,
  3 * DAY_SECONDS,
  undefined,
];
const FILTERS: AssetFilter[] = [
  {},
  { counted: true },
  { source: "keyVault" },
  ...ASSET_TYPES.map((type) => ({ type })),
  ...STATUSES.map((status) => ({ status })),
];
const OWNERS = ["payments@contoso.com", "web@contoso.com", undefined];
/** Number of generated schedules. */
const RUNS = IS_CAMPAIGN ? 100 : 12;

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["schedules", "upgraded", "moments", "largest", "before", "sizes", "next", "besides"]);
});
afterAll(() => storage?.stop());

type Fixture = ReturnType<typeof openFixture>;
function openFixture(account: string) {
  const connectionString = storage.connectionString(account);
  const tables = createTables({ connectionString });
  const counts = { readsOfAllRows: 0, totalsReads: 0 };
  /** Counts the reads of the totals, and the queries that had to read all vaults' rows. */
  const countingTables: Tables = {
    ...tables,
    pages: ((e: Entity<unknown>, range: Range & { select: never[] }) => {
      if (range.from === TOTALS_KEY) counts.totalsReads++;
      if (range.from === SCOPE_KEY) counts.readsOfAllRows++;
      return tables.pages(e, range);
    }) as Tables["pages"],
  };
  return {
    tables,
    counts,
    writer: createInventoryWriter({ tables }),
    queries: createAssetQueries({ tables: countingTables, ownerTag: "owner", licensed: async () => true }),
  };
}

/** The assets that each vault and holder must contain, by name. */
type ExpectedAssets = Map<string, AssetRecord[]>;

/** Replaces the assets of a vault or holder, as a scan does. Vaults with an odd number of assets count as unreadable. */
async function scan(
  fixture: Fixture,
  expectedAssets: ExpectedAssets,
  name: string,
  expiries: (number | undefined)[],
): Promise<void> {
  const startText = new Date(START).toISOString();
  const isHolder = name === HOLDER;
  const vault = isHolder
    ? { ...newHolder({ name, source: "entra", tenantId: "t" }, startText), listedAt: { secret: startText } }
    : { ...vaultRecord(name, SUBSCRIPTIONS[VAULT_NAMES.indexOf(name) % 2]), failedScans: expiries.length % 2 };
  const assets = expiries.map((expiry, index) => {
    const type = isHolder ? "secret" : ASSET_TYPES[index % 3]!;
    const expiresOn = expiry === undefined ? {} : { expiresOn: START / 1000 + expiry };
    const owner = OWNERS[(index + expiries.length) % OWNERS.length];
    const sourceOrOwner = isHolder ? { source: "entra" as const } : owner === undefined ? {} : { tags: { owner } };
    return assetRecord(vault, type, `a-${index}`, {
      ...expiresOn,
      ...sourceOrOwner,
      ...(type === "certificate" && planOf(expiry, index)),
    });
  });
  await writeVault(fixture.writer, vault, assets);
  expectedAssets.set(name, assets);
}

/** Returns the renewal plan of two in three certificates: with windows around `START`, or without a known window. */
function planOf(expiry: number | undefined, index: number): Pick<AssetRecord, "renewal" | "notBefore"> {
  if (expiry === undefined || index % 9 === 0) return {};
  const expiresOn = START / 1000 + expiry;
  const lifetime = 60 * DAY_SECONDS;
  const notBefore = expiresOn - lifetime;
  if (index % 9 === 3)
    return { notBefore, renewal: { renewedBy: "certManager", attentionAt: expiresOn - lifetime / 3 } };
  const windowEnd = Math.min(START / 1000 + ((index % 5) - 2), expiresOn - 2);
  return { notBefore, renewal: { renewedBy: "acmebot", source: "ari", windowEnd, attentionAt: windowEnd + 1 } };
}

async function removeVault(fixture: Fixture, expectedAssets: ExpectedAssets, name: string): Promise<void> {
  await fixture.writer.forget(await fixture.writer.readForUpdate(name), "test", async () => async () => {});
  expectedAssets.delete(name);
}

const renewTotalsAtStart = (tables: Tables) => renewTotals(tables, momentAt(START));
const momentAt = (now: number): Moment => ({ now, criticalDays: 7, warningDays: 30 });

/** Compares figures, a list and the summary with a recount of the expected assets. */
async function expectCorrectCounts(
  fixture: Fixture,
  expectedAssets: ExpectedAssets,
  now: number,
  filter: AssetFilter,
): Promise<void> {
  const all = [...expectedAssets.values()].flat();
  const moment = momentAt(now);
  const figures = await fixture.queries.figures(moment);
  const expectedCounts = Object.fromEntries(
    ASSET_TYPES.map((type) => {
      const counts = { healthy: 0, warning: 0, critical: 0, expired: 0 };
      for (const asset of all) if (asset.type === type) counts[expectedStatus(asset, moment)]++;
      return [type, counts];
    }),
  );
  expect(figures.assets).toEqual(expectedCounts);
  const vaults = [...expectedAssets].filter(([name]) => name !== HOLDER);
  expect([figures.vaults, figures.unreadable]).toEqual([
    vaults.length,
    vaults.filter(([, assets]) => assets.length % 2 === 1).length,
  ]);
  const page = await fixture.queries.list(filter, { limit: 200, offset: 0, cursor: undefined }, moment);
  const matching = all.filter(
    (asset) =>
      (!filter.type || asset.type === filter.type) &&
      (!filter.source || sourceOf(asset) === filter.source) &&
      (!filter.status || expectedStatus(asset, moment) === filter.status),
  );
  expect([page.total, page.items.length]).toEqual([matching.length, matching.length]);
  await expectSummary(fixture, expectedAssets, moment);
}

/**
 * Days before today, and from today on, that a summary counts individually. Written out here, because they are part of the API.
 */
const PAST_DAYS = 28;
const NEXT_DAYS = 91;

/** Compares the summary of the whole inventory with a recount of the expected assets. */
async function expectSummary(fixture: Fixture, expectedAssets: ExpectedAssets, moment: Moment): Promise<void> {
  const all = [...expectedAssets.values()].flat();
  const summary = await fixture.queries.summary({ since: new Date(START) }, moment);
  const byStatus = (assets: readonly AssetRecord[]) => {
    const counts = { healthy: 0, warning: 0, critical: 0, expired: 0 };
    for (const asset of assets) counts[expectedStatus(asset, moment)]++;
    return counts;
  };
  const ofType = (type: string) => all.filter((asset) => asset.type === type);
  const firstDay = Math.floor(moment.now / 1000 / DAY_SECONDS) - PAST_DAYS;
  const byDay = (assets: readonly AssetRecord[]) =>
    Array.from(
      { length: PAST_DAYS + NEXT_DAYS },
      (_, index) => assets.filter(({ expiresOn = -1 }) => dayOf(expiresOn) === firstDay + index).length,
    );
  const vaults = [...expectedAssets].filter(([name]) => name !== HOLDER);
  const bySubscription = Map.groupBy(vaults, ([name]) => subscriptionOf(name));
  const owners = Map.groupBy(all, ({ tags }) => tags?.owner);
  const noOwners = owners.get(undefined)?.length ?? 0;
  owners.delete(undefined);
  const bySize = (a: { name: string; assets: number }, b: { name: string; assets: number }) =>
    b.assets - a.assets || (a.name < b.name ? -1 : 1);
  expect({ ...summary, changes: undefined, endsNext: undefined }).toEqual({
    assets: all.length,
    byStatus: byStatus(all),
    byType: Object.fromEntries(ASSET_TYPES.map((type) => [type, ofType(type).length])),
    byTypeAndStatus: Object.fromEntries(ASSET_TYPES.map((type) => [type, byStatus(ofType(type))])),
    bySource: {
      keyVault: all.length - (expectedAssets.get(HOLDER)?.length ?? 0),
      entra: expectedAssets.get(HOLDER)?.length ?? 0,
      b2c: 0,
    },
    subscriptions: {
      largest: [...bySubscription]
        .map(([name, own]) => ({ name, vaults: own.length, assets: own.flatMap(([, assets]) => assets) }))
        .sort((a, b) => bySize({ ...a, assets: a.assets.length }, { ...b, assets: b.assets.length }))
        .map(({ name, vaults, assets }) => ({
          subscriptionId: name,
          name: undefined,
          vaults,
          assets: assets.length,
          byStatus: byStatus(assets),
        })),
      others: { subscriptions: 0, assets: 0 },
    },
    vaults: {
      total: vaults.length,
      largest: vaults
        .map(([name, assets]) => ({ name, assets: assets.length }))
        .sort(bySize)
        .map(({ name, assets }) => ({
          name,
          subscriptionId: subscriptionOf(name),
          assets,
          byStatus: byStatus(expectedAssets.get(name)!),
        })),
      others: { vaults: 0, assets: 0 },
    },
    owners: {
      largest: [...owners]
        .map(([owner, own]) => ({ name: owner!, assets: own.length }))
        .sort(bySize)
        .map(({ name, assets }) => ({ owner: name, assets })),
      others: { owners: 0, assets: 0 },
      none: noOwners,
      notCounted: 0,
    },
    endsByDay: Object.fromEntries(ASSET_TYPES.map((type) => [type, byDay(ofType(type))])),
    outOfScope: { vaults: 0, assets: 0 },
    changes: undefined,
    endsNext: undefined,
  });
  const expectedNext = all
    .filter(({ expiresOn }) => expiresOn !== undefined && expiresOn * 1000 >= moment.now)
    .sort((a, b) => a.expiresOn! - b.expiresOn! || (sortKeyOf(a) < sortKeyOf(b) ? -1 : 1));
  expect(summary.endsNext.map(({ asset }) => assetId(asset))).toEqual(expectedNext.slice(0, 10).map(assetId));
}

const dayOf = (instant: number): number => Math.floor(instant / DAY_SECONDS);
const subscriptionOf = (name: string): string => SUBSCRIPTIONS[VAULT_NAMES.indexOf(name) % 2]!;
const sortKeyOf = ({ name, vaultName, type }: AssetRecord): string => `${name}!${vaultName}`.toLowerCase() + type;

/** Generates schedules: sequences of scans, removals, and renewals that stop halfway. */
const anySchedule = fc.array(
  fc.oneof(
    // A scan of a vault or holder.
    {
      weight: 5,
      arbitrary: fc.record({
        name: fc.constantFrom(...VAULT_NAMES, HOLDER),
        expiries: fc.array(fc.constantFrom(...EXPIRIES), { maxLength: 4 }),
      }),
    },
    // The removal of a vault or holder.
    { weight: 1, arbitrary: fc.record({ removed: fc.constantFrom(...VAULT_NAMES, HOLDER) }) },
    // A renewal that stops before this request, and continues or crashes there when a later step releases it.
    {
      weight: 4,
      arbitrary: fc.record({ stopsBefore: fc.nat({ max: 6 }), crashes: fc.constantFrom(false, false, true) }),
    },
    // The stopped renewal with this index is released.
    { weight: 2, arbitrary: fc.record({ released: fc.nat({ max: 2 }) }) },
    // All counts are compared, with a list of this filter.
    { weight: 2, arbitrary: fc.record({ comparedFilter: fc.constantFrom(...FILTERS) }) },
  ),
  { minLength: 6, maxLength: 12 },
);

test("all counts equal a recount after any concurrent writes and crashes during renewals", async () => {
  const fixture = openFixture("schedules");
  const expectedAssets: ExpectedAssets = new Map();
  await fc.assert(
    fc.asyncProperty(anySchedule, async (schedule) => {
      const delayedRenewals: (() => Promise<void>)[] = [];
      for (const step of schedule) {
        if ("name" in step) await scan(fixture, expectedAssets, step.name, step.expiries);
        else if ("removed" in step) await removeVault(fixture, expectedAssets, step.removed);
        else if ("stopsBefore" in step)
          delayedRenewals.push(
            startDelayedWork(
              fixture.tables,
              { requestNumber: step.stopsBefore, crashes: step.crashes },
              renewTotalsAtStart,
            ),
          );
        else if ("released" in step) await delayedRenewals.splice(step.released, 1)[0]?.();
        else await expectCorrectCounts(fixture, expectedAssets, START, step.comparedFilter);
      }
      await expectCorrectCounts(fixture, expectedAssets, START, {});
      for (const release of delayedRenewals.reverse()) await release();
      await expectCorrectCounts(fixture, expectedAssets, START, {});
    }),
    { numRuns: RUNS },
  );
  expect(fixture.counts.totalsReads, "queries").toBeGreaterThan(RUNS * 3);
  expect(fixture.counts.readsOfAllRows, "queries that read every vault").toBeLessThan(fixture.counts.totalsReads / 2);
  await renewTotals(fixture.tables, momentAt(START));
  const remainingMarks: string[] = [];
  const range = { partitionKey: VAULTS, from: MARK_PREFIX, before: TOTALS_END_KEY, select: [] };
  for await (const rows of fixture.tables.pages(ChangedVaults, range))
    remainingMarks.push(...rows.map(({ rowKey }) => rowKey));
  // Totals count only vaults, so a holder always has a mark.
  expect(remainingMarks).toEqual(expectedAssets.has(HOLDER) ? [markKey(HOLDER)] : []);
}, 600_000);

test("counts come from the vaults' rows until totals exist, and then from the totals", async () => {
  const fixture = openFixture("upgraded");
  const expectedAssets: ExpectedAssets = new Map();
  for (const [index, name] of [...VAULT_NAMES, HOLDER].entries())
    await scan(fixture, expectedAssets, name, EXPIRIES.slice(index));
  // An earlier version wrote no marks.
  for (const name of [...VAULT_NAMES, HOLDER]) await fixture.tables.remove(ChangedVaults, VAULTS, markKey(name));
  await expectCorrectCounts(fixture, expectedAssets, START, {});
  // Figures and the list first try the columns of the totals by status, then those by day. The summary has columns of its own.
  expect(fixture.counts).toEqual({ totalsReads: 5, readsOfAllRows: 3 });
  await renewTotals(fixture.tables, momentAt(START));
  await expectCorrectCounts(fixture, expectedAssets, START, {});
  expect(fixture.counts).toEqual({ totalsReads: 8, readsOfAllRows: 3 });
  // Marks correct the totals after a change, without another read of all vaults.
  await scan(fixture, expectedAssets, HOLDER, [1, undefined]);
  await scan(fixture, expectedAssets, "kv-a", [3 * DAY_SECONDS]);
  await expectCorrectCounts(fixture, expectedAssets, START, { status: "critical" });
  expect(fixture.counts).toEqual({ totalsReads: 11, readsOfAllRows: 3 });
});

test("totals without the certificates' renewal plans, which an earlier version wrote, are not used", async () => {
  const fixture = openFixture("besides");
  const expectedAssets: ExpectedAssets = new Map();
  await scan(fixture, expectedAssets, "kv-a", EXPIRIES);
  await renewTotals(fixture.tables, momentAt(START));
  const { thresholds: _t, renewals, ...row } = withoutKeys((await fixture.tables.get(TotalsRows, VAULTS, TOTALS_KEY))!);
  expect(renewals).toBeDefined();
  await fixture.tables.put(TotalsRows, VAULTS, TOTALS_KEY, row);
  for (const status of STATUSES) await expectCorrectCounts(fixture, expectedAssets, START, { status });
  await renewTotals(fixture.tables, momentAt(START));
  await expectCorrectCounts(fixture, expectedAssets, START, {});
});

test("the assets that expire next are exact after the removal of assets that the totals count", async () => {
  const fixture = openFixture("next");
  const expectedAssets: ExpectedAssets = new Map();
  const days = (from: number) => Array.from({ length: 12 }, (_, index) => (from + index) * DAY_SECONDS);
  await scan(fixture, expectedAssets, "kv-a", days(1));
  await scan(fixture, expectedAssets, "kv-b", days(40));
  await renewTotals(fixture.tables, momentAt(START));
  await scan(fixture, expectedAssets, "kv-a", []);
  await expectCorrectCounts(fixture, expectedAssets, START, {});
  expect(fixture.counts.readsOfAllRows).toBe(0);
});

test("the largest vaults are exact after changes of vaults, scope and version", async () => {
  const fixture = openFixture("largest");
  const vaults = Array.from({ length: 60 }, (_, vaultIndex) => {
    // Each vault has one asset fewer than the one before it.
    // Names have two digits, from `kv-10` on, so that they sort by index.
    const vault = vaultRecord(`kv-${vaultIndex + 10}`, SUBSCRIPTIONS[vaultIndex % 2]);
    const expiries = Array.from({ length: 70 - vaultIndex }, (_, index) => START / 1000 + (index % 90) * DAY_SECONDS);
    const owners = {
      tag: "owner",
      owners: [[`team-${vaultIndex % 25}`, expiries.length - 1]] as [string, number][],
      others: 0,
    };
    return { ...vault, secretExpiries: packExpiries(expiries), owners: { secret: owners } };
  });
  const rows = vaults.map((vault) => put(Vaults, vaultKey(vault.name), vault));
  await fixture.tables.write(Vaults.table, VAULTS, rows);
  await renewTotals(fixture.tables, momentAt(START));
  /**
   * Compares the summary without a filter with one that a filter forces to be counted from the vaults' rows. Returns the
   * former, and whether it was counted from the rows too.
   */
  const compareSummaries = async (changedMoment: Partial<Moment> = {}) => {
    const readsBefore = fixture.counts.readsOfAllRows;
    const moment = { ...momentAt(START), ...changedMoment };
    const summary = await fixture.queries.summary({ since: new Date(START) }, moment);
    const isFromRows = fixture.counts.readsOfAllRows > readsBefore;
    const { vaults, ...counted } = await fixture.queries.summary(
      { since: new Date(START), source: "keyVault" },
      moment,
    );
    expect(summary).toEqual({ vaults, ...counted });
    return { summary, isFromRows };
  };
  /** Writes a vault's row with this number of assets. Returns the vault's mark. */
  const writeVaultRow = async (index: number, assets: number, changes: Partial<VaultRecord> = {}) => {
    const vault = vaults[index]!;
    const stored = await fixture.writer.readForUpdate(vault.name);
    const expiries = Array.from({ length: assets }, (_, day) => START / 1000 + (day % 90) * DAY_SECONDS);
    await fixture.writer.writeVaultOnly(stored, { ...vault, secretExpiries: packExpiries(expiries), ...changes });
    return withoutKeys((await fixture.tables.get(ChangedVaults, VAULTS, markKey(vault.name)))!);
  };
  expect((await compareSummaries()).isFromRows).toBe(false);
  // Totals are exact for 36 hours, and for the policy with which they were computed.
  expect((await compareSummaries({ now: START + 30 * 3600_000 })).isFromRows).toBe(false);
  expect((await compareSummaries({ now: START + 40 * 3600_000 })).isFromRows).toBe(true);
  expect((await compareSummaries({ warningDays: 45 })).isFromRows).toBe(true);

  // The totals list the 40 largest vaults. A smaller vault becomes the largest, and 20 listed vaults become small.
  await writeVaultRow(59, 100);
  for (let index = 0; index < 20; index++) await writeVaultRow(index, index % 2);
  const { summary, isFromRows } = await compareSummaries();
  expect(summary.vaults.largest[0]).toMatchObject({ name: "kv-69", assets: 100 });
  expect(isFromRows).toBe(false);
  // Now fewer than 20 listed vaults are unchanged, so other vaults may be among the 20 largest.
  await writeVaultRow(20, 0);
  await writeVaultRow(21, 0);
  expect((await compareSummaries()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await compareSummaries()).isFromRows).toBe(false);

  const scope = { watchAll: false, left: {}, names: {}, discovered: {}, unseenSince: {} };
  const namedOnlySince = new Date(START).toISOString();
  await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, { ...scope, named: [SUBSCRIPTIONS[0]], namedOnlySince });
  expect((await compareSummaries()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  const afterScopeChange = await compareSummaries();
  expect([afterScopeChange.isFromRows, afterScopeChange.summary.outOfScope.vaults]).toEqual([false, 30]);
  await writeVaultRow(1, 3);
  await writeVaultRow(2, 3);
  expect((await compareSummaries()).isFromRows).toBe(false);

  // An earlier version writes marks without owners.
  const { ownersNow: _, ...mark } = withoutKeys((await fixture.tables.get(ChangedVaults, VAULTS, markKey("kv-12")))!);
  await fixture.tables.put(ChangedVaults, VAULTS, markKey("kv-12"), mark);
  expect((await compareSummaries()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await compareSummaries()).isFromRows).toBe(false);

  // An earlier version merges a change into an existing mark, which keeps the owners of the previous change.
  const ownedBy = (owner: string) =>
    ({ owners: { secret: { tag: "owner", owners: [[owner, 3]], others: 0 } } }) as const;
  const vaultOwnedBy = (owner: string) => ownedBy(owner) as unknown as Partial<VaultRecord>;
  const { ownersNow } = await writeVaultRow(4, 8, vaultOwnedBy("first"));
  const merged = await writeVaultRow(4, 9, vaultOwnedBy("second"));
  expect((await compareSummaries()).isFromRows).toBe(false);
  await fixture.tables.put(ChangedVaults, VAULTS, markKey("kv-14"), { ...merged, ownersNow });
  expect((await compareSummaries()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await compareSummaries()).isFromRows).toBe(false);

  // A summary shows the name as the vault's row spells it.
  const [largest] = (await compareSummaries()).summary.vaults.largest;
  const largestIndex = vaults.findIndex(({ name }) => name === largest!.name);
  const row = await fixture.tables.get(Vaults, VAULTS, vaultKey(largest!.name));
  await fixture.writer.writeVaultOnly(await fixture.writer.readForUpdate(largest!.name), {
    ...withoutKeys(row!),
    name: `KV-${largestIndex + 10}`,
  });
  const renamed = await compareSummaries();
  expect([renamed.isFromRows, renamed.summary.vaults.largest[0]!.name]).toEqual([false, `KV-${largestIndex + 10}`]);
});

test("a renewal counts a vault that an earlier version changed without updating its mark", async () => {
  const fixture = openFixture("before");
  const expectedAssets: ExpectedAssets = new Map();
  /** Makes a change and restores the mark from before it, as an earlier version leaves the mark. */
  const changeWithoutMark = async (name: string, change: () => Promise<void>) => {
    const mark = withoutKeys((await fixture.tables.get(ChangedVaults, VAULTS, markKey(name)))!);
    await change();
    await fixture.tables.put(ChangedVaults, VAULTS, markKey(name), mark);
  };
  for (const name of ["kv-a", HOLDER]) {
    await scan(fixture, expectedAssets, name, [1]);
    await changeWithoutMark(name, () => scan(fixture, expectedAssets, name, [1, 3 * DAY_SECONDS, undefined]));
  }
  await renewTotals(fixture.tables, momentAt(START));
  await expectCorrectCounts(fixture, expectedAssets, START, {});
  await changeWithoutMark(HOLDER, () => removeVault(fixture, expectedAssets, HOLDER));
  await renewTotals(fixture.tables, momentAt(START));
  await expectCorrectCounts(fixture, expectedAssets, START, {});
  expect(fixture.counts.readsOfAllRows).toBe(0);
});

test("marks of very large vaults and holders fit into a row and a transaction", async () => {
  const { tables, queries } = openFixture("sizes");
  // An earlier version wrote these holders without marks.
  const startText = new Date(START).toISOString();
  const holders = Array.from({ length: 90 }, (_, index) => {
    const owners = Array.from({ length: 200 }, (): [string, number] => [randomBytes(200).toString("base64url"), 1]);
    const holder = {
      ...newHolder({ name: `entra-t-${index}`, source: "entra", tenantId: "t" }, startText),
      listedAt: { secret: startText },
    };
    const secretExpiries = packExpiries(owners.map(() => START / 1000 + DAY_SECONDS));
    return { ...holder, secretExpiries, owners: { secret: { tag: "", owners, others: 0 } } };
  });
  const rows = holders.map((holder) => put(Vaults, vaultKey(holder.name), holder));
  await tables.write(Vaults.table, VAULTS, rows);
  await renewTotals(tables, momentAt(START));
  const markRange = { partitionKey: VAULTS, from: MARK_PREFIX, before: TOTALS_END_KEY, select: [] };
  for await (const page of tables.pages(ChangedVaults, markRange)) expect(page).toHaveLength(90);
  expect((await queries.figures(momentAt(START))).assets.secret.critical).toBe(90 * 200);

  // Random expiries hardly compress. The first vault's state fits into a mark (500,000 bytes), the second one's does not.
  for (const assets of [120_000, 170_000]) {
    const vault = { ...vaultRecord(`kv-${assets}`), secretExpiries: new Uint8Array(randomBytes(4 * assets)) };
    const key = markKey(vault.name);
    const rows = [put(Vaults, vaultKey(vault.name), vault)];
    await writeChangedVault(tables, { before: vault, now: undefined }, rows);
    await writeChangedVault(tables, { before: undefined, now: { ...vault, failedScans: 1 }, marked: true }, rows);
    const mark = withoutKeys((await tables.get(ChangedVaults, VAULTS, key))!);
    const sizes = Object.values(mark).map((value) => (value instanceof Uint8Array ? value.length : 0));
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(1024 * 1024);
  }
});

test("a renewal throws if other writers interfere in every attempt", async () => {
  const { tables } = openFixture("upgraded");
  const pages: Tables["pages"] = async function* (e: Entity<unknown>, range: Range) {
    yield* tables.pages(e, range);
    // Another renewal completes before this one has read all marks.
    if (range.from === MARK_PREFIX) await renewTotals(tables, momentAt(START));
  } as Tables["pages"];
  await expect(renewTotals({ ...tables, pages }, momentAt(START))).rejects.toThrow(RowChanged);
});

test("totals are exact to the second for a day; later, counts come from the vaults' rows", async () => {
  const fixture = openFixture("moments");
  const expectedAssets: ExpectedAssets = new Map();
  await scan(fixture, expectedAssets, "kv-a", EXPIRIES);
  await renewTotals(fixture.tables, momentAt(START));
  for (const elapsedMs of [-1, 0, 1, 999, 1000, 1001, DAY_SECONDS * 1000, DAY_SECONDS * 1000 + 1])
    for (const status of STATUSES) await expectCorrectCounts(fixture, expectedAssets, START + elapsedMs, { status });
  expect(fixture.counts.readsOfAllRows).toBe(0);
  await expectCorrectCounts(fixture, expectedAssets, START + 3.5 * DAY_SECONDS * 1000, {});
  await expectCorrectCounts(fixture, expectedAssets, START + 370.5 * DAY_SECONDS * 1000, { status: "warning" });
  expect(fixture.counts.readsOfAllRows).toBeGreaterThan(0);
  expect(fixture.counts.readsOfAllRows).toBeLessThanOrEqual(6);
});

test("a summary's totals are exact around each threshold and count days from 28 days ago on", () => {
  const now = Date.parse("2026-11-21T00:59:59.001Z");
  const scope = { leftAt: (id: string) => (id === "left" ? "2026-11-20T00:00:00.000Z" : undefined) };
  const layout = summaryLayoutAt({ now, criticalDays: 7, warningDays: 30 }, scope as never);
  // Each window starts an hour earlier, because clocks differ, and ends 36 hours later. Both are rounded outwards to seconds.
  const second = Math.floor(now / 1000);
  // The first day is also that of an hour earlier: here the day before.
  const window = (days: number) => [second + days * DAY_SECONDS - 3_600, second + 1 + days * DAY_SECONDS + 36 * 3_600];
  expect(layout).toEqual({
    windows: [window(0), window(7), window(30)],
    firstDay: Math.floor(Date.parse("2026-11-20") / 1000 / DAY_SECONDS) - PAST_DAYS,
    isOutOfScope: expect.any(Function),
  });
  expect(["left", "stays"].map(layout.isOutOfScope)).toEqual([true, false]);
});

test("the API shows vault and subscription only for changes in key vaults", () => {
  const change = { at: "2026-11-21T10:00:00.000Z", kind: "updated", type: "secret", name: "x", members: ["expiresOn"] };
  const location = { vaultName: "kv-a", subscriptionId: SUBSCRIPTIONS[0]! };
  const shown = { at: change.at, change: "updated", type: "secret", name: "x", title: null, members: ["expiresOn"] };
  expect(changeView({ ...change, ...location, source: "keyVault" } as LoggedChange)).toEqual({
    ...shown,
    ...location,
    source: "keyVault",
    assetId: "kv-a.secret.x",
  });
  expect(changeView({ ...change, ...location, vaultName: HOLDER, source: "entra" } as LoggedChange)).toMatchObject({
    ...shown,
    source: "entra",
    vaultName: null,
    subscriptionId: null,
  });
});
