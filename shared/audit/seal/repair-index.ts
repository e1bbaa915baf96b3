import { type Operation, put, type Tables } from "../../platform/storage/tables.ts";
import type { AuditEntry } from "../entry.ts";
import { INDEX_PARTITION, IndexRow, indexKeys, indexPrefix, indexRange } from "../rows.ts";

/**
 * Writes index rows of these entries that a crashed writer did not write. Sealing calls it for the entries that it seals
 * (index-repair.ts repairs the whole index). Costs one request, or two if rows are missing.
 */
export async function repairIndex(tables: Tables, entries: readonly AuditEntry[]): Promise<void> {
  if (entries.length === 0) return;
  const instants = entries.map(({ occurredAt }) => Date.parse(occurredAt));
  const range = indexRange(indexPrefix({}), Math.min(...instants), Math.max(...instants) + 1);
  const indexed = new Set<string>();
  for await (const page of tables.pages(IndexRow, { partitionKey: INDEX_PARTITION, ...range, select: [] })) {
    for (const { rowKey } of page) indexed.add(rowKey);
  }
  // One transaction writes an entry's four index rows, so the one without a filter (the first) shows whether they exist.
  const missing = entries.filter((entry) => !indexed.has(indexKeys(entry)[0]!));
  await tables.write(IndexRow.table, INDEX_PARTITION, indexRows(missing));
}

function* indexRows(entries: readonly AuditEntry[]): Generator<Operation> {
  for (const entry of entries) for (const key of indexKeys(entry)) yield put(IndexRow, key, { id: entry.id });
}
