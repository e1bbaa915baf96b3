import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ASSET_TYPES, type AssetRecord, assetId, sourceOf } from "../../shared/inventory/asset.ts";
import { type Moment, STATUSES, statusOf } from "../../shared/inventory/asset-status.ts";
import type { LoggedChange } from "../../shared/inventory/change-log.ts";
import {
  ChangedVaults,
  changedKey,
  MARK_PREFIX,
  writeVault as writeChangedVault,
} from "../../shared/inventory/changed-vaults.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { holderName, newHolder } from "../../shared/inventory/holder.ts";
import { type AssetFilter, createAssetQueries } from "../../shared/inventory/query.ts";
import { renewTotals } from "../../shared/inventory/renew-totals.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import { changeView } from "../../shared/inventory/summary-api.ts";
import { layoutOf } from "../../shared/inventory/summary-totals.ts";
import { TOTALS_END_KEY, TOTALS_KEY } from "../../shared/inventory/totals.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { type Entity, withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, put, type Range, RowChanged, type Tables } from "../../shared/platform/storage/tables.ts";
import { held as heldBack } from "../support/delayed-tables.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetRecord, START, SUBSCRIPTIONS, vaultRecord, writeVault } from "./write-assets.ts";

const DAY = 86_400;
const NAMES = ["kv-a", "kv-b", "kv-c"];
const HOLDER = holderName("99999999-9999-4999-8999-999999999999", "3");
/** Expiries at and next to the times at which statuses start and end, days away, and none. */
const EXPIRIES = [-1, 0, 1, 7 * DAY, 7 * DAY + 1, 30 * DAY, 30 * DAY + 1, -400 * DAY, 400 * DAY, 3 * DAY, undefined];
const FILTERS: AssetFilter[] = [
  {},
  { counted: true },
  { source: "keyVault" },
  ...ASSET_TYPES.map((type) => ({ type })),
  ...STATUSES.map((status) => ({ status })),
];
const OWNERS = ["payments@contoso.com", "web@contoso.com", undefined];
const RUNS = IS_CAMPAIGN ? 100 : 12;

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["schedules", "upgraded", "moments", "largest", "before", "sizes", "next"]);
});
afterAll(() => storage?.stop());

type Fixture = ReturnType<typeof openFixture>;
function openFixture(account: string) {
  const connectionString = storage.connectionString(account);
  const tables = createTables({ connectionString });
  const counts = { fullScans: 0, totalsReads: 0 };
  /** Counts the reads of the totals, and the queries that had to read all vaults' rows. */
  const watched: Tables = {
    ...tables,
    pages: ((e: Entity<unknown>, range: Range & { select: never[] }) => {
      if (range.from === TOTALS_KEY) counts.totalsReads++;
      if (range.from === SCOPE_KEY) counts.fullScans++;
      return tables.pages(e, range);
    }) as Tables["pages"],
  };
  return {
    tables,
    counts,
    writer: createInventoryWriter({ tables }),
    queries: createAssetQueries({ tables: watched, ownerTag: "owner", licensed: async () => true }),
  };
}

/** The expected content, by vault. */
type Held = Map<string, AssetRecord[]>;

async function scan(fixture: Fixture, held: Held, name: string, expiries: (number | undefined)[]): Promise<void> {
  const at = new Date(START).toISOString();
  const isHolder = name === HOLDER;
  const vault = isHolder
    ? { ...newHolder({ name, source: "entra", tenantId: "t" }, at), listedAt: { secret: at } }
    : { ...vaultRecord(name, SUBSCRIPTIONS[NAMES.indexOf(name) % 2]), failedScans: expiries.length % 2 };
  const assets = expiries.map((expiry, index) => {
    const type = isHolder ? "secret" : ASSET_TYPES[index % 3]!;
    const expiresOn = expiry === undefined ? {} : { expiresOn: START / 1000 + expiry };
    const owner = OWNERS[(index + expiries.length) % OWNERS.length];
    const of = isHolder ? { source: "entra" as const } : owner === undefined ? {} : { tags: { owner } };
    return assetRecord(vault, type, `a-${index}`, { ...expiresOn, ...of });
  });
  await writeVault(fixture.writer, vault, assets);
  held.set(name, assets);
}

async function forget(fixture: Fixture, held: Held, name: string): Promise<void> {
  await fixture.writer.forget(await fixture.writer.readForUpdate(name), "test", async () => async () => {});
  held.delete(name);
}

const renewal = (tables: Tables) => renewTotals(tables, momentAt(START));
const momentAt = (now: number): Moment => ({ now, criticalDays: 7, warningDays: 30 });

/** Compares counted results with a recount of the expected content. */
async function expectRight(fixture: Fixture, held: Held, now: number, filter: AssetFilter): Promise<void> {
  const all = [...held.values()].flat();
  const moment = momentAt(now);
  const figures = await fixture.queries.figures(moment);
  const wanted = Object.fromEntries(
    ASSET_TYPES.map((type) => {
      const counts = { healthy: 0, warning: 0, critical: 0, expired: 0 };
      for (const asset of all) if (asset.type === type) counts[statusOf(asset.expiresOn, moment)]++;
      return [type, counts];
    }),
  );
  expect(figures.assets).toEqual(wanted);
  const vaults = [...held].filter(([name]) => name !== HOLDER);
  expect([figures.vaults, figures.unreadable]).toEqual([
    vaults.length,
    vaults.filter(([, assets]) => assets.length % 2 === 1).length,
  ]);
  const page = await fixture.queries.list(filter, { limit: 200, offset: 0, cursor: undefined }, moment);
  const fitting = all.filter(
    (asset) =>
      (!filter.type || asset.type === filter.type) &&
      (!filter.source || sourceOf(asset) === filter.source) &&
      (!filter.status || statusOf(asset.expiresOn, moment) === filter.status),
  );
  expect([page.total, page.items.length]).toEqual([fitting.length, fitting.length]);
  await expectSummary(fixture, held, moment);
}

/** Days that a summary counts individually, written out here to notice changes of the API. */
const PAST_DAYS = 28;
const NEXT_DAYS = 91;

/** Compares the summary of everything with a recount of the expected content. */
async function expectSummary(fixture: Fixture, held: Held, moment: Moment): Promise<void> {
  const all = [...held.values()].flat();
  const summary = await fixture.queries.summary({ since: new Date(START) }, moment);
  const byStatus = (assets: readonly AssetRecord[]) => {
    const counts = { healthy: 0, warning: 0, critical: 0, expired: 0 };
    for (const { expiresOn } of assets) counts[statusOf(expiresOn, moment)]++;
    return counts;
  };
  const ofType = (type: string) => all.filter((asset) => asset.type === type);
  const first = Math.floor(moment.now / 1000 / DAY) - PAST_DAYS;
  const byDay = (assets: readonly AssetRecord[]) =>
    Array.from(
      { length: PAST_DAYS + NEXT_DAYS },
      (_, at) => assets.filter(({ expiresOn = -1 }) => dayOf(expiresOn) === first + at).length,
    );
  const vaults = [...held].filter(([name]) => name !== HOLDER);
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
    bySource: { keyVault: all.length - (held.get(HOLDER)?.length ?? 0), entra: held.get(HOLDER)?.length ?? 0, b2c: 0 },
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
          byStatus: byStatus(held.get(name)!),
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
  const ends = all
    .filter(({ expiresOn }) => expiresOn !== undefined && expiresOn * 1000 >= moment.now)
    .sort((a, b) => a.expiresOn! - b.expiresOn! || (placeOf(a) < placeOf(b) ? -1 : 1));
  expect(summary.endsNext.map(({ asset }) => assetId(asset))).toEqual(ends.slice(0, 10).map(assetId));
}

const dayOf = (instant: number): number => Math.floor(instant / DAY);
const subscriptionOf = (name: string): string => SUBSCRIPTIONS[NAMES.indexOf(name) % 2]!;
const placeOf = ({ name, vaultName, type }: AssetRecord): string => `${name}!${vaultName}`.toLowerCase() + type;

const steps = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        name: fc.constantFrom(...NAMES, HOLDER),
        expiries: fc.array(fc.constantFrom(...EXPIRIES), { maxLength: 4 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ gone: fc.constantFrom(...NAMES, HOLDER) }) },
    { weight: 4, arbitrary: fc.record({ held: fc.nat({ max: 6 }), dies: fc.constantFrom(false, false, true) }) },
    { weight: 2, arbitrary: fc.record({ release: fc.nat({ max: 2 }) }) },
    { weight: 2, arbitrary: fc.record({ asked: fc.constantFrom(...FILTERS) }) },
  ),
  { minLength: 6, maxLength: 12 },
);

test("after any concurrent writes, crashes and late requests during renewals, each result equals a recount", async () => {
  const fixture = openFixture("schedules");
  const held: Held = new Map();
  await fc.assert(
    fc.asyncProperty(steps, async (schedule) => {
      const waiting: (() => Promise<void>)[] = [];
      for (const step of schedule) {
        if ("name" in step) await scan(fixture, held, step.name, step.expiries);
        else if ("gone" in step) await forget(fixture, held, step.gone);
        else if ("held" in step) waiting.push(heldBack(fixture.tables, { at: step.held, dies: step.dies }, renewal));
        else if ("release" in step) await waiting.splice(step.release, 1)[0]?.();
        else await expectRight(fixture, held, START, step.asked);
      }
      await expectRight(fixture, held, START, {});
      for (const letGo of waiting.reverse()) await letGo();
      await expectRight(fixture, held, START, {});
    }),
    { numRuns: RUNS },
  );
  expect(fixture.counts.totalsReads, "queries").toBeGreaterThan(RUNS * 3);
  expect(fixture.counts.fullScans, "queries that read every vault").toBeLessThan(fixture.counts.totalsReads / 2);
  await renewTotals(fixture.tables, momentAt(START));
  const left: string[] = [];
  const range = { partitionKey: VAULTS, from: MARK_PREFIX, before: TOTALS_END_KEY, select: [] };
  for await (const rows of fixture.tables.pages(ChangedVaults, range)) left.push(...rows.map(({ rowKey }) => rowKey));
  expect(left).toEqual(held.has(HOLDER) ? [changedKey(HOLDER)] : []);
}, 600_000);

test("a store without totals is counted from its vaults once, and from the totals after the next scan", async () => {
  const fixture = openFixture("upgraded");
  const held: Held = new Map();
  for (const [at, name] of [...NAMES, HOLDER].entries()) await scan(fixture, held, name, EXPIRIES.slice(at));
  // The state written by an earlier version, without marks of changed vaults.
  for (const name of [...NAMES, HOLDER]) await fixture.tables.remove(ChangedVaults, VAULTS, changedKey(name));
  await expectRight(fixture, held, START, {});
  // Both parts of the totals are read, for a summary only one.
  expect(fixture.counts).toEqual({ totalsReads: 5, fullScans: 3 });
  await renewTotals(fixture.tables, momentAt(START));
  await expectRight(fixture, held, START, {});
  expect(fixture.counts).toEqual({ totalsReads: 8, fullScans: 3 });
  // A change of a holder or a vault is counted immediately.
  await scan(fixture, held, HOLDER, [1, undefined]);
  await scan(fixture, held, "kv-a", [3 * DAY]);
  await expectRight(fixture, held, START, { status: "critical" });
  expect(fixture.counts).toEqual({ totalsReads: 11, fullScans: 3 });
});

test("the assets that expire next are exact even if an asset was removed that the totals count", async () => {
  const fixture = openFixture("next");
  const held: Held = new Map();
  const days = (from: number) => Array.from({ length: 12 }, (_, at) => (from + at) * DAY);
  await scan(fixture, held, "kv-a", days(1));
  await scan(fixture, held, "kv-b", days(40));
  await renewTotals(fixture.tables, momentAt(START));
  await scan(fixture, held, "kv-a", []);
  await expectRight(fixture, held, START, {});
  expect(fixture.counts.fullScans).toBe(0);
});

test("the largest vaults are exact after vaults grow, shrink, leave the scope or were written by an earlier version", async () => {
  const fixture = openFixture("largest");
  const vaults = Array.from({ length: 60 }, (_, at) => {
    const vault = vaultRecord(`kv-${at + 10}`, SUBSCRIPTIONS[at % 2]);
    const own = Array.from({ length: 70 - at }, (_, index) => START / 1000 + (index % 90) * DAY);
    const owners = { tag: "owner", owners: [[`team-${at % 25}`, own.length - 1]] as [string, number][], others: 0 };
    return { ...vault, secretExpiries: packExpiries(own), owners: { secret: owners } };
  });
  const rows = vaults.map((vault) => put(Vaults, vaultKey(vault.name), vault));
  await fixture.tables.write(Vaults.table, VAULTS, rows);
  await renewTotals(fixture.tables, momentAt(START));
  /** Compares the result from the totals with that from the vaults' rows, which a filter forces. Returns which one was used. */
  const asked = async (of: Partial<Moment> = {}) => {
    const before = fixture.counts.fullScans;
    const moment = { ...momentAt(START), ...of };
    const summary = await fixture.queries.summary({ since: new Date(START) }, moment);
    const isFromRows = fixture.counts.fullScans > before;
    const { vaults, ...counted } = await fixture.queries.summary(
      { since: new Date(START), source: "keyVault" },
      moment,
    );
    expect(summary).toEqual({ vaults, ...counted });
    return { summary, isFromRows };
  };
  const write = async (at: number, assets: number, more: Partial<VaultRecord> = {}) => {
    const known = await fixture.writer.readForUpdate(vaults[at]!.name);
    const own = Array.from({ length: assets }, (_, index) => START / 1000 + (index % 90) * DAY);
    await fixture.writer.writeVaultOnly(known, { ...vaults[at]!, secretExpiries: packExpiries(own), ...more });
    return withoutKeys((await fixture.tables.get(ChangedVaults, VAULTS, changedKey(vaults[at]!.name)))!);
  };
  expect((await asked()).isFromRows).toBe(false);
  expect((await asked({ now: START + 30 * 3600_000 })).isFromRows).toBe(false);
  expect((await asked({ now: START + 40 * 3600_000 })).isFromRows).toBe(true);
  expect((await asked({ warningDays: 45 })).isFromRows).toBe(true);

  // A vault too small to be listed in the totals is the largest now, and some of the largest are small.
  await write(59, 100);
  for (let at = 0; at < 20; at++) await write(at, at % 2);
  const { summary, isFromRows } = await asked();
  expect(summary.vaults.largest[0]).toMatchObject({ name: "kv-69", assets: 100 });
  expect(isFromRows).toBe(false);
  // Fewer unchanged listed vaults are left than a summary returns.
  await write(20, 0);
  await write(21, 0);
  expect((await asked()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await asked()).isFromRows).toBe(false);

  const scope = { watchAll: false, left: {}, names: {}, discovered: {}, unseenSince: {} };
  const namedOnlySince = new Date(START).toISOString();
  await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, { ...scope, named: [SUBSCRIPTIONS[0]], namedOnlySince });
  expect((await asked()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  const narrowed = await asked();
  expect([narrowed.isFromRows, narrowed.summary.outOfScope.vaults]).toEqual([false, 30]);
  await write(1, 3);
  await write(2, 3);
  expect((await asked()).isFromRows).toBe(false);

  // An earlier version writes its change without the owners, into a mark with the owners of another state.
  const { ownersNow: _, ...mark } = withoutKeys(
    (await fixture.tables.get(ChangedVaults, VAULTS, changedKey("kv-12")))!,
  );
  await fixture.tables.put(ChangedVaults, VAULTS, changedKey("kv-12"), mark);
  expect((await asked()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await asked()).isFromRows).toBe(false);

  // That version merges its change into a mark of this version, whose owners are those of the previous state.
  const ownedBy = (owner: string) =>
    ({ owners: { secret: { tag: "owner", owners: [[owner, 3]], others: 0 } } }) as const;
  const owned = (owner: string) => ownedBy(owner) as unknown as Partial<VaultRecord>;
  const { ownersNow } = await write(4, 8, owned("first"));
  const merged = await write(4, 9, owned("second"));
  expect((await asked()).isFromRows).toBe(false);
  await fixture.tables.put(ChangedVaults, VAULTS, changedKey("kv-14"), { ...merged, ownersNow });
  expect((await asked()).isFromRows).toBe(true);
  await renewTotals(fixture.tables, momentAt(START));
  expect((await asked()).isFromRows).toBe(false);

  // The name is that of the vault's row.
  const [largest] = (await asked()).summary.vaults.largest;
  const at = vaults.findIndex(({ name }) => name === largest!.name);
  const row = await fixture.tables.get(Vaults, VAULTS, vaultKey(largest!.name));
  await fixture.writer.writeVaultOnly(await fixture.writer.readForUpdate(largest!.name), {
    ...withoutKeys(row!),
    name: `KV-${at + 10}`,
  });
  const renamed = await asked();
  expect([renamed.isFromRows, renamed.summary.vaults.largest[0]!.name]).toEqual([false, `KV-${at + 10}`]);
});

test("if an earlier version changes a vault without its mark, the results are correct after the next renewal", async () => {
  const fixture = openFixture("before");
  const held: Held = new Map();
  const changeAsBefore = async (name: string, change: () => Promise<void>) => {
    const mark = withoutKeys((await fixture.tables.get(ChangedVaults, VAULTS, changedKey(name)))!);
    await change();
    await fixture.tables.put(ChangedVaults, VAULTS, changedKey(name), mark);
  };
  for (const name of ["kv-a", HOLDER]) {
    await scan(fixture, held, name, [1]);
    await changeAsBefore(name, () => scan(fixture, held, name, [1, 3 * DAY, undefined]));
  }
  await renewTotals(fixture.tables, momentAt(START));
  await expectRight(fixture, held, START, {});
  await changeAsBefore(HOLDER, () => forget(fixture, held, HOLDER));
  await renewTotals(fixture.tables, momentAt(START));
  await expectRight(fixture, held, START, {});
  expect(fixture.counts.fullScans).toBe(0);
});

test("the marks of vaults and holders of any size fit their row and transaction", async () => {
  const { tables, queries } = openFixture("sizes");
  // As an earlier version wrote them, without marks.
  const at = new Date(START).toISOString();
  const holders = Array.from({ length: 90 }, (_, index) => {
    const owners = Array.from({ length: 200 }, (): [string, number] => [randomBytes(200).toString("base64url"), 1]);
    const of = {
      ...newHolder({ name: `entra-t-${index}`, source: "entra", tenantId: "t" }, at),
      listedAt: { secret: at },
    };
    const secretExpiries = packExpiries(owners.map(() => START / 1000 + DAY));
    return { ...of, secretExpiries, owners: { secret: { tag: "", owners, others: 0 } } };
  });
  const rows = holders.map((holder) => put(Vaults, vaultKey(holder.name), holder));
  await tables.write(Vaults.table, VAULTS, rows);
  await renewTotals(tables, momentAt(START));
  const marks = { partitionKey: VAULTS, from: MARK_PREFIX, before: TOTALS_END_KEY, select: [] };
  for await (const page of tables.pages(ChangedVaults, marks)) expect(page).toHaveLength(90);
  expect((await queries.figures(momentAt(START))).assets.secret.critical).toBe(90 * 200);

  for (const assets of [120_000, 170_000]) {
    const vault = { ...vaultRecord(`kv-${assets}`), secretExpiries: new Uint8Array(randomBytes(4 * assets)) };
    const key = changedKey(vault.name);
    const rows = [put(Vaults, vaultKey(vault.name), vault)];
    await writeChangedVault(tables, { before: vault, now: undefined }, rows);
    await writeChangedVault(tables, { before: undefined, now: { ...vault, failedScans: 1 }, marked: true }, rows);
    const mark = withoutKeys((await tables.get(ChangedVaults, VAULTS, key))!);
    const sizes = Object.values(mark).map((value) => (value instanceof Uint8Array ? value.length : 0));
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(1024 * 1024);
  }
});

test("a renewal fails visibly if other writers interfere in every attempt", async () => {
  const { tables } = openFixture("upgraded");
  const pages: Tables["pages"] = async function* (e: Entity<unknown>, range: Range) {
    yield* tables.pages(e, range);
    // Another renewal finishes before this one has read everything.
    if (range.from === MARK_PREFIX) await renewTotals(tables, momentAt(START));
  } as Tables["pages"];
  await expect(renewTotals({ ...tables, pages }, momentAt(START))).rejects.toThrow(RowChanged);
});

test("the totals are exact at the second at which a status starts or ends, for a day; more than three days later the vaults are read", async () => {
  const fixture = openFixture("moments");
  const held: Held = new Map();
  await scan(fixture, held, "kv-a", EXPIRIES);
  await renewTotals(fixture.tables, momentAt(START));
  for (const after of [-1, 0, 1, 999, 1000, 1001, DAY * 1000, DAY * 1000 + 1])
    for (const status of STATUSES) await expectRight(fixture, held, START + after, { status });
  expect(fixture.counts.fullScans).toBe(0);
  await expectRight(fixture, held, START + 3.5 * DAY * 1000, {});
  await expectRight(fixture, held, START + 370.5 * DAY * 1000, { status: "warning" });
  expect(fixture.counts.fullScans).toBeGreaterThan(0);
  expect(fixture.counts.fullScans).toBeLessThanOrEqual(6);
});

test("the layout of a summary has a window of seconds around each change of status, and starts 28 days ago", () => {
  const now = Date.parse("2026-11-21T00:59:59.001Z");
  const scope = { leftAt: (id: string) => (id === "left" ? "2026-11-20T00:00:00.000Z" : undefined) };
  const layout = layoutOf({ now, criticalDays: 7, warningDays: 30 }, scope as never);
  // An hour back, because clocks differ, and 36 hours ahead, each rounded away from now.
  const second = Math.floor(now / 1000);
  const window = (days: number) => [second + days * DAY - 3_600, second + 1 + days * DAY + 36 * 3_600];
  expect(layout).toEqual({
    windows: [window(0), window(7), window(30)],
    firstDay: Math.floor(Date.parse("2026-11-20") / 1000 / DAY) - PAST_DAYS,
    isOut: expect.any(Function),
  });
  expect(["left", "stays"].map(layout.isOut)).toEqual([true, false]);
});

test("a change contains its vault and subscription only for key vaults", () => {
  const change = { at: "2026-11-21T10:00:00.000Z", kind: "updated", type: "secret", name: "x", members: ["expiresOn"] };
  const of = { vaultName: "kv-a", subscriptionId: SUBSCRIPTIONS[0]! };
  const shown = { at: change.at, change: "updated", type: "secret", name: "x", members: ["expiresOn"] };
  expect(changeView({ ...change, ...of, source: "keyVault" } as LoggedChange)).toEqual({
    ...shown,
    ...of,
    source: "keyVault",
    assetId: "kv-a.secret.x",
  });
  expect(changeView({ ...change, ...of, vaultName: HOLDER, source: "entra" } as LoggedChange)).toMatchObject({
    ...shown,
    source: "entra",
    vaultName: null,
    subscriptionId: null,
  });
});
