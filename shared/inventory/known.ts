import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, type AssetSource, type AssetType, sourceOf } from "./asset.ts";
import { CHANGED, type Changed, ChangedVault, readChanged } from "./changed-vaults.ts";
import { countExpiries } from "./expiries.ts";
import type { ExpiryRange } from "./health.ts";
import { countBetween, countIn, type Window } from "./histogram.ts";
import { holderSubscription } from "./holder.ts";
import { NAME_PREFIX } from "./layout.ts";
import { readScope, SCOPE_KEY, type Scope, ScopeRecord, scopeOf } from "./scope.ts";
import type { SeenAt } from "./seen-at.ts";
import { unpackSummary } from "./summary-totals.ts";
import {
  readSeenAt,
  readTotals,
  type SubscriptionTotals,
  TOTALS_END_KEY,
  TOTALS_KEY,
  type Totals,
  TotalsRecord,
} from "./totals.ts";
import { expiriesOf, VAULTS, VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "./vault.ts";

/** What totals are counted from. */
export type SummaryRow = Pick<VaultRecord, "name" | "subscriptionId" | "listedAt"> & Partial<VaultRecord>;
const SUMMARY = [
  "name",
  "source",
  "subscriptionId",
  "listedAt",
  "failedScans",
  "certificateExpiries",
  "keyExpiries",
  "secretExpiries",
  "lastEventAt",
] as const;

/** A range of the vaults that begins with the row of the scope. */
const ScopeAndVaults = entity("Vaults", z.object({ ...VaultRecord.shape, ...ScopeRecord.shape }).partial());
const TotalsAndScope = entity(
  "Vaults",
  z.object({ ...TotalsRecord.shape, ...ChangedVault.shape, ...ScopeRecord.shape }).partial(),
);
const SCOPE = Object.keys(ScopeRecord.shape) as (keyof ScopeRecord)[];

/** The vaults and holders that a question is about, and what is watched. */
export interface Known {
  vaults: SummaryRow[];
  scope: Scope;
}

/**
 * One vault, those of one subscription, or all: a request per 1,000, and one for the scope where it does not stand beside them.
 *
 * @param also - Further members of the vaults' rows.
 */
export async function readKnown(
  tables: Tables,
  where: { vault?: string | undefined; subscription?: string | undefined } = {},
  also: readonly (keyof VaultRecord)[] = [],
): Promise<Known> {
  const select = [...SUMMARY, ...also];
  if (where.vault !== undefined) {
    const [row, scope] = await Promise.all([tables.get(Vaults, VAULTS, vaultKey(where.vault)), readScope(tables)]);
    const fits =
      row &&
      sourceOf(row) === "keyVault" &&
      (!where.subscription || row.subscriptionId.toLowerCase() === where.subscription.toLowerCase());
    return { vaults: fits ? [row] : [], scope };
  }
  if (where.subscription) {
    const prefix = vaultInSubscriptionKey(where.subscription, "");
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), select };
    const [vaults, scope] = await Promise.all([allRows(tables.pages(Vaults, range)), readScope(tables)]);
    return { vaults, scope };
  }
  const vaults: SummaryRow[] = [];
  let scope: Scope | undefined;
  const range = { partitionKey: VAULTS, from: SCOPE_KEY, before: keyEnd(NAME_PREFIX), select: [...select, ...SCOPE] };
  for await (const rows of tables.pages(ScopeAndVaults, range)) {
    for (const row of rows) {
      if (row.rowKey === SCOPE_KEY) scope = scopeOf(ScopeRecord.parse(row));
      else if (isSummary(row)) vaults.push(row);
      else throw new StorageCorrupt(Vaults.table, row, "it lacks its name, its subscription or when it was listed");
    }
  }
  return { vaults, scope: scope ?? scopeOf(undefined) };
}

const isSummary = <T extends Partial<VaultRecord>>(row: T): row is T & SummaryRow =>
  row.name !== undefined && row.subscriptionId !== undefined && row.listedAt !== undefined;

async function allRows<T>(pages: AsyncIterable<T[]>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page);
  return all;
}

/** Vaults that are counted together: one alone, or all key vaults of a subscription. */
export interface VaultGroup extends Pick<VaultRecord, "source" | "subscriptionId" | "listedAt"> {
  /** Of one alone. */
  name: string | undefined;
  /** How many; less than none where it takes off what another one has too much. */
  vaults: number;
  /** Those of which the last scan could read no list. */
  unreadable: number;
  /** Assets of the type; those that expire in the range, where one is given. */
  count(type: AssetType, range?: ExpiryRange): number;
}

/** The vaults and holders that a question is about, counted; what is watched; and when each was last listed. */
export interface KnownGroups {
  groups: VaultGroup[];
  scope: Scope;
  /** ISO 8601, undefined where it never was. As the last scan that ended has it, or what changed since. */
  listedAt(vaultName: string, type: AssetType): Promise<string | undefined>;
}

/**
 * The same as `readKnown`, counted. Of everything one request for the totals, where they are there and are exact at the
 * bounds of these ranges; else, and of one vault or one subscription, one more and as `readKnown`.
 *
 * @param ofStatuses - Whether these are ranges of statuses, for which a smaller part of the totals does.
 */
export async function readGroups(
  tables: Tables,
  where: { vault?: string | undefined; subscription?: string | undefined },
  ranges: readonly ExpiryRange[],
  ofStatuses: boolean,
): Promise<KnownGroups> {
  const isAll = (where.vault ?? where.subscription) === undefined;
  const fromTotals = isAll
    ? ((ofStatuses ? await readFromTotals(tables, BY_STATUS, ranges) : undefined) ??
      (await readFromTotals(tables, BY_DAY, ranges)))
    : undefined;
  return fromTotals ?? (await readCounted(tables, where));
}

async function readCounted(tables: Tables, where: Parameters<typeof readKnown>[1]): Promise<KnownGroups> {
  const { vaults, scope } = await readKnown(tables, where);
  const byName = new Map(vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  return {
    groups: vaults.map((vault) => groupOf(vault, 1)),
    scope,
    listedAt: async (vaultName, type) => byName.get(vaultName.toLowerCase())?.listedAt[type],
  };
}

/** Undefined where the totals are not there, or don't say exactly how many lie in one of the ranges. */
async function readFromTotals<T extends ListTotals>(
  tables: Tables,
  reading: TotalsReading<T>,
  ranges: readonly ExpiryRange[],
): Promise<KnownGroups | undefined> {
  const totalled = await readTotalled(tables, reading);
  if (!totalled) return undefined;
  const { totals, changed, scope } = totalled;
  const groups = totals.subscriptions.map((one) => groupOfSubscription(one, totals.windows, totals.count));
  const isExact = groups.every(({ count }) =>
    ASSET_TYPES.every((type) => ranges.every((range) => count(type, range) !== undefined)),
  );
  if (!isExact) return undefined;
  for (const { before, now } of changed.values()) {
    if (before) groups.push(groupOf(before, -1));
    if (now) groups.push(groupOf(now, 1));
  }
  return { groups, scope, listedAt: listedAtOf(tables, totals.seenAt, changed) };
}

/** What totals say, of all but the changed vaults. */
export interface Totalled<T> {
  totals: T;
  scope: Scope;
  /** By lower-cased name: how the totals count each vault that changed since, and how its row has it. */
  changed: Map<string, Changed>;
}

/**
 * So many changed vaults are counted from their own rows, and half as many as there are: with more of them reading all
 * vaults' rows costs no more.
 */
const MAX_CHANGED = 500;
const READINGS = 3;
const ANY_TOTALS = ["sequence", "unkept", "before", "now"] as const;

/** What is read of the totals. */
export interface TotalsReading<T> {
  columns: readonly (keyof TotalsRecord)[];
  /** Whether the owners of changed vaults are asked for. */
  owners: boolean;
  /** Undefined where the totals lack it or say nonsense. */
  read(record: Partial<TotalsRecord>): T | undefined;
}

/** The totals, the changed vaults and the scope. Undefined where there are no totals, or they say too little or nonsense. */
export async function readTotalled<T extends { subscriptions: readonly { vaults: number }[] }>(
  tables: Tables,
  { columns, owners, read }: TotalsReading<T>,
): Promise<Totalled<T> | undefined> {
  const ofOwners = owners ? (["ownersBefore", "ownersNow"] as const) : [];
  const select = [...columns, ...ANY_TOTALS, ...ofOwners, ...SCOPE];
  for (let reading = 1; reading <= READINGS; reading++) {
    const changed: Totalled<T>["changed"] = new Map();
    let found: { totals: T; sequence: string | undefined } | undefined;
    let sequence: string | undefined;
    let scope: Scope | undefined;
    let readable = true;
    const onCorrupt = () => {
      readable = false;
    };
    const range = { partitionKey: VAULTS, from: TOTALS_KEY, before: `${SCOPE_KEY}!`, onCorrupt, select };
    for await (const rows of tables.pages(TotalsAndScope, range)) {
      for (const row of rows) {
        if (row.rowKey === TOTALS_KEY) {
          const totals = row.unkept ? undefined : read(row);
          found = totals && { totals, sequence: row.sequence };
        } else if (row.rowKey === TOTALS_END_KEY) sequence = row.sequence;
        else if (row.rowKey === SCOPE_KEY) scope = scopeOf(ScopeRecord.parse(row));
        else if (row.rowKey.startsWith(CHANGED)) {
          const one = readChanged(row, owners);
          if (one) changed.set(row.rowKey.slice(CHANGED.length), one);
          else readable = false;
        }
        if (!readable || !found) return undefined;
      }
      const vaults = found?.totals.subscriptions.reduce((sum, one) => sum + one.vaults, 0) ?? 0;
      if (!readable || changed.size > MAX_CHANGED + vaults / 2) return undefined;
    }
    // Where others wrote the totals while this read, what it read of changed vaults may belong to either.
    if (found?.sequence === sequence)
      return found && { totals: found.totals, scope: scope ?? scopeOf(undefined), changed };
  }
  return undefined;
}

/** Totals as lists go by them. */
interface ListTotals extends Pick<Totals, "subscriptions" | "windows" | "seenAt"> {
  /** How many lie in a range; undefined where that is not known exactly. */
  count: typeof countIn;
}

/** Exact at the bounds of statuses until the next scan, and small. */
const BY_STATUS: TotalsReading<ListTotals> = {
  columns: ["summary", "seenAt"],
  owners: false,
  read: ({ summary, seenAt }) => {
    const totals = summary && unpackSummary(summary);
    const seen = seenAt && readSeenAt(seenAt);
    return totals && seen && { ...totals, seenAt: seen, count: countBetween };
  },
};

/** Exact at the bounds of days, too. */
const BY_DAY: TotalsReading<ListTotals> = {
  columns: ["windows", "subscriptions", "expiries", "seenAt"],
  owners: false,
  read: (record) => {
    const parsed = TotalsRecord.safeParse(record).data;
    const totals = parsed && readTotals(parsed);
    return totals && { ...totals, count: countIn };
  },
};

/** All vaults of a subscription, as totals tell them. They must be exact in the ranges that are asked for. */
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
});

export const groupOf = (vault: SummaryRow, sign: 1 | -1): VaultGroup => ({
  name: vault.name,
  source: vault.source,
  subscriptionId: vault.subscriptionId,
  listedAt: vault.listedAt,
  vaults: sign,
  unreadable: (vault.failedScans ?? 0) > 0 ? sign : 0,
  count: (type, range) => sign * countExpiries(expiriesOf(vault, type), range),
});

const listedAtOf = (tables: Tables, seenAt: SeenAt, changed: ReadonlyMap<string, Changed>): KnownGroups["listedAt"] => {
  const asked = new Map<string, Promise<VaultRecord | undefined>>();
  return async (vaultName, type) => {
    const key = vaultKey(vaultName);
    const now = changed.get(vaultName.toLowerCase())?.now;
    if (now) return now.listedAt[type];
    const seen = seenAt.of(vaultName, type);
    if (seen !== undefined) return seen ?? undefined;
    const reading = asked.get(key) ?? tables.get(Vaults, VAULTS, key);
    asked.set(key, reading);
    return (await reading)?.listedAt[type];
  };
};

/** What stands for a group among those that assets name: their subscription, or their holder. */
export const groupKey = (of: Pick<AssetRecord, "source" | "subscriptionId" | "vaultName">): string =>
  sourceOf(of) === "keyVault" ? of.subscriptionId.toLowerCase() : of.vaultName.toLowerCase();

export const keyOfGroup = (group: VaultGroup): string => groupKey({ ...group, vaultName: group.name ?? "" });

/** Those among which the wanted groups' assets stand and whose own are not asked for, by `groupKey`. */
export function hiddenGroups(
  known: readonly VaultGroup[],
  wanted: ReadonlySet<VaultGroup>,
  types: readonly AssetType[],
): Set<string> {
  const assets = new Map<string, number>();
  for (const group of known) {
    if (wanted.has(group)) continue;
    const key = keyOfGroup(group);
    assets.set(
      key,
      types.reduce((sum, type) => sum + group.count(type), assets.get(key) ?? 0),
    );
  }
  return new Set([...assets].flatMap(([key, count]) => (count > 0 ? [key] : [])));
}

/** A source other than key vaults has a partition of its own, as a subscription has. */
export const subscriptionOf = (filter: {
  subscription?: string | undefined;
  source?: AssetSource | undefined;
}): string | undefined =>
  filter.subscription ??
  (filter.source === undefined || filter.source === "keyVault" ? undefined : holderSubscription(filter.source));
