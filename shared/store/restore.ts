import type { HeldDeliveries } from "../alerts/held-deliveries.ts";
import { markRestored } from "../alerts/restore-marker.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { TypedRow, WholeTables } from "../platform/storage/whole-tables.ts";
import { CopyFailed, contentOf, type Manifest, readManifest, readTable } from "./copy.ts";
import { TABLE_NAMES } from "./table-names.ts";

/** The result of a restore. */
interface Restored {
  manifest: Manifest;
  /** Number of deliveries that are held until a person sends or drops them. */
  heldDeliveries: number;
}

/**
 * Writes a copy into the store. The app must be stopped. Deliveries that were pending at the time of the copy become
 * `inDoubt`. The restore marker makes later evaluations hold alerts that may have been sent between the copy and the restore.
 *
 * After a crash, call this function again with `replace`. Reads every table back at the end.
 *
 * @param replace - Whether to remove the rows of a store that is not empty.
 * @param report - Receives a line about the progress.
 * @throws {CopyFailed} if the copy is damaged, the store is not empty, or another program writes at the same time.
 */
export async function restoreStore(
  deps: { wholeTables: WholeTables; tables: Tables; held: HeldDeliveries; clock: Clock },
  { folder, replace }: { folder: string; replace: boolean },
  report: (line: string) => unknown,
): Promise<Restored> {
  const { wholeTables, tables, held, clock } = deps;
  const manifest = await readManifest(folder);
  const nonEmpty = await nonEmptyTables(wholeTables);
  if (nonEmpty.length > 0 && !replace)
    throw new CopyFailed(
      `The store is not empty: ${nonEmpty.join(", ")}. Use an empty storage account, or remove all rows first with --replace.`,
    );
  for (const table of nonEmpty) await wholeTables.clear(table);

  const pending: string[] = [];
  for (const [table, { rows }] of Object.entries(manifest.tables)) {
    await wholeTables.write(
      table,
      table === "AlertDeliveries" ? collectPending(folder, pending) : readTable(folder, table),
    );
    await report(`Restored ${table}: ${rows} rows.`);
  }
  const different: string[] = [];
  for (const table of TABLE_NAMES) {
    const { sha256, rows } = await contentOf(wholeTables.rows(table));
    const copied = manifest.tables[table];
    if (copied === undefined ? rows > 0 : copied.sha256 !== sha256) different.push(table);
  }
  if (different.length > 0)
    throw new CopyFailed(
      `${different.join(", ")} differ from the copy, so another program wrote during the restore. Stop the app, wait until no invocation runs, and restore again with --replace.`,
    );
  // These writes change restored tables, so they follow the comparison.
  await markRestored(tables, { copiedAt: manifest.copiedAt, restoredAt: clock.now().toISOString() });
  for (const deliveryId of pending) await held.hold(deliveryId);
  return { manifest, heldDeliveries: pending.length };
}

/** Returns the tables that have rows. */
async function nonEmptyTables(wholeTables: WholeTables): Promise<string[]> {
  const names: string[] = [];
  for (const table of TABLE_NAMES) {
    for await (const _ of wholeTables.keys(table)) {
      names.push(table);
      break;
    }
  }
  return names;
}

/** Yields the deliveries of a copy, and adds the ids of the pending ones to `pending`. */
async function* collectPending(folder: string, pending: string[]): AsyncGenerator<TypedRow, void> {
  for await (const row of readTable(folder, "AlertDeliveries")) {
    if (row.columns.status === "pending") pending.push(row.partitionKey);
    yield row;
  }
}
