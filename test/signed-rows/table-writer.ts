import { TableClient } from "@azure/data-tables";

/** Someone who can write tables directly, with the account key. */
export class TableWriter {
  readonly #clients = new Map<string, TableClient>();
  readonly #connection: string;

  constructor(connection: string) {
    this.#connection = connection;
  }

  client(table: string): TableClient {
    const client =
      this.#clients.get(table) ??
      TableClient.fromConnectionString(this.#connection, table, { allowInsecureConnection: true });
    this.#clients.set(table, client);
    return client;
  }

  /** Returns all rows of a table by row key, with the types of their columns. Each signed table has one signed partition. */
  async rows(table: string): Promise<Map<string, RawRow>> {
    const rows = new Map<string, RawRow>();
    for await (const row of this.client(table).listEntities<RawRow>({ disableTypeConversion: true }))
      rows.set(row.rowKey!, withoutServiceColumns(row as RawRow));
    return rows;
  }

  async write(table: string, row: RawRow): Promise<void> {
    await this.client(table).upsertEntity(row, "Replace");
  }

  async remove(table: string, { partitionKey, rowKey }: RawRow): Promise<void> {
    await this.client(table).deleteEntity(partitionKey, rowKey);
  }

  /** Makes a table have exactly these rows. */
  async restore(table: string, rows: ReadonlyMap<string, RawRow>): Promise<void> {
    for (const [rowKey, row] of await this.rows(table)) if (!rows.has(rowKey)) await this.remove(table, row);
    for (const row of rows.values()) await this.write(table, row);
  }
}

export interface RawRow extends Record<string, unknown> {
  partitionKey: string;
  rowKey: string;
}

function withoutServiceColumns(row: RawRow): RawRow {
  const { etag: _e, timestamp: _t, ...columns } = row;
  return Object.fromEntries(Object.entries(columns).filter(([name]) => !name.startsWith("odata."))) as RawRow;
}
