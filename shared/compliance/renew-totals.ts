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
} from "./compliance-rows.ts";
import { readTotals, totalsOf } from "./result-totals.ts";

/**
 * Recomputes the totals from the vaults' rows, and removes the marks of vaults whose current state they then contain. One
 * request per 1,000 vaults, per 1,000 changed vaults and per 90 changed vaults, and four more. Does nothing if a vault's row can't
 * be read; the reconciliation repairs such a row.
 *
 * @param options - `changed`: true recomputes only if something changed, which costs two requests.
 * @throws the last conflict if other writers interfered in every attempt. Changed vaults are then still counted from their own
 * rows.
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
 * Returns how the totals are wrong, which only a bug or damaged storage can cause. Undefined if the totals are right, if there are
 * none, or if concurrent writes or an unreadable row prevent the comparison. Takes as many reads as `renewTotals`.
 */
export async function faultOfTotals(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const found = await readAll(tables);
  if (!found) return undefined;
  if (found.unreadable || (found.record?.totals && !readTotals(found.record))) return "unreadable";
  const areMarksReadable = found.removable.every(({ change }) => change !== undefined);
  if (!areMarksReadable || !found.record?.totals || countsExactly(found.record, found.counted)) return undefined;
  return (await readStoredTotals(tables)).etag === found.etag ? "stale" : undefined;
}

async function hasChanged(tables: Tables): Promise<boolean> {
  const { record } = await readStoredTotals(tables);
  if (!record?.totals) return true;
  for await (const _ of tables.pages(ChangedRows, { ...changedRange, pageSize: 1, select: [], onCorrupt: () => {} }))
    return true;
  return false;
}

interface StoredTotals {
  etag: string | undefined;
  record: TotalsRecord | undefined;
  unreadable: boolean;
}

interface Found extends StoredTotals {
  /** The results as the totals count them, by `changedKey`. */
  counted: Map<string, CountedResults>;
  removable: RemovableChange<CountedResults>[];
  /** Lower-case names of vaults with an exemption of the whole vault, or at which the last evaluation of everything failed. */
  apart: Set<string>;
}

/**
 * Reads in this order for consistency, like the inventory's totals: the ETag of the totals, the vaults' rows, the marks.
 * Exemptions and failed vaults come last: they are written together with a vault's mark, so the totals that remove the mark
 * include them.
 */
async function readAll(tables: Tables): Promise<Found | undefined> {
  const stored = await readStoredTotals(tables);
  const counted = new Map<string, CountedResults>();
  let unreadable = 0;
  const range = { ...vaultsRange, select: SUMMARY, onCorrupt: () => unreadable++ };
  for await (const rows of tables.pages(VaultStates, range))
    for (const row of rows) setOrDelete(counted, changedKey(row.name), countedOf(row));
  // The content of an unreadable row is unknown. The reconciliation repairs the row.
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
  return { ...stored, counted, removable, apart: await readApart(tables) };
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

async function readStoredTotals(tables: Tables): Promise<StoredTotals> {
  try {
    const record = await tables.get(TotalsRows, STATE, TOTALS_KEY);
    return { etag: record?.etag, record, unreadable: false };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, record: undefined, unreadable: true };
  }
}

/** Returns whether these totals count exactly these results. */
function countsExactly(record: TotalsRecord, counted: ReadonlyMap<string, CountedResults>): boolean {
  const apart = new Set(readTotals(record)?.exempt);
  const wanted = totalsOf(counted.values(), apart, record.sequence);
  if (!("totals" in wanted)) return false;
  return Buffer.compare(inflate(wanted.totals), inflate(record.totals!)) === 0;
}
