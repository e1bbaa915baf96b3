import { Deliveries } from "../alerts/delivery.ts";
import type { HeldDeliveries } from "../alerts/held-deliveries.ts";
import { isRestoreMarker, markRestored } from "../alerts/restore-marker.ts";
import { Approvals } from "../approvals/approval.ts";
import type { AuditRecorder } from "../audit/event.ts";
import { SCAN_LIST, Scans } from "../discovery/scan.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock } from "../platform/runtime.ts";
import { FORMAT_TABLE, formatOfRow, STORE_FORMAT } from "../platform/storage/store-format.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { TypedRow, WholeTables } from "../platform/storage/whole-tables.ts";
import { Proposals } from "../proposals/proposal.ts";
import { CopyFailed, type Manifest, readManifest, readTable, summarizeRows } from "./copy.ts";
import { TABLE_NAMES } from "./table-names.ts";

/** States of an approval that can still be used. */
const OPEN_STATES: ReadonlySet<string> = new Set(["pending", "approved"]);

/** The result of a restore. */
interface Restored {
  manifest: Manifest;
  /** Number of deliveries that are held until a person sends or drops them. */
  heldDeliveries: number;
}

/**
 * Writes a copy into the store. The app must be stopped. Deliveries that were pending at the time of the copy become
 * `inDoubt` (held until a person sends or drops them). The restore marker, a row with the times of the copy and the restore,
 * makes later evaluations hold alerts that may have been sent between the two times.
 *
 * The call can be repeated with `replace` after a crash. An app that is started after a crash sends no alert that was in the
 * copy. The store is marked before its rows are written, and no delivery is written as pending. Every table is read back. At
 * the end, an audit entry says who restored which copy and what it replaced.
 *
 * In a service with a key vault, the caller then accepts the signed rows (sign-store.ts). Until then, the service uses no rows of
 * lists that changed after the copy, because the copied lists have lower sequences than the key vault stores. It uses no approvals
 * that were open, because their changed state does not fit their signature.
 *
 * @param deps.clock - Follows the table service's time, and so do the requests of `wholeTables`.
 * @param replace - Whether to remove the rows of a store that is not empty.
 * @param report - Receives a line about the progress.
 * @throws {CopyFailed} if the copy is damaged, the store is not empty, or another program writes at the same time.
 */
export async function restoreStore(
  deps: { wholeTables: WholeTables; tables: Tables; held: HeldDeliveries; audit: AuditRecorder; clock: Clock },
  {
    folder,
    replace,
    caller,
    startedBy,
  }: { folder: string; replace: boolean; caller: Caller; startedBy?: string | undefined },
  report: (line: string) => unknown,
): Promise<Restored> {
  const { wholeTables, tables, held, audit, clock } = deps;
  const manifest = await readManifest(folder);
  await requireReadable(folder, manifest);
  const replacedRows = await countRows(wholeTables);
  const nonEmpty = Object.keys(replacedRows);
  if (nonEmpty.length > 0 && !replace)
    throw new CopyFailed(
      `The store is not empty: ${nonEmpty.join(", ")}. Use an empty storage account, or remove all rows first with --replace.`,
    );
  for (const table of nonEmpty) await wholeTables.clear(table);

  const { copiedAt, account, version } = manifest;
  const restoredAt = await markRestored(tables, { copiedAt, newestScanAt: await newestScanOf(folder) }, clock.now());

  const heldIds = new Set<string>();
  for (const [table, { rows }] of Object.entries(manifest.tables)) {
    await wholeTables.write(table, rowsToWrite(folder, table, restoredAt, heldIds));
    await report(`Restored ${table}: ${rows} rows.`);
  }
  // Compares all tables, also those without a file in the copy, which must be empty.
  const different: string[] = [];
  for (const table of TABLE_NAMES) {
    const stored = await summarizeRows(comparable(table, wholeTables.rows(table)));
    const copied =
      manifest.tables[table] &&
      (await summarizeRows(comparable(table, rowsToWrite(folder, table, restoredAt, heldIds))));
    if (copied === undefined ? stored.rows > 0 : copied.sha256 !== stored.sha256) different.push(table);
  }
  if (different.length > 0)
    throw new CopyFailed(
      `${different.join(", ")} differ from the copy, so another program wrote during the restore. Stop the app, wait until no invocation runs, and restore again with --replace.`,
    );
  // The deliveries are held already. This corrects their lists, and the rows (mailboxes) that combine the alerts for the same
  // recipients.
  for (const deliveryId of heldIds) await held.hold(deliveryId);
  const details = { copiedAt, copiedFrom: account, version, startedBy, replacedRows, heldDeliveries: heldIds.size };
  await audit.append({ type: "store.restored", caller, outcome: "success", details });
  return { manifest, heldDeliveries: heldIds.size };
}

/** Returns the creation time of the newest scan in a copy. */
async function newestScanOf(folder: string): Promise<string | undefined> {
  // The list of scans is newest first.
  for await (const { partitionKey, columns } of readTable(folder, Scans.table))
    if (partitionKey === SCAN_LIST) return String(columns.createdAt);
  return undefined;
}

/** @throws {CopyFailed} if a version with a newer format has used the store before the copy. */
async function requireReadable(folder: string, { version, tables }: Manifest): Promise<void> {
  if (!tables[FORMAT_TABLE]) return;
  for await (const row of readTable(folder, FORMAT_TABLE))
    if ((formatOfRow(row) ?? 0) > STORE_FORMAT)
      throw new CopyFailed(`A newer version made this copy. Restore it with the version ${version}.`);
}

/** Returns the number of rows of each table that has rows. */
async function countRows(wholeTables: WholeTables): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const table of TABLE_NAMES)
    for await (const _ of wholeTables.keys(table)) counts[table] = (counts[table] ?? 0) + 1;
  return counts;
}

/**
 * Yields the rows of a copy's table as the restore writes them: pending deliveries are `inDoubt`, and their ids are added to
 * `heldIds`. Approvals and proposals that were open are expired, because they may have been used or withdrawn since the copy. The marker of an
 * earlier restore is left out, because it would replace the marker of this restore.
 */
async function* rowsToWrite(
  folder: string,
  table: string,
  restoredAt: string,
  heldIds: Set<string>,
): AsyncGenerator<TypedRow, void> {
  for await (const row of readTable(folder, table)) {
    if (isRestoreMarker(table, row)) continue;
    if (table === Approvals.table && OPEN_STATES.has(String(row.columns.state))) {
      yield { ...row, columns: { ...row.columns, state: "expired" } };
      continue;
    }
    if (table === Proposals.table && row.columns.state === "pending") {
      yield { ...row, columns: { ...row.columns, state: "expired" } };
      continue;
    }
    if (table !== Deliveries.table || row.columns.status !== "pending") {
      yield row;
      continue;
    }
    heldIds.add(row.partitionKey);
    yield { ...row, columns: { ...row.columns, status: "inDoubt", heldAt: restoredAt } };
  }
}

/** Yields the rows without the restore marker, and with their columns in alphabetical order. */
async function* comparable(table: string, rows: AsyncIterable<TypedRow>): AsyncGenerator<TypedRow, void> {
  for await (const row of rows) {
    const columns = Object.fromEntries(Object.entries(row.columns).sort(([a], [b]) => (a < b ? -1 : 1)));
    if (!isRestoreMarker(table, row)) yield { ...row, columns };
  }
}
