import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ActiveScanList } from "../discovery/active-scans.ts";
import { PENDING_PREFIX, PendingWrites, VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import type { UnreadableRows } from "../unreadable-rows/unreadable-rows.ts";
import { findPointerFaults, ROTATION_POINTERS, SYNC_POINTERS } from "./pointers.ts";
import type { WalkIdentity } from "./repair-differences.ts";
import { OTHER_ROWS, readKinds, type StoredKind } from "./stored-rows.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";
import { type FaultCounts, noFaults } from "./walk-record.ts";

/**
 * The checks of a walk (one pass of the reconciliation over all stored rows) for rows outside of the inventory and of
 * compliance. These are work in progress, the index of the audit log, the rows that point to rotations and sync records, and
 * the remaining rows of all tables. Rows whose content follows from other rows are rebuilt. Any other row that can't be read,
 * or whose signature is invalid, is not used and not removed, because only a user knows its correct content. Reading the row
 * adds it to the list of unreadable rows.
 */

/** Maximum number of rows that an audit entry names. Its counts include all. */
const MAX_NAMED_ROWS = 20;

export interface RecordCheckDeps {
  readonly tables: Tables;
  readonly audit: Pick<Audit, "append" | "repairIndex">;
  readonly activeScans: Pick<ActiveScanList, "verify">;
  readonly unreadableRows: Pick<UnreadableRows, "removeResolved">;
  /** Whether the service has its own key vault. Without it, no rows are signed. */
  readonly hasSignedRows: boolean;
}

export interface CheckContext extends RecordCheckDeps {
  /** The vaults of the inventory by lower-case name, and those whose own row can't be read. */
  readonly directory: { readonly vaults: ReadonlyMap<string, unknown>; readonly unreadable: ReadonlySet<string> };
  readonly walk: WalkIdentity;
}

/** Result of one check. */
export interface CheckResult {
  /** Number of rows that were repaired, by the kind of fault. */
  readonly mended: Partial<FaultCounts>;
  /** Number of rows that were read. */
  readonly rows: number;
  /** Number of signed rows that can't be read, or whose signature is wrong. */
  readonly unverified?: number;
  /** Number of other rows that can't be read, and can't be rebuilt by this walk. */
  readonly unreadable?: number;
}

/** The checks in their order. The walk's record stores the name of the last completed check as the position. */
export const RECORD_CHECKS: readonly { name: string; run: (context: CheckContext) => Promise<CheckResult> }[] = [
  { name: "activeScans", run: checkActiveScans },
  { name: "announcedWrites", run: checkAnnouncedWrites },
  { name: "auditIndex", run: checkAuditIndex },
  { name: "rotations", run: (context) => checkPointers(context, ROTATION_POINTERS) },
  { name: "syncRecords", run: (context) => checkPointers(context, SYNC_POINTERS) },
  { name: "otherRows", run: checkOtherRows },
  { name: "unreadableRows", run: removeResolvedRows },
];

/**
 * Runs a check. A check of signed rows needs the service's own key vault. If the key vault does not answer, the next walk runs
 * the check, and this walk's record names it (`skipped`).
 */
export async function runCheck(
  { name, run }: (typeof RECORD_CHECKS)[number],
  context: CheckContext,
): Promise<CheckResult & { skipped?: { check: string; reason: string } }> {
  try {
    return await run(context);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return { mended: {}, rows: 0, skipped: { check: name, reason: `the service's own key vault: ${error.code}` } };
  }
}

async function checkActiveScans({ activeScans }: CheckContext): Promise<CheckResult> {
  const fault = await activeScans.verify();
  return { mended: fault ? { [fault]: 1 } : {}, rows: 1 };
}

/**
 * Removes announced writes (parts of a write that a worker stores before it writes a vault, so that another worker can complete
 * it) of vaults that do not exist. The transaction that removes a vault also removes them, so no worker needs them.
 */
async function checkAnnouncedWrites(context: CheckContext): Promise<CheckResult> {
  const { tables, directory } = context;
  const removals: Operation[] = [];
  let rows = 0;
  const range = { partitionKey: VAULTS, from: PENDING_PREFIX, before: keyEnd(PENDING_PREFIX), select: [] };
  for await (const page of tables.pages(PendingWrites, range)) {
    rows += page.length;
    for (const { rowKey, etag } of page) {
      // The key is the prefix, which ends with `!`, then the vault's lower-case name, `!` and the number of the part.
      const vault = rowKey.split("!")[1]!;
      if (directory.vaults.has(vault) || directory.unreadable.has(vault)) continue;
      const own = await readRowOrCorrupt(tables, Vaults, VAULTS, vaultKey(vault));
      if (!own.row && !own.unreadable) removals.push(remove(PendingWrites, rowKey, etag));
    }
  }
  const table = PendingWrites.table;
  await repairAudited(context, { table, partitionKey: VAULTS, counts: { extra: removals.length }, repairs: removals });
  return { mended: { extra: removals.length }, rows };
}

async function checkAuditIndex({ audit, walk }: CheckContext): Promise<CheckResult> {
  const { rows, missing, extra } = await audit.repairIndex(walk.caller, { walkId: walk.walkId });
  return { mended: { missing, extra }, rows };
}

/** Checks the rows that point to rotations or to sync records. They are compared with signed records. */
async function checkPointers<T>(
  context: CheckContext,
  records: Parameters<typeof findPointerFaults<T>>[1],
): Promise<CheckResult> {
  if (!context.hasSignedRows) return { mended: {}, rows: 0 };
  const { faults, unreadable, rows } = await findPointerFaults(context.tables, records);
  const counts = noFaults();
  for (const { kind } of faults) counts[kind]++;
  const repairs = faults.map(({ repair }) => repair);
  const { partitionKey } = records;
  await repairAudited(context, { table: records.entity.table, partitionKey, counts, repairs });
  return { mended: counts, rows, unverified: unreadable };
}

/** Reads all rows that nothing else in the walk reads, so that those that can't be read are listed and recorded. */
async function checkOtherRows({ tables, hasSignedRows }: CheckContext): Promise<CheckResult> {
  let [unverified, unreadable] = [0, 0];
  // Without its own key vault, the service can't verify kinds of rows that are always signed (`signed: true`). Other kinds
  // (`signed: "withKeyVault"` or `"adopted"`) are then stored without a signature and read like unsigned rows.
  const kinds = OTHER_ROWS.filter(({ entity }) => hasSignedRows || entity.signed !== true);
  const isSigned = ({ entity }: StoredKind) => hasSignedRows && entity.signed !== false;
  const rows = await readKinds(tables, kinds, (kind) => (isSigned(kind) ? unverified++ : unreadable++));
  return { mended: {}, rows, unverified, unreadable };
}

/** Removes rows from the list of unreadable rows that are readable again or no longer exist. */
async function removeResolvedRows({ unreadableRows }: CheckContext): Promise<CheckResult> {
  await unreadableRows.removeResolved();
  return { mended: {}, rows: 0 };
}

/** Runs repairs and records them in the audit log. Skips rows that were written since they were checked. */
async function repairAudited(
  { tables, audit, walk }: CheckContext,
  wrong: { table: string; partitionKey: string; counts: Partial<FaultCounts>; repairs: readonly Operation[] },
): Promise<void> {
  const { table, partitionKey, counts, repairs } = wrong;
  if (repairs.length === 0) return;
  const event = {
    type: "storage.mended",
    caller: walk.caller,
    target: { type: "table", id: table },
    details: {
      walkId: walk.walkId,
      ...Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0)),
      rows: repairs.slice(0, MAX_NAMED_ROWS).map(({ rowKey }) => `${partitionKey} ${rowKey}`),
    },
  };
  await audited(audit, event, async () => {
    for (const repair of repairs) {
      try {
        await tables.transaction(table, partitionKey, [repair]);
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
  });
}
