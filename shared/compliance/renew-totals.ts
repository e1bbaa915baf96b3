import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { inflate } from "../platform/storage/packed-members.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { type RemovableChange, setOrDelete, writeTotals } from "../platform/storage/write-totals.ts";
import { type CountedResults, countedOf, readChangedResults } from "./changed-results.ts";
import {
  apartRange,
  ChangedRows,
  changedKey,
  changedRange,
  EVALUATION_KEY,
  OverviewRows,
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
  vaultsRange,
} from "./layout.ts";
import { readTotals, totalsOf } from "./result-totals.ts";

/**
 * Computes the totals anew from the vaults' rows, and clears the rows of the vaults that they then count as they are. One
 * request per 1,000 vaults and 1,000 changed ones, one for each 90 of those, and four. Does nothing where a vault's row can't
 * be read: the reconciliation mends it.
 *
 * @param options - `changed`: only where something changed since, which two requests tell.
 * @throws the last conflict when others came between each time: what changed is then still counted from its own rows.
 */
export async function renewTotals(tables: Tables, options: { changed?: boolean } = {}): Promise<void> {
  if (options.changed && !(await hasChanged(tables))) return;
  await repeatOnConflict(async () => {
    const found = await readAll(tables);
    if (!found) return;
    const { etag, counted, removable, apart } = found;
    await writeTotals(tables, {
      table: TABLE,
      partitionKey: STATE,
      totals: { entity: TotalsRows, key: TOTALS_KEY, etag },
      end: { entity: TotalsEnd, key: TOTALS_END_KEY },
      changes: ChangedRows,
      counted,
      removable,
      readCurrent: async (rowKey) =>
        countedOf(await tables.get(VaultStates, STATE, vaultStateKey(vaultOfChange(rowKey)))),
      recordOf: (vaults, sequence) => totalsOf(vaults, apart, sequence),
      placeholderOf: (sequence) => ({ sequence }),
    });
  });
}

/**
 * What is wrong with the totals, beside what their changed vaults say: nothing ever is but by a fault. Undefined, too,
 * where that can't be told, since others wrote meanwhile. Requests as `renewTotals`.
 */
export async function faultOfTotals(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const found = await readAll(tables);
  if (!found) return undefined;
  if (found.unreadable || (found.record?.totals && !readTotals(found.record))) return "unreadable";
  const known = found.removable.every(({ change }) => change !== undefined);
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
  removable: RemovableChange<CountedResults>[];
  /** Lower-cased names of vaults that an exemption of a whole vault names, or that the last evaluation of everything failed at. */
  apart: Set<string>;
}

/**
 * In this order for the same reason as the inventory's totals: the totals' ETag, the vaults' rows, those that changed. What
 * keeps vaults apart comes last: it is written with the row of a changed vault, and so is known where that is cleared.
 */
async function readAll(tables: Tables): Promise<Found | undefined> {
  const stood = await standing(tables);
  const counted = new Map<string, CountedResults>();
  let unreadable = 0;
  const range = { ...vaultsRange, select: SUMMARY, onCorrupt: () => unreadable++ };
  for await (const rows of tables.pages(VaultStates, range))
    for (const row of rows) setOrDelete(counted, changedKey(row.name), countedOf(row));
  // What it holds is not known; the reconciliation mends it.
  if (unreadable > 0) return undefined;
  const removable: RemovableChange<CountedResults>[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => removable.push({ rowKey, etag, change: undefined });
  for await (const rows of tables.pages(ChangedRows, { ...changedRange, onCorrupt })) {
    for (const row of rows) {
      const change = readChangedResults(row);
      setOrDelete(counted, row.rowKey, change?.before);
      removable.push({ rowKey: row.rowKey, etag: row.etag, change });
    }
  }
  return { ...stood, counted, removable, apart: await readApart(tables) };
}

async function readApart(tables: Tables): Promise<Set<string>> {
  const apart = new Set<string>();
  for await (const rows of tables.pages(OverviewRows, { ...apartRange, select: APART })) {
    for (const { rowKey, scopeType, scopeId, failedVaults = [] } of rows) {
      if (scopeType === "vault" && scopeId !== undefined) apart.add(scopeId);
      if (rowKey === EVALUATION_KEY) for (const name of failedVaults) apart.add(name);
    }
  }
  return apart;
}

const SUMMARY = Object.keys(VaultSummary.shape) as (keyof VaultSummary)[];
const APART = ["scopeType", "scopeId", "failedVaults"] as const;

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
  const apart = new Set(readTotals(record)?.exempt);
  const wanted = totalsOf(counted.values(), apart, record.sequence);
  if (!("totals" in wanted)) return false;
  return Buffer.compare(inflate(wanted.totals), inflate(record.totals!)) === 0;
}
