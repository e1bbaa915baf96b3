import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { inflate } from "../platform/storage/packed-members.ts";
import { insert, type Operation, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { type RemovableChange, setOrDelete, writeTotals } from "../platform/storage/write-totals.ts";
import { sourceOf } from "./asset.ts";
import {
  CHANGED,
  ChangedVaults,
  COUNTED,
  type Counted,
  changedFrom,
  changedKey,
  countsAlike,
  readChanged,
} from "./changed-vaults.ts";
import type { Moment } from "./health.ts";
import type { Window } from "./histogram.ts";
import { readScope, type Scope } from "./scope.ts";
import { layoutOf, layoutOfSummary, type SummaryLayout, unpackSummary } from "./summary-totals.ts";
import {
  readTotals,
  TOTALS_END_KEY,
  TOTALS_KEY,
  TotalsEnd,
  type TotalsRecord,
  TotalsRows,
  totalsOf,
  unkeptTotals,
  windowsOf,
} from "./totals.ts";
import { VAULTS, Vaults, vaultKey } from "./vault.ts";

/**
 * Computes the totals anew from the vaults' rows, and clears the rows of the vaults that they then count as they are. One
 * request per 1,000 vaults and 1,000 changed ones, one for each 90 of those, and three. Does nothing where a vault's row
 * can't be read: the reconciliation mends it.
 *
 * @throws the last conflict when others came between each time: what changed is then still counted from its own rows.
 */
export async function renewTotals(tables: Tables, moment: Moment): Promise<void> {
  await repeatOnConflict(async () => {
    const found = await readAll(tables);
    if (found) await write(tables, found, windowsOf(moment), layoutOf(moment, found.scope));
  });
}

/**
 * What is wrong with the totals, beside what their changed vaults say: nothing ever is but by a fault. Undefined, too,
 * where that can't be told, since others wrote meanwhile. Requests as `renewTotals`.
 */
export async function faultOfTotals(tables: Tables): Promise<"stale" | "unreadable" | undefined> {
  const found = await readAll(tables);
  if (!found) return undefined;
  if (found.unreadable || (found.record && !isReadable(found.record))) return "unreadable";
  const known = found.removable.every(({ change }) => change !== undefined);
  if (!known || !found.record || isOf(found.record, found.counted)) return undefined;
  return (await standing(tables)).etag === found.etag ? "stale" : undefined;
}

/** The totals as they stand, and what they have to count. */
interface Found extends Standing {
  scope: Scope;
  /** The vaults as the totals count them, by `changedKey`. */
  counted: Map<string, Counted>;
  removable: RemovableChange<Counted>[];
  /** Rows that tell of holders which a version before wrote or changed, and of those whose own says nothing. */
  unmarked: Operation[];
}

/**
 * The order is what makes it right. The totals' ETag is read first, then the vaults' rows, then those of changed vaults. A
 * vault without one of those was as it is now since before the first reading, or else the totals were written meanwhile
 * and the ETag does not fit any more. One with such a row is counted as that says, until the row is cleared in the same
 * transaction, by its ETag, which every further change replaces.
 */
async function readAll(tables: Tables): Promise<Found | undefined> {
  const stood = await standing(tables);
  const scope = await readScope(tables);
  const counted = new Map<string, Counted>();
  const holders = new Map<string, Counted>();
  let unreadable = 0;
  const range = { partitionKey: VAULTS, from: vaultKey(""), before: keyEnd(vaultKey("")), select: COUNTED };
  for await (const rows of tables.pages(Vaults, { ...range, onCorrupt: () => unreadable++ }))
    for (const row of rows) (sourceOf(row) === "keyVault" ? counted : holders).set(changedKey(row.name), row);
  // What it holds is not known; the reconciliation mends it.
  if (unreadable > 0) return undefined;

  const removable: RemovableChange<Counted>[] = [];
  const unmarked: Operation[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => removable.push({ rowKey, etag, change: undefined });
  const changed = { partitionKey: VAULTS, from: CHANGED, before: TOTALS_END_KEY, onCorrupt };
  for await (const rows of tables.pages(ChangedVaults, changed)) {
    for (const row of rows) {
      const { rowKey, etag } = row;
      const change = readChanged(row, true);
      const read = counted.get(rowKey) ?? holders.get(rowKey);
      setOrDelete(counted, rowKey, change?.before);
      if (!change) {
        removable.push({ rowKey, etag, change });
        continue;
      }
      holders.delete(rowKey);
      // A version before changes a vault's row and leaves this one as it is, so what it says is held against that one.
      const now = countsAlike(read, change.now) ? change.now : await ownRow(tables, rowKey);
      if (!now || sourceOf(now) === "keyVault") removable.push({ rowKey, etag, change: { ...change, now } });
      else if (!countsAlike(now, change.now))
        unmarked.push(replace(ChangedVaults, rowKey, changedFrom(undefined, now), etag));
    }
  }
  for (const [key, holder] of holders) {
    const at = removable.findIndex(({ rowKey }) => rowKey === key);
    const [standing] = at < 0 ? [] : removable.splice(at, 1);
    const mark = changedFrom(undefined, holder);
    unmarked.push(standing ? replace(ChangedVaults, key, mark, standing.etag) : insert(ChangedVaults, key, mark));
  }
  return { ...stood, scope, counted, removable, unmarked };
}

const ownRow = (tables: Tables, changedRowKey: string) =>
  tables.get(Vaults, VAULTS, vaultKey(changedRowKey.slice(CHANGED.length)));

async function write(tables: Tables, found: Found, windows: Window[], summary: SummaryLayout): Promise<void> {
  const { etag, counted, removable, unmarked } = found;
  await writeTotals(tables, {
    table: Vaults.table,
    partitionKey: VAULTS,
    totals: { entity: TotalsRows, key: TOTALS_KEY, etag },
    end: { entity: TotalsEnd, key: TOTALS_END_KEY },
    changes: ChangedVaults,
    counted,
    removable,
    further: unmarked,
    readCurrent: (rowKey) => ownRow(tables, rowKey),
    recordOf: (vaults, sequence) => totalsOf(vaults, windows, sequence, summary),
    placeholderOf: unkeptTotals,
  });
}

interface Standing {
  etag: string | undefined;
  record: TotalsRecord | undefined;
  unreadable: boolean;
}

async function standing(tables: Tables): Promise<Standing> {
  try {
    const record = await tables.get(TotalsRows, VAULTS, TOTALS_KEY);
    return { etag: record?.etag, record, unreadable: false };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { etag: error.etag, record: undefined, unreadable: true };
  }
}

/** Whether what is packed in them is what some version of this service wrote. */
const isReadable = (record: TotalsRecord): boolean =>
  record.unkept === true ||
  (readTotals(record) !== undefined && (record.summary === undefined || unpackSummary(record.summary) !== undefined));

/** Whether these totals, which can be read, count just these vaults. */
function isOf(record: TotalsRecord, counted: ReadonlyMap<string, Counted>): boolean {
  if (record.unkept) return true;
  const kept = record.summary && unpackSummary(record.summary);
  const layout = kept && layoutOfSummary(kept);
  const { subscriptions, expiries, summary } = totalsOf(counted.values(), record.windows, record.sequence, layout);
  const isSame = (a: Uint8Array, b: Uint8Array) => Buffer.compare(inflate(a), inflate(b)) === 0;
  return (
    JSON.stringify(subscriptions) === JSON.stringify(record.subscriptions) &&
    isSame(expiries, record.expiries) &&
    (record.summary === undefined || (summary !== undefined && isSame(summary, record.summary)))
  );
}
