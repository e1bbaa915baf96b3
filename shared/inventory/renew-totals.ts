import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { inflate } from "../platform/storage/packed-members.ts";
import { insert, type Operation, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { type RemovableChange, setOrDelete, writeTotals } from "../platform/storage/write-totals.ts";
import { sourceOf } from "./asset.ts";
import type { Moment } from "./asset-status.ts";
import {
  ChangedVaults,
  COUNTED_FIELDS,
  type CountedState,
  createMark,
  isCountedEqually,
  MARK_PREFIX,
  markKey,
  readMark,
} from "./changed-vaults.ts";
import type { Window } from "./histogram.ts";
import { readScope, type Scope } from "./scope.ts";
import { layoutOfSummary, type SummaryLayout, summaryLayoutAt, unpackSummary } from "./summary-totals.ts";
import {
  computeTotals,
  exactWindows,
  readRenewals,
  readTotals,
  type Thresholds,
  TOTALS_END_KEY,
  TOTALS_KEY,
  TotalsEnd,
  type TotalsRecord,
  TotalsRows,
  unusableTotals,
} from "./totals.ts";
import { VAULTS, Vaults, vaultKey } from "./vault.ts";

/**
 * Renews the stored totals of all vaults (totals.ts), and checks whether they are right. A *mark* is the row of a
 * vault that changed since the totals were computed (changed-vaults.ts). A *holder* is the row that takes the place of a vault
 * for credentials of a directory. Totals count only vaults, so each holder always has a mark.
 */

/**
 * Recomputes the totals from the vaults' rows, and removes the marks of vaults whose current state they then contain. One
 * request per 1,000 vaults, per 1,000 changed vaults and per 90 changed vaults, and three more. Does nothing if a vault's row
 * can't be read; the reconciliation repairs such a row.
 *
 * @throws the last conflict if other writers interfered in every attempt. Changed vaults are then still counted from their own
 * rows.
 */
export async function renewTotals(tables: Tables, moment: Moment): Promise<void> {
  await repeatOnConflict(async () => {
    const current = await readVaultsAndMarks(tables);
    if (current)
      await writeNewTotals(tables, current, exactWindows(moment), summaryLayoutAt(moment, current.scope), moment);
  });
}

/**
 * Returns how the totals are wrong, which only a bug or damaged storage can cause. Undefined if the totals are right, if there
 * are none, or if concurrent writes or an unreadable row prevent the comparison. Takes as many requests as `renewTotals`.
 */
export async function findTotalsFault(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const current = await readVaultsAndMarks(tables);
  if (!current) return undefined;
  if (current.unreadable || (current.record && !isReadable(current.record))) return "unreadable";
  const areMarksReadable = current.removable.every(({ change }) => change !== undefined);
  if (!areMarksReadable || !current.record || countsExactly(current.record, current.counted)) return undefined;
  return (await readStored(tables)).etag === current.etag ? "stale" : undefined;
}

/** The stored totals, and the state they should contain. */
interface VaultsAndMarks extends StoredTotals {
  scope: Scope;
  /** Vaults as the totals count them, by `markKey`. */
  counted: Map<string, CountedState>;
  /** The marks, which the renewed totals make unnecessary. */
  removable: RemovableChange<CountedState>[];
  /** Operations that write the missing or outdated marks of holders, which earlier versions did not write. */
  markOperations: Operation[];
}

/**
 * Reads in an order that makes the result consistent: the ETag of the totals, then the vaults' rows, then the marks.
 * - A vault without a mark has not changed since before the first read. Otherwise the totals were replaced, and their ETag no
 *   longer matches.
 * - A vault with a mark is counted by the mark's state. The transaction that writes the totals removes the mark by its ETag.
 *   Any further change of the vault replaces that ETag, so the transaction fails.
 */
async function readVaultsAndMarks(tables: Tables): Promise<VaultsAndMarks | undefined> {
  const stored = await readStored(tables);
  const scope = await readScope(tables);
  const counted = new Map<string, CountedState>();
  const holders = new Map<string, CountedState>();
  let unreadable = 0;
  const range = { partitionKey: VAULTS, from: vaultKey(""), before: keyEnd(vaultKey("")), select: COUNTED_FIELDS };
  for await (const rows of tables.pages(Vaults, { ...range, onCorrupt: () => unreadable++ }))
    for (const row of rows) (sourceOf(row) === "keyVault" ? counted : holders).set(markKey(row.name), row);
  // The content of an unreadable row is unknown. The reconciliation repairs the row.
  if (unreadable > 0) return undefined;

  const removable: RemovableChange<CountedState>[] = [];
  const markOperations: Operation[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => removable.push({ rowKey, etag, change: undefined });
  const markRange = { partitionKey: VAULTS, from: MARK_PREFIX, before: TOTALS_END_KEY, onCorrupt };
  for await (const rows of tables.pages(ChangedVaults, markRange)) {
    for (const row of rows) {
      const { rowKey, etag } = row;
      const change = readMark(row, true);
      const rowState = counted.get(rowKey) ?? holders.get(rowKey);
      // The stored totals count the vault's state before the change. Removing the mark adds the change to the totals.
      setOrDelete(counted, rowKey, change?.before);
      if (!change) {
        removable.push({ rowKey, etag, change });
        continue;
      }
      holders.delete(rowKey);
      // Earlier versions change a vault's row without its mark, so the mark is compared with the row.
      const currentState = isCountedEqually(rowState, change.now) ? change.now : await readCurrentRow(tables, rowKey);
      if (!currentState || sourceOf(currentState) === "keyVault")
        removable.push({ rowKey, etag, change: { ...change, now: currentState } });
      else if (!isCountedEqually(currentState, change.now))
        markOperations.push(replace(ChangedVaults, rowKey, createMark(undefined, currentState), etag));
    }
  }
  // Holders whose mark is missing or can't be read get a new mark. A mark that can't be read is then replaced, not removed.
  for (const [key, holder] of holders) {
    const index = removable.findIndex(({ rowKey }) => rowKey === key);
    const [existing] = index < 0 ? [] : removable.splice(index, 1);
    const mark = createMark(undefined, holder);
    markOperations.push(existing ? replace(ChangedVaults, key, mark, existing.etag) : insert(ChangedVaults, key, mark));
  }
  return { ...stored, scope, counted, removable, markOperations };
}

const readCurrentRow = (tables: Tables, changedRowKey: string) =>
  tables.get(Vaults, VAULTS, vaultKey(changedRowKey.slice(MARK_PREFIX.length)));

async function writeNewTotals(
  tables: Tables,
  vaultsAndMarks: VaultsAndMarks,
  windows: Window[],
  summaryLayout: SummaryLayout,
  thresholds: Thresholds,
): Promise<void> {
  const { etag, counted, removable, markOperations } = vaultsAndMarks;
  await writeTotals(tables, {
    table: Vaults.table,
    partitionKey: VAULTS,
    totals: { entity: TotalsRows, key: TOTALS_KEY, etag },
    end: { entity: TotalsEnd, key: TOTALS_END_KEY },
    changes: ChangedVaults,
    counted,
    removable,
    further: markOperations,
    readCurrent: (rowKey) => readCurrentRow(tables, rowKey),
    recordOf: (vaults, sequence) => computeTotals(vaults, windows, sequence, summaryLayout, thresholds),
    // Many marks are removed in several transactions. All but the last store totals that readers ignore.
    placeholderOf: unusableTotals,
  });
}

interface StoredTotals {
  etag: string | undefined;
  record: TotalsRecord | undefined;
  unreadable: boolean;
}

async function readStored(tables: Tables): Promise<StoredTotals> {
  try {
    const record = await tables.get(TotalsRows, VAULTS, TOTALS_KEY);
    return { etag: record?.etag, record, unreadable: false };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, record: undefined, unreadable: true };
  }
}

/** Returns whether the packed data can be read. `unkept` totals, which are too large or incomplete, have none. */
const isReadable = (record: TotalsRecord): boolean =>
  record.unkept === true ||
  (readTotals(record) !== undefined &&
    (record.thresholds === undefined || readRenewals(record) !== undefined) &&
    (record.summary === undefined || unpackSummary(record.summary) !== undefined));

/** Returns whether the totals count exactly these vaults. */
function countsExactly(record: TotalsRecord, counted: ReadonlyMap<string, CountedState>): boolean {
  if (record.unkept) return true;
  const stored = record.summary && unpackSummary(record.summary);
  const layout = stored && layoutOfSummary(stored);
  const [criticalDays, warningDays] = record.thresholds ?? [0, 0];
  const { subscriptions, expiries, summary, renewals, renewalExpiries } = computeTotals(
    counted.values(),
    record.windows,
    record.sequence,
    layout,
    { criticalDays, warningDays },
  );
  const isSame = (a: Uint8Array, b: Uint8Array) => Buffer.compare(inflate(a), inflate(b)) === 0;
  const isSameOrAbsent = (a: Uint8Array | undefined, b: Uint8Array | undefined) =>
    a === undefined || b === undefined ? a === b : isSame(a, b);
  return (
    JSON.stringify(subscriptions) === JSON.stringify(record.subscriptions) &&
    isSame(expiries, record.expiries) &&
    isSameOrAbsent(renewals, record.renewals) &&
    isSameOrAbsent(renewalExpiries, record.renewalExpiries) &&
    (record.summary === undefined || (summary !== undefined && isSame(summary, record.summary)))
  );
}
