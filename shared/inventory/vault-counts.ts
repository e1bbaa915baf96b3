import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { toStorageCorrupt } from "../platform/storage/packed-members.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, type AssetSource, type AssetType, sourceOf } from "./asset.ts";
import { NAME_PREFIX } from "./asset-keys.ts";
import { type ExpiryRange, intersect, type Moment, rangeOf, type Status } from "./asset-status.ts";
import { ChangedVault, MARK_PREFIX, readMark, type VaultChange } from "./changed-vaults.ts";
import { countExpiries } from "./expiries.ts";
import { countBetween, countIn, type Window } from "./histogram.ts";
import { holderSubscription } from "./holder.ts";
import type { LastListings } from "./last-listings.ts";
import { type PlannedCounts, plannedOfTotals, plannedOfVault } from "./planned-certificates.ts";
import { readScope, SCOPE_KEY, type Scope, ScopeRecord, scopeOf } from "./scope.ts";
import { unpackSummary } from "./summary-totals.ts";
import {
  readLastListings,
  readRenewals,
  readTotals,
  type StoredRenewals,
  type SubscriptionTotals,
  TOTALS_END_KEY,
  TOTALS_KEY,
  type Totals,
  TotalsRecord,
} from "./totals.ts";
import { expiriesOf, VAULTS, VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "./vault.ts";

/**
 * Counts of assets by vault or subscription, for lists, metrics and summaries. Read from the stored totals (totals.ts)
 * if they are exact for the query, otherwise from the vaults' rows.
 */

/** The columns of a vault's row from which totals are counted. */
export type SummaryRow = Pick<VaultRecord, "name" | "subscriptionId" | "listedAt"> & Partial<VaultRecord>;
const SUMMARY_COLUMNS = [
  "name",
  "source",
  "subscriptionId",
  "listedAt",
  "failedScans",
  "certificateExpiries",
  "keyExpiries",
  "secretExpiries",
  "certificateRenewals",
  "lastEventAt",
] as const;

/**
 * Schema for a range that starts with the scope's row and continues with the vaults. All members are optional, because each row
 * has only those of its kind.
 */
const ScopeAndVaults = entity("Vaults", z.object({ ...VaultRecord.shape, ...ScopeRecord.shape }).partial());
/** The same for a range that starts with the totals, continues with the marks of changed vaults, and ends with the scope. */
const TotalsAndScope = entity(
  "Vaults",
  z.object({ ...TotalsRecord.shape, ...ChangedVault.shape, ...ScopeRecord.shape }).partial(),
);
const SCOPE_COLUMNS = Object.keys(ScopeRecord.shape) as (keyof ScopeRecord)[];

/**
 * The key vaults and the holders of a query, and the scope. A holder is a row that takes the place of a vault for the credentials
 * of an Entra tenant or B2C tenant.
 */
export interface ScopedVaults {
  vaults: SummaryRow[];
  scope: Scope;
}

/**
 * Reads one vault, those of one subscription, or all. Sends one request per 1,000 vaults. The scope is read with all vaults, and
 * needs a further request otherwise.
 *
 * @param furtherColumns - Further columns of the vaults' rows.
 */
export async function readVaultRows(
  tables: Tables,
  where: { vault?: string | undefined; subscription?: string | undefined } = {},
  furtherColumns: readonly (keyof VaultRecord)[] = [],
): Promise<ScopedVaults> {
  const select = [...SUMMARY_COLUMNS, ...furtherColumns];
  if (where.vault !== undefined) {
    const [row, scope] = await Promise.all([tables.get(Vaults, VAULTS, vaultKey(where.vault)), readScope(tables)]);
    const matches =
      row &&
      sourceOf(row) === "keyVault" &&
      (!where.subscription || row.subscriptionId.toLowerCase() === where.subscription.toLowerCase());
    return { vaults: matches ? [row] : [], scope };
  }
  if (where.subscription) {
    const prefix = vaultInSubscriptionKey(where.subscription, "");
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), select };
    const [vaults, scope] = await Promise.all([allRows(tables.pages(Vaults, range)), readScope(tables)]);
    return { vaults, scope };
  }
  const vaults: SummaryRow[] = [];
  let scope: Scope | undefined;
  const range = {
    partitionKey: VAULTS,
    from: SCOPE_KEY,
    before: keyEnd(NAME_PREFIX),
    select: [...select, ...SCOPE_COLUMNS],
  };
  for await (const rows of tables.pages(ScopeAndVaults, range)) {
    for (const row of rows) {
      try {
        if (row.rowKey === SCOPE_KEY) scope = scopeOf(ScopeRecord.parse(row));
        else if (isSummaryRow(row)) vaults.push(row);
        else throw new StorageCorrupt(Vaults.table, row, "it lacks its name, its subscription or when it was listed");
      } catch (error) {
        await tables.leaveOut(toStorageCorrupt(error, Vaults, row));
      }
    }
  }
  return { vaults, scope: scope ?? scopeOf(undefined) };
}

const isSummaryRow = <T extends Partial<VaultRecord>>(row: T): row is T & SummaryRow =>
  row.name !== undefined && row.subscriptionId !== undefined && row.listedAt !== undefined;

async function allRows<T>(pages: AsyncIterable<T[]>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page);
  return all;
}

/** Vaults that are counted together: a single vault, or all key vaults of a subscription. */
export interface VaultGroup extends Pick<VaultRecord, "source" | "subscriptionId" | "listedAt"> {
  /** Name of a single vault. */
  name: string | undefined;
  /** Number of vaults. Negative for a group that is subtracted from another one. */
  vaults: number;
  /** Vaults none of whose lists the last scan could read. */
  unreadable: number;
  /** Returns the number of assets of the type, optionally only those that expire in the range. */
  count(type: AssetType, range?: ExpiryRange): number;
  /**
   * Counts of the certificates with a renewal plan, which `count` includes. Their status follows from the plan, not from the
   * days until expiry. Undefined if there are none.
   */
  withPlan: PlannedCounts | undefined;
}

/** Which assets to count: those with a status, those that expire between two times, both, or all. */
export interface CountQuery {
  moment: Moment;
  status?: Status | undefined;
  dates?: ExpiryRange | undefined;
}

/** Returns the range of expiries that match, for assets without a renewal plan. Undefined for all. */
export function rangeOfQuery({ status, dates, moment }: CountQuery): ExpiryRange | undefined {
  const range = status && rangeOf(status, moment);
  return range && dates ? intersect(range, dates) : (range ?? dates);
}

/**
 * Returns the numbers of matching assets of a group and type, without and with a renewal plan. `count` contains both, so the
 * certificates with a plan that expire in the range are subtracted.
 */
export function countMatching(
  { count, withPlan }: VaultGroup,
  type: AssetType,
  query: CountQuery,
): { withoutPlan: number; withPlan: number } {
  const range = rangeOfQuery(query);
  const all = count(type, range);
  if (!withPlan || type !== "certificate") return { withoutPlan: all, withPlan: 0 };
  const withPlanInRange = withPlan.countIn(range)!;
  const { status, moment, dates } = query;
  return {
    withoutPlan: all - withPlanInRange,
    withPlan: status ? withPlan.countByStatus(status, moment, dates)! : withPlanInRange,
  };
}

/** Returns the number of assets of a group and type that have a status. */
export function countWithStatus(group: VaultGroup, type: AssetType, status: Status, moment: Moment): number {
  const { withoutPlan, withPlan } = countMatching(group, type, { status, moment });
  return withoutPlan + withPlan;
}

/** Vaults and holders of a query with the numbers of their assets, the scope, and the times of the last listings. */
export interface CountedGroups {
  groups: VaultGroup[];
  scope: Scope;
  /**
   * Returns when the list was last read, in ISO 8601. Undefined if never. For an unchanged key vault, reads since the last
   * renewal of the totals may be missing.
   */
  listedAt(vaultName: string, type: AssetType): Promise<string | undefined>;
}

/**
 * Returns counts for the vaults that `readVaultRows` would return. For all vaults, one request for the totals is enough if they
 * exist and are exact for these queries. Otherwise, and for one vault or subscription, vault rows are read.
 */
export async function readGroups(
  tables: Tables,
  where: { vault?: string | undefined; subscription?: string | undefined },
  queries: readonly CountQuery[],
): Promise<CountedGroups> {
  const isAll = (where.vault ?? where.subscription) === undefined;
  // A smaller part of the totals is enough without dates.
  const hasDates = queries.some(({ dates }) => dates !== undefined);
  const fromTotals = isAll
    ? ((hasDates ? undefined : await readFromTotals(tables, BY_STATUS, queries)) ??
      (await readFromTotals(tables, BY_DAY, queries)))
    : undefined;
  return fromTotals ?? (await countVaultRows(tables, where));
}

async function countVaultRows(tables: Tables, where: Parameters<typeof readVaultRows>[1]): Promise<CountedGroups> {
  const { vaults, scope } = await readVaultRows(tables, where);
  const byName = new Map(vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  return {
    groups: vaults.map((vault) => groupOf(vault, 1)),
    scope,
    listedAt: async (vaultName, type) => byName.get(vaultName.toLowerCase())?.listedAt[type],
  };
}

/** Returns undefined if there are no totals, or if they are not exact for one of the queries. */
async function readFromTotals<T extends ListTotals>(
  tables: Tables,
  reading: TotalsReading<T>,
  queries: readonly CountQuery[],
): Promise<CountedGroups | undefined> {
  const totalsAndChanges = await readTotalsAndChanges(tables, reading);
  if (!totalsAndChanges) return undefined;
  const { totals, changed, scope } = totalsAndChanges;
  const groups = totals.subscriptions.map((subscription, index) => ({
    ...groupOfSubscription(subscription, totals.windows, totals.count),
    withPlan: plannedCountsAt(totals.renewals, index),
  }));
  if (!groups.every((group) => queries.every((query) => isExactFor(group, query)))) return undefined;
  for (const { before, now } of changed.values()) {
    if (before) groups.push(groupOf(before, -1));
    if (now) groups.push(groupOf(now, 1));
  }
  return { groups, scope, listedAt: createListedAtLookup(tables, totals.seenAt, changed) };
}

/** Returns whether a group of the totals counts the query exactly. Counts that are not exact are undefined. */
export function isExactFor({ count, withPlan }: VaultGroup, query: CountQuery): boolean {
  const range = rangeOfQuery(query);
  const { status, moment, dates } = query;
  return (
    ASSET_TYPES.every((type) => count(type, range) !== undefined) &&
    (!withPlan ||
      (withPlan.countIn(range) !== undefined &&
        (status === undefined || withPlan.countByStatus(status, moment, dates) !== undefined)))
  );
}

/**
 * Returns the counts of certificates with a renewal plan, for one of the subscriptions and vaults of the totals. Undefined if it
 * has no such certificates.
 *
 * @param index - Position among the stored histograms: the subscriptions, then the largest vaults.
 */
export function plannedCountsAt(renewals: StoredRenewals | null, index: number): PlannedCounts | undefined {
  const histograms = renewals?.histograms[index];
  if (!renewals || !histograms) return undefined;
  return plannedOfTotals(histograms, renewals.windows, renewals.thresholds, renewals.expiries?.[index]);
}

/** The stored totals, and the vaults that changed since. */
export interface TotalsAndChanges<T> {
  totals: T;
  scope: Scope;
  /** By lower-case name: for each vault that changed, the state in the totals and the current state. */
  changed: Map<string, VaultChange>;
}

/**
 * The totals are used while at most this number plus half of all vaults changed. With more changes, reading all vault rows is
 * not more expensive.
 */
const MAX_CHANGED = 500;
/** Attempts to read totals that other workers replace meanwhile. */
const MAX_ATTEMPTS = 3;
const COMMON_COLUMNS = ["sequence", "unkept", "before", "now"] as const;

/** Which columns of the totals to read, and how. */
export interface TotalsReading<T> {
  columns: readonly (keyof TotalsRecord)[];
  /** Whether the owners of changed vaults are needed. */
  owners: boolean;
  /** Returns undefined if the totals lack the data or are corrupt. */
  read(record: Partial<TotalsRecord>): T | undefined;
}

/** Reads the totals, the changed vaults and the scope. Undefined if the totals are missing, insufficient or corrupt. */
export async function readTotalsAndChanges<T extends { subscriptions: readonly { vaults: number }[] }>(
  tables: Tables,
  { columns, owners, read }: TotalsReading<T>,
): Promise<TotalsAndChanges<T> | undefined> {
  const ownerColumns = owners ? (["ownersBefore", "ownersNow"] as const) : [];
  const select = [...columns, ...COMMON_COLUMNS, ...ownerColumns, ...SCOPE_COLUMNS];
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const changed: TotalsAndChanges<T>["changed"] = new Map();
    let sequencedTotals: { totals: T; sequence: string | undefined } | undefined;
    let sequence: string | undefined;
    let scope: Scope | undefined;
    let isReadable = true;
    const onCorrupt = () => {
      isReadable = false;
    };
    // The range has in this order: the totals (`k!totals`), a mark for each changed vault (`l!<vault>`), a row with the same
    // `sequence` as the totals (`l!~`), and the scope (`m!scope`). Totals are `unkept` if they were too large for a row, or are
    // incomplete: then the row has no counts.
    const range = { partitionKey: VAULTS, from: TOTALS_KEY, before: `${SCOPE_KEY}!`, onCorrupt, select };
    for await (const rows of tables.pages(TotalsAndScope, range)) {
      for (const row of rows) {
        if (row.rowKey === TOTALS_KEY) {
          const totals = row.unkept ? undefined : read(row);
          sequencedTotals = totals && { totals, sequence: row.sequence };
        } else if (row.rowKey === TOTALS_END_KEY) sequence = row.sequence;
        else if (row.rowKey === SCOPE_KEY) {
          const record = ScopeRecord.safeParse(row);
          if (record.success) scope = scopeOf(record.data);
          else isReadable = false;
        } else if (row.rowKey.startsWith(MARK_PREFIX)) {
          const changedVault = readMark(row, owners);
          if (changedVault) changed.set(row.rowKey.slice(MARK_PREFIX.length), changedVault);
          else isReadable = false;
        }
        if (!isReadable || !sequencedTotals) return undefined;
      }
      const vaults =
        sequencedTotals?.totals.subscriptions.reduce((sum, subscription) => sum + subscription.vaults, 0) ?? 0;
      if (!isReadable || changed.size > MAX_CHANGED + vaults / 2) return undefined;
    }
    // The totals are the first row that is read and the end row is the last. If their sequences differ, the totals were replaced
    // in between, and the marks may belong to the old or the new totals. Then all are read again.
    if (sequencedTotals?.sequence === sequence)
      return sequencedTotals && { totals: sequencedTotals.totals, scope: scope ?? scopeOf(undefined), changed };
  }
  return undefined;
}

/** The part of the totals that lists use. */
interface ListTotals extends Pick<Totals, "subscriptions" | "windows" | "seenAt"> {
  /** Returns the number in a range. Undefined if it is not exact. */
  count: typeof countIn;
  /** Null if there are none. */
  renewals: StoredRenewals | null;
}

/** Reads the columns for counts by status, which are small. These counts are exact until the next scan. */
const BY_STATUS: TotalsReading<ListTotals> = {
  columns: ["summary", "seenAt", "windows", "renewals", "thresholds"],
  owners: false,
  read: ({ summary, seenAt, ...record }) => {
    const totals = summary && unpackSummary(summary);
    const lastListings = seenAt && readLastListings(seenAt);
    const renewals = readRenewals(record);
    if (!totals || !lastListings || renewals === undefined) return undefined;
    return { ...totals, seenAt: lastListings, count: countBetween, renewals };
  },
};

/** Reads larger columns, whose counts are also exact for ranges of whole days. */
const BY_DAY: TotalsReading<ListTotals> = {
  columns: ["windows", "subscriptions", "expiries", "seenAt", "renewals", "renewalExpiries", "thresholds"],
  owners: false,
  read: (record) => {
    const parsed = TotalsRecord.safeParse(record).data;
    const totals = parsed && readTotals(parsed);
    const renewals = parsed && readRenewals(parsed);
    return totals && renewals !== undefined ? { ...totals, count: countIn, renewals } : undefined;
  },
};

/** Returns the group of a subscription's vaults from the totals. The totals must be exact for the requested ranges. */
export const groupOfSubscription = (
  { id, vaults, unreadable, expiries }: SubscriptionTotals,
  windows: readonly Window[],
  count: typeof countIn,
): VaultGroup => ({
  name: undefined,
  source: undefined,
  subscriptionId: id,
  listedAt: {},
  vaults,
  unreadable,
  count: (type, range) => count(expiries[type], windows, range)!,
  withPlan: undefined,
});

/**
 * Returns the group of a single vault.
 *
 * @param sign - -1 for the earlier state of a changed vault, whose counts are subtracted from the totals.
 */
export const groupOf = (vault: SummaryRow, sign: 1 | -1): VaultGroup => ({
  name: vault.name,
  source: vault.source,
  subscriptionId: vault.subscriptionId,
  listedAt: vault.listedAt,
  vaults: sign,
  unreadable: (vault.failedScans ?? 0) > 0 ? sign : 0,
  count: (type, range) => sign * countExpiries(expiriesOf(vault, type), range),
  withPlan: plannedOfVault(vault.certificateRenewals, sign),
});

const createListedAtLookup = (
  tables: Tables,
  seenAt: LastListings,
  changed: ReadonlyMap<string, VaultChange>,
): CountedGroups["listedAt"] => {
  const reads = new Map<string, Promise<VaultRecord | undefined>>();
  return async (vaultName, type) => {
    const key = vaultKey(vaultName);
    const currentState = changed.get(vaultName.toLowerCase())?.now;
    if (currentState) return currentState.listedAt[type];
    const lastListedAt = seenAt.lastListedAt(vaultName, type);
    // Null: the list was never read. Undefined: unknown, so the vault's row is read.
    if (lastListedAt !== undefined) return lastListedAt ?? undefined;
    const read = reads.get(key) ?? tables.get(Vaults, VAULTS, key);
    reads.set(key, read);
    return (await read)?.listedAt[type];
  };
};

/** Returns the key of the group to which an asset belongs: its subscription, or its holder. */
export const groupKey = (asset: Pick<AssetRecord, "source" | "subscriptionId" | "vaultName">): string =>
  sourceOf(asset) === "keyVault" ? asset.subscriptionId.toLowerCase() : asset.vaultName.toLowerCase();

/** Returns the key of a group: its subscription, or its holder. */
export const keyOfGroup = (group: VaultGroup): string => groupKey({ ...group, vaultName: group.name ?? "" });

/**
 * Returns the keys of groups whose assets a reader of the queried partitions must leave out: the groups that the query excludes
 * and that have assets.
 *
 * @param included - The groups that the query counts.
 */
export function hiddenGroups(
  groups: readonly VaultGroup[],
  included: ReadonlySet<VaultGroup>,
  types: readonly AssetType[],
): Set<string> {
  const assets = new Map<string, number>();
  for (const group of groups) {
    if (included.has(group)) continue;
    const key = keyOfGroup(group);
    assets.set(
      key,
      types.reduce((sum, type) => sum + group.count(type), assets.get(key) ?? 0),
    );
  }
  return new Set([...assets].flatMap(([key, count]) => (count > 0 ? [key] : [])));
}

/**
 * Returns the subscription to which a filter limits the query. The assets of a source other than key vaults are stored under an
 * invented subscription, so that source has a subscription of its own.
 */
export const subscriptionOf = (filter: {
  subscription?: string | undefined;
  source?: AssetSource | undefined;
}): string | undefined =>
  filter.subscription ??
  (filter.source === undefined || filter.source === "keyVault" ? undefined : holderSubscription(filter.source));
