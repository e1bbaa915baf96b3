import * as z from "zod";
import { writeAll } from "./bulk-write.ts";
import type { StoreClock } from "./clock.ts";
import type { StorageConnection } from "./connection.ts";
import { entity } from "./entity.ts";
import { errorCode } from "./errors.ts";
import { MAX_PAGE_SIZE } from "./limits.ts";
import type { Operation } from "./operations.ts";
import { type Continuation, queryTypedPage, type TypedRow } from "./query.ts";
import { createRows } from "./rows.ts";
import { createTableClients } from "./table-clients.ts";

export type { TypedRow } from "./query.ts";

/**
 * Reads and writes whole tables without knowing their rows, for copies of the store. Signed rows keep their signatures. A
 * missing table has no rows.
 */
export interface WholeTables {
  /** Yields the rows of a table in the order of their keys. */
  rows(table: string): AsyncGenerator<TypedRow, void>;
  /** Yields only the keys and ETags of the rows of a table, in the order of their keys. */
  keys(table: string): AsyncGenerator<TypedRow, void>;
  /** Writes rows, which replace rows with the same keys. Can be repeated after a crash. */
  write(table: string, rows: AsyncIterable<TypedRow>): Promise<void>;
  /** Removes all rows of a table. Can be repeated after a crash. */
  clear(table: string): Promise<void>;
}

/** Number of rows that are held in memory before they are written. */
const ROWS_PER_WRITE = 2000;
/** Number of partitions that are written at the same time, because a table may have one row per partition. */
const PARALLEL_PARTITIONS = 8;

/** Creates the access to whole tables. */
export function createWholeTables(connection: StorageConnection, { clock }: { clock?: StoreClock } = {}): WholeTables {
  const clients = createTableClients(connection, { clock });
  const stored = createRows(clients);

  async function* read(table: string, select: readonly string[] | undefined): AsyncGenerator<TypedRow, void> {
    let next: Continuation | undefined;
    do {
      const query = { filter: undefined, select, top: MAX_PAGE_SIZE, next };
      try {
        const page = await clients.run(table, { create: false }, (connected) =>
          queryTypedPage(connected, table, query),
        );
        yield* page.rows;
        ({ next } = page);
      } catch (error) {
        if (errorCode(error) === "TableNotFound") return;
        throw error;
      }
    } while (next !== undefined);
  }

  async function apply(table: string, rows: AsyncIterable<TypedRow>, kind: "put" | "remove"): Promise<void> {
    const { address } = await clients.connect(table);
    const rowsOfTable = entity(table, z.object({}));
    const flush = async (batch: readonly TypedRow[]) => {
      const partitions = [...Map.groupBy(batch, ({ partitionKey }) => partitionKey)];
      const writeNext = async (): Promise<void> => {
        for (let next = partitions.shift(); next !== undefined; next = partitions.shift()) {
          const [partitionKey, rowsOfPartition] = next;
          const operations = rowsOfPartition.map(
            ({ rowKey, columns }): Operation => ({ kind, entity: rowsOfTable, rowKey, columns, etag: undefined }),
          );
          await writeAll(stored, { table, partitionKey, address }, operations, {});
        }
      };
      await Promise.all(Array.from({ length: PARALLEL_PARTITIONS }, writeNext));
    };
    let batch: TypedRow[] = [];
    for await (const row of rows) {
      batch.push(row);
      if (batch.length < ROWS_PER_WRITE) continue;
      await flush(batch);
      batch = [];
    }
    await flush(batch);
  }

  return {
    rows: (table) => read(table, undefined),
    // query.ts uses `Timestamp` as the ETag if the response has no ETag.
    keys: (table) => read(table, ["PartitionKey", "RowKey", "Timestamp"]),
    write: (table, rows) => apply(table, rows, "put"),
    clear: (table) => apply(table, read(table, ["PartitionKey", "RowKey"]), "remove"),
  };
}
