import type { TableEntity } from "@azure/data-tables";
import type { Reached, TableClients } from "./clients.ts";
import { checkLimits, decode, encode, type StoredRow } from "./columns.ts";
import { errorCode, markResent, RowChanged, RowExists, RowMissing, statusOf, wasResent } from "./errors.ts";
import { keyProblem } from "./keys.ts";
import type { Operation } from "./operations.ts";
import { getRow } from "./page.ts";
import { SIGNATURE } from "./signing.ts";
import { type Part, readTransactionAnswer, TransactionRefused, transactionBody } from "./transaction.ts";
import { restPipeline } from "./transport.ts";

/**
 * Stored rows, read and written one or many at a time, with the service's refusals as RowExists, RowChanged, RowMissing.
 *
 * A request without a clear answer is sent again and then meets its own effect: an insert finds its row, a replace a newer
 * ETag, a removal nothing. So a refusal of a request that was sent more than once is looked into: when every row it writes
 * holds exactly what was to be written, and every row it removes is gone, the request is taken as done. What callers may
 * rely on:
 *
 * - A write that returns is stored, a row that was to be removed is gone.
 * - RowExists, RowChanged or RowMissing means that another writer's value, or removal, stands now. Their own may have been
 *   stored for a moment before that, if the answer was lost and another writer was quick.
 * - Two writers of the very same value, or two who remove the same rows, can't be told apart in that case. Where it matters
 *   who won (a lock, a claim), the value holds the writer's id, and a claim by removal also writes a row.
 * - A transaction that begins with a row of a `witness` entity is judged by that row alone, and then answers its ETag only.
 * - Any other error for which `isUnclear` is true leaves open whether the request was applied.
 */
export interface Rows {
  /** The row, and the `Date` of the answer in milliseconds since 1970. */
  read(table: string, partitionKey: string, rowKey: string): Promise<{ row: StoredRow; date: number } | undefined>;
  /** Returns the new ETag ("" for a removed row). */
  apply(partitionKey: string, operation: Operation): Promise<string>;
  /** One transaction; returns the new ETags by row key, of so many of the first operations, or of all. */
  submit(table: string, partitionKey: string, parts: readonly Part[], etags?: number): Promise<Map<string, string>>;
}

export function createRows(clients: TableClients): Rows {
  const rows: Rows = {
    async read(table, partitionKey, rowKey) {
      // Callers choose some keys. What can't be one has no row, and asking for it is answered in many ways.
      if (keyProblem(partitionKey) ?? keyProblem(rowKey)) return undefined;
      try {
        return await clients.use(table, { create: false }, (reached) => getRow(reached, table, partitionKey, rowKey));
      } catch (error) {
        if (statusOf(error) === 404) return undefined; // no such row, or no such table yet
        throw error;
      }
    },

    async apply(partitionKey, operation) {
      const { table } = operation.entity;
      checkLimits(table, partitionKey, operation.rowKey, operation.columns);
      try {
        return await clients.use(table, { create: operation.kind !== "remove" }, ({ client }) =>
          send(client, partitionKey, operation),
        );
      } catch (error) {
        const refused = refusal(error, partitionKey, operation, 0);
        if (refused === undefined) throw error;
        const etags = wasResent(error) ? await appliedBefore(partitionKey, [operation]) : undefined;
        if (etags === undefined) throw refused;
        return etags.get(operation.rowKey)!;
      }
    },

    async submit(table, partitionKey, parts, wanted = parts.length) {
      const operations = parts.map((part) => part.operation);
      const { contentType, body } = transactionBody(parts);
      const { createHttpHeaders, createPipelineRequest } = await restPipeline();
      try {
        const etags = await clients.use(table, { create: true }, async (reached: Reached) => {
          const request = createPipelineRequest({
            url: `${reached.address}/$batch${reached.signature}`,
            method: "POST",
            headers: createHttpHeaders({
              Accept: "application/json",
              "Content-Type": contentType,
              "x-ms-version": "2019-02-02",
              DataServiceVersion: "3.0",
              MaxDataServiceVersion: "3.0;NetFx",
            }),
            body,
            allowInsecureConnection: reached.address.startsWith("http://"),
          });
          const response = await reached.client.pipeline.sendRequest(reached.http, request);
          return readTransactionAnswer(response, parts.length, wanted);
        });
        return new Map(etags.map((etag, index) => [operations[index]!.rowKey, etag ?? ""]));
      } catch (error) {
        if (!(error instanceof TransactionRefused)) throw error;
        const refused = refusal(error, partitionKey, operations[error.index]!, error.index);
        if (refused === undefined) throw error;
        const evidence = operations[0]!.entity.witness ? operations.slice(0, 1) : operations;
        const applied = wasResent(error) ? await appliedBefore(partitionKey, evidence) : undefined;
        if (applied === undefined) throw refused;
        return applied;
      }
    },
  };

  /**
   * The ETags ("" for a removed row), when every row that these operations write holds exactly what they write and every
   * row they remove is gone; else undefined.
   */
  async function appliedBefore(partitionKey: string, operations: readonly Operation[]) {
    const etags = new Map<string, string>();
    for (const { entity, kind, rowKey, columns } of operations) {
      const stored = await look(entity.table, partitionKey, rowKey);
      if (kind === "remove") {
        if (stored !== undefined) return undefined;
        etags.set(rowKey, "");
        continue;
      }
      if (stored === undefined) return undefined;
      const { etag, ...value } = decode<object>(entity.table, entity.schema, entity.members, stored.row);
      const now = encode(entity.members, value);
      const names = kind === "merge" ? Object.keys(columns) : new Set([...Object.keys(columns), ...Object.keys(now)]);
      for (const name of names) if (name !== SIGNATURE && columns[name] !== now[name]) return undefined;
      etags.set(rowKey, etag);
    }
    return etags;
  }

  /** Reads a row after an unclear answer. When even that fails, what was to be found out stays unclear. */
  async function look(table: string, partitionKey: string, rowKey: string) {
    try {
      return await rows.read(table, partitionKey, rowKey);
    } catch (error) {
      markResent(error);
      throw error;
    }
  }

  return rows;
}

async function send(client: Reached["client"], partitionKey: string, operation: Operation): Promise<string> {
  const { kind, rowKey, columns, etag } = operation;
  const row: TableEntity<Record<string, unknown>> = { ...columns, partitionKey, rowKey };
  const condition = etag === undefined ? {} : { etag };
  switch (kind) {
    case "insert":
      return (await client.createEntity(row)).etag ?? "";
    case "put":
      return (await client.upsertEntity(row, "Replace")).etag ?? "";
    case "replace":
      return (await client.updateEntity(row, "Replace", condition)).etag ?? "";
    case "merge":
      return (await client.updateEntity(row, "Merge", condition)).etag ?? "";
    case "remove":
      await client.deleteEntity(partitionKey, rowKey, condition);
      return "";
  }
}

/** https://learn.microsoft.com/rest/api/storageservices/table-service-error-codes */
function refusal(error: unknown, partitionKey: string, operation: Operation, index: number): Error | undefined {
  const { kind, rowKey, entity } = operation;
  if (errorCode(error) === "EntityAlreadyExists") return new RowExists(entity.table, partitionKey, rowKey, index);
  switch (statusOf(error)) {
    case 412:
      return new RowChanged(entity.table, partitionKey, rowKey, index);
    case 404:
      if (errorCode(error) === "TableNotFound" && kind !== "remove") return undefined; // it could not be created
      return kind === "replace"
        ? new RowChanged(entity.table, partitionKey, rowKey, index)
        : new RowMissing(entity.table, partitionKey, rowKey, index);
    default:
      return undefined;
  }
}
