import { inflateRawSync } from "node:zlib";
import { isConflict } from "../storage/conflict.ts";
import { StorageCorrupt, type Tables } from "../storage/tables.ts";
import { type Clearable, set, writeTotals } from "../storage/write-totals.ts";
import { type CountedResults, countedOf, readChangedResults } from "./changed-results.ts";
import {
  ChangedRows,
  changedKey,
  changedRange,
  ExemptionRecord,
  isExemptionKey,
  isVaultKey,
  OverviewRows,
  overviewMembers,
  overviewRange,
  STATE,
  TABLE,
  TOTALS_END_KEY,
  TOTALS_KEY,
  TotalsEnd,
  type TotalsRecord,
  TotalsRows,
  VaultStates,
  VaultSummary,
  vaultOfChange,
  vaultStateKey,
} from "./layout.ts";
import { readTotals, totalsOf } from "./result-totals.ts";

const ATTEMPTS = 3;

/**
 * Computes the totals anew from the vaults' rows, and clears the rows of the vaults that they then count as they are. One
 * request per 1,000 vaults and 1,000 changed ones, one for each 90 of those, and three.
 *
 * @param options - `changed`: only where something changed since, which two requests tell.
 */
export async function renewTotals(tables: Tables, options: { changed?: boolean } = {}): Promise<void> {
  if (options.changed && !(await hasChanged(tables))) return;
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    try {
      const found = await readAll(tables);
      if (!found) return;
      const { etag, counted, clearable, exempt } = found;
      return await writeTotals(tables, {
        table: TABLE,
        partitionKey: STATE,
        totals: { entity: TotalsRows, key: TOTALS_KEY, etag },
        end: { entity: TotalsEnd, key: TOTALS_END_KEY },
        changes: ChangedRows,
        counted,
        clearable,
        own: async (rowKey) => countedOf(await tables.get(VaultStates, STATE, vaultStateKey(vaultOfChange(rowKey)))),
        recordOf: (vaults, sequence) => totalsOf(vaults, exempt, sequence),
        unkept: (sequence) => ({ sequence }),
      });
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }
}

/**
 * What is wrong with the totals, beside what their changed vaults say: nothing ever is but by a fault. Undefined, too,
 * where that can't be told, since others wrote meanwhile. Requests as `renewTotals`.
 */
export async function faultOfTotals(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const found = await readAll(tables);
  if (!found) return undefined;
  if (found.unreadable) return "unreadable";
  const known = found.clearable.every(({ change }) => change !== undefined);
  if (!known || !found.record?.totals || isOf(found.record, found.counted)) return undefined;
  return (await standing(tables)).etag === found.etag ? "stale" : undefined;
}

async function hasChanged(tables: Tables): Promise<boolean> {
  const { record } = await standing(tables);
  if (!record?.totals) return true;
  for await (const _ of tables.pages(ChangedRows, { ...changedRange, pageSize: 1, select: [], onCorrupt: () => {} }))
    return true;
  return false;
}

interface Standing {
  etag: string | undefined;
  record: TotalsRecord | undefined;
  unreadable: boolean;
}

interface Found extends Standing {
  /** The results as the totals count them, by `changedKey`. */
  counted: Map<string, CountedResults>;
  clearable: Clearable<CountedResults>[];
  /** Lower-cased names of vaults that an exemption of a whole vault names. */
  exempt: Set<string>;
}

/** In this order for the same reason as the inventory's totals: the totals' ETag, the vaults' rows, those that changed. */
async function readAll(tables: Tables): Promise<Found | undefined> {
  const stood = await standing(tables);
  const counted = new Map<string, CountedResults>();
  const exempt = new Set<string>();
  let unreadable = 0;
  const range = { ...overviewRange, select: overviewMembers, onCorrupt: () => unreadable++ };
  for await (const rows of tables.pages(OverviewRows, range)) {
    for (const row of rows) {
      if (isExemptionKey(row.rowKey)) {
        const { scopeType, scopeId } = ExemptionRecord.parse(row);
        if (scopeType === "vault" && scopeId !== undefined) exempt.add(scopeId);
      } else if (isVaultKey(row.rowKey)) {
        const summary = VaultSummary.safeParse(row).data;
        if (summary) set(counted, changedKey(summary.name), countedOf(summary));
        else unreadable++;
      }
    }
  }
  // What it holds is not known; the reconciliation mends it.
  if (unreadable > 0) return undefined;
  const clearable: Clearable<CountedResults>[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => clearable.push({ rowKey, etag, change: undefined });
  for await (const rows of tables.pages(ChangedRows, { ...changedRange, onCorrupt })) {
    for (const row of rows) {
      const change = readChangedResults(row);
      set(counted, row.rowKey, change?.before);
      clearable.push({ rowKey: row.rowKey, etag: row.etag, change });
    }
  }
  return { ...stood, counted, clearable, exempt };
}

async function standing(tables: Tables): Promise<Standing> {
  try {
    const record = await tables.get(TotalsRows, STATE, TOTALS_KEY);
    return { etag: record?.etag, record, unreadable: false };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, record: undefined, unreadable: true };
  }
}

/** Whether these totals count just these results. */
function isOf(record: TotalsRecord, counted: ReadonlyMap<string, CountedResults>): boolean {
  const exempt = new Set(readTotals(record)?.exempt);
  const wanted = totalsOf(counted.values(), exempt, record.sequence);
  if (!("totals" in wanted)) return false;
  return Buffer.compare(inflateRawSync(wanted.totals), inflateRawSync(record.totals!)) === 0;
}
