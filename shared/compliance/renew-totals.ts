/**
 * Recomputes the stored totals of all vaults' results, and finds faults in them. A "mark" is a row that names a vault whose
 * results changed after the totals were computed; see changed-results.ts. Scans and timers call this.
 */
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { inflate } from "../platform/storage/packed-members.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { type RemovableChange, setOrDelete, writeTotals } from "../platform/storage/write-totals.ts";
import { type CountedResults, countedResultsOf, readChangedResults } from "./changed-results.ts";
import {
  broadExemptionsAndEvaluationRange,
  ChangedRows,
  changedVaultKey,
  changedVaultsRange,
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
  vaultOfChangedKey,
  vaultStateKey,
  vaultsRange,
} from "./compliance-rows.ts";
import { computeTotals, readTotals } from "./result-totals.ts";

/**
 * Recomputes the totals from the vaults' rows, and removes the marks of vaults whose current results the totals then count.
 * Sends four requests, one more per 1,000 vaults and per 1,000 marks to read, and one more per 90 marks to remove. Does nothing
 * if a vault's row can't be read; the reconciliation repairs such a row.
 *
 * @param options - `changed`: true recomputes only if there is a mark or there are no totals. Finding that out costs two
 * requests.
 * @throws the last conflict if other writers interfered in every attempt. The marks then stay, so scores are still correct.
 */
export async function renewTotals(tables: Tables, options: { changed?: boolean } = {}): Promise<void> {
  if (options.changed && !(await hasChanged(tables))) return;
  await repeatOnConflict(async () => {
    const current = await readVaultsAndMarks(tables);
    if (!current) return;
    const { etag, countedResults, removable, individualVaults } = current;
    await writeTotals(tables, {
      table: TABLE,
      partitionKey: STATE,
      totals: { entity: TotalsRows, key: TOTALS_KEY, etag },
      end: { entity: TotalsEnd, key: TOTALS_END_KEY },
      changes: ChangedRows,
      counted: countedResults,
      removable,
      // For a mark that can't be read: the vault's own row has its current results.
      readCurrent: async (rowKey) =>
        countedResultsOf(await tables.get(VaultStates, STATE, vaultStateKey(vaultOfChangedKey(rowKey)))),
      recordOf: (vaults, sequence) => computeTotals(vaults, individualVaults, sequence),
      // Many marks are removed in several transactions. All but the last store totals that readers ignore.
      placeholderOf: (sequence) => ({ sequence }),
    });
  });
}

/**
 * Returns how the totals are wrong, which only a bug or damaged storage can cause. Undefined if the totals are correct or don't
 * exist, or if concurrent writes or an unreadable row prevent the comparison. Takes as many reads as `renewTotals`.
 */
export async function findTotalsFault(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const current = await readVaultsAndMarks(tables);
  if (!current) return undefined;
  if (current.isRecordUnreadable || (current.record?.totals && !readTotals(current.record))) return "unreadable";
  const areMarksReadable = current.removable.every(({ change }) => change !== undefined);
  if (!areMarksReadable || !current.record?.totals || countsExactly(current.record, current.countedResults))
    return undefined;
  return (await readStoredTotals(tables)).etag === current.etag ? "stale" : undefined;
}

async function hasChanged(tables: Tables): Promise<boolean> {
  const { record } = await readStoredTotals(tables);
  if (!record?.totals) return true;
  for await (const _ of tables.pages(ChangedRows, {
    ...changedVaultsRange,
    pageSize: 1,
    select: [],
    onCorrupt: () => {},
  }))
    return true;
  return false;
}

interface StoredTotals {
  etag: string | undefined;
  record: TotalsRecord | undefined;
  isRecordUnreadable: boolean;
}

interface VaultsAndMarks extends StoredTotals {
  /** The results as the stored totals count them, by `changedVaultKey`. */
  countedResults: Map<string, CountedResults>;
  /** The marks, which the renewed totals make unnecessary. */
  removable: RemovableChange<CountedResults>[];
  /**
   * Lower-case names of vaults that the totals list individually instead of adding them to a sum. These are vaults with an
   * exemption of the whole vault, and vaults at which the last requested evaluation failed.
   */
  individualVaults: Set<string>;
}

/**
 * Reads in an order that makes concurrent writes harmless. First the ETag of the totals: if the totals are replaced after that,
 * the write of new ones fails. Then the vaults' rows, and after them the marks: a vault that changed after its row was read has
 * a mark with its results before the change. Exemptions and failed vaults are read last, because an exemption is written
 * together with a vault's mark: so totals that remove the mark include the exemption.
 */
async function readVaultsAndMarks(tables: Tables): Promise<VaultsAndMarks | undefined> {
  const stored = await readStoredTotals(tables);
  const countedResults = new Map<string, CountedResults>();
  let unreadableVaultRows = 0;
  const range = { ...vaultsRange, select: SUMMARY_COLUMNS, onCorrupt: () => unreadableVaultRows++ };
  for await (const rows of tables.pages(VaultStates, range))
    for (const row of rows) setOrDelete(countedResults, changedVaultKey(row.name), countedResultsOf(row));
  // The content of an unreadable row is unknown. The reconciliation repairs the row.
  if (unreadableVaultRows > 0) return undefined;
  const removable: RemovableChange<CountedResults>[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => removable.push({ rowKey, etag, change: undefined });
  for await (const rows of tables.pages(ChangedRows, { ...changedVaultsRange, onCorrupt })) {
    for (const row of rows) {
      const change = readChangedResults(row);
      setOrDelete(countedResults, row.rowKey, change?.before);
      removable.push({ rowKey: row.rowKey, etag: row.etag, change });
    }
  }
  return { ...stored, countedResults, removable, individualVaults: await readIndividualVaults(tables) };
}

async function readIndividualVaults(tables: Tables): Promise<Set<string>> {
  const individualVaults = new Set<string>();
  for await (const rows of tables.pages(OverviewRows, {
    ...broadExemptionsAndEvaluationRange,
    select: INDIVIDUAL_COLUMNS,
  })) {
    for (const { rowKey, scopeType, scopeId, failedVaults = [] } of rows) {
      if (scopeType === "vault" && scopeId !== undefined) individualVaults.add(scopeId);
      if (rowKey === EVALUATION_KEY) for (const name of failedVaults) individualVaults.add(name);
    }
  }
  return individualVaults;
}

const SUMMARY_COLUMNS = Object.keys(VaultSummary.shape) as (keyof VaultSummary)[];
const INDIVIDUAL_COLUMNS = ["scopeType", "scopeId", "failedVaults"] as const;

async function readStoredTotals(tables: Tables): Promise<StoredTotals> {
  try {
    const record = await tables.get(TotalsRows, STATE, TOTALS_KEY);
    return { etag: record?.etag, record, isRecordUnreadable: false };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, record: undefined, isRecordUnreadable: true };
  }
}

/** Returns whether the stored totals equal those computed from these results. */
function countsExactly(record: TotalsRecord, countedResults: ReadonlyMap<string, CountedResults>): boolean {
  const individualVaults = new Set(readTotals(record)?.exempt);
  const expected = computeTotals(countedResults.values(), individualVaults, record.sequence);
  if (!("totals" in expected)) return false;
  return Buffer.compare(inflate(expected.totals), inflate(record.totals!)) === 0;
}
