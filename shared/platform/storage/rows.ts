import type { TableEntity } from "@azure/data-tables";
import { checkLimits, decode, encode, type StoredRow } from "./columns.ts";
import { errorCode, markResent, RowChanged, RowExists, RowMissing, statusOf, wasResent } from "./errors.ts";
import { restPipeline } from "./http-client.ts";
import { isListKey, keyProblem } from "./keys.ts";
import type { Operation } from "./operations.ts";
import { getRow } from "./query.ts";
import { SIGNATURE } from "./signing.ts";
import type { ConnectedTable, TableClients } from "./table-clients.ts";
import { type Part, readTransactionAnswer, TransactionRejected, transactionBody } from "./transaction.ts";

/**
 * Reads and writes stored rows, single or in transactions. Rejections by the service become RowExists, RowChanged and
 * RowMissing.
 *
 * A request without a clear answer is sent again, and may then conflict with its own effect: an insert finds its row, a replace
 * a newer ETag, a removal no row. So the rejection of a request that was sent more than once is verified. If every written row
 * has exactly the intended value and every removed row is missing, the request counts as successful. Callers can rely on the
 * following:
 *
 * - After a write returns, the row is stored, or removed.
 * - RowExists, RowChanged or RowMissing means that another writer's value or removal is in effect. The caller's own value may
 * have been stored for a moment, if its answer was lost and another writer was quick.
 * - After a lost answer, two writers of the same value, or two that remove the same rows, can't be distinguished. If it matters
 * who won (a lock, a lease), include the writer's id in the value. A lease that is taken by a removal must also write a row.
 * - Lists of rows (row-lists.ts) are not verified, because another writer may have changed the list since.
 * - For a transaction whose first operation writes a row of a `uniqueWrites` entity, only that row is verified, and only its
 *   ETag is returned.
 * - After any other error for which `isUnclear` is true, it is unknown whether the request was applied.
 */
export interface Rows {
  /** Returns the row, and the `Date` of the answer in milliseconds since 1970. */
  read(table: string, partitionKey: string, rowKey: string): Promise<{ row: StoredRow; date: number } | undefined>;
  /** Returns the new ETag ("" for a removed row). */
  apply(partitionKey: string, operation: Operation): Promise<string>;
  /** Submits one transaction. Returns the new ETags by row key, of the first `etags` operations (default: all). */
  submit(table: string, partitionKey: string, parts: readonly Part[], etags?: number): Promise<Map<string, string>>;
}

/** Creates the access to stored rows that `Rows` describes. */
export function createRows(clients: TableClients): Rows {
  const rows: Rows = {
    async read(table, partitionKey, rowKey) {
      // Callers choose some keys. A row with an illegal key can't exist, and the service answers such requests with various
      // errors.
      if (keyProblem(partitionKey) ?? keyProblem(rowKey)) return undefined;
      try {
        return await clients.run(table, { create: false }, (connection) =>
          getRow(connection, table, partitionKey, rowKey),
        );
      } catch (error) {
        if (statusOf(error) === 404) return undefined; // the row, or still the table, does not exist
        throw error;
      }
    },

    async apply(partitionKey, operation) {
      const { table } = operation.entity;
      checkLimits(table, partitionKey, operation.rowKey, operation.columns);
      try {
        return await clients.run(table, { create: operation.kind !== "remove" }, ({ client }) =>
          send(client, partitionKey, operation),
        );
      } catch (error) {
        const rejection = rejectionOf(error, partitionKey, operation, 0);
        if (rejection === undefined) throw error;
        const etags = wasResent(error) ? await etagsIfApplied(partitionKey, [operation]) : undefined;
        if (etags === undefined) throw rejection;
        return etags.get(operation.rowKey)!;
      }
    },

    async submit(table, partitionKey, parts, etagCount = parts.length) {
      const operations = parts.map((part) => part.operation);
      const { contentType, body } = transactionBody(parts);
      const { createHttpHeaders, createPipelineRequest } = await restPipeline();
      try {
        const etags = await clients.run(table, { create: true }, async (connection: ConnectedTable) => {
          const request = createPipelineRequest({
            url: `${connection.address}/$batch${connection.signature}`,
            method: "POST",
            headers: createHttpHeaders({
              Accept: "application/json",
              "Content-Type": contentType,
              // The version that the SDK sends.
              "x-ms-version": "2019-02-02",
              DataServiceVersion: "3.0",
              MaxDataServiceVersion: "3.0;NetFx",
            }),
            body,
            allowInsecureConnection: connection.address.startsWith("http://"),
          });
          const response = await connection.client.pipeline.sendRequest(connection.http, request);
          return readTransactionAnswer(response, parts.length, etagCount);
        });
        return new Map(etags.map((etag, index) => [operations[index]!.rowKey, etag ?? ""]));
      } catch (error) {
        if (!(error instanceof TransactionRejected)) throw error;
        const rejection = rejectionOf(error, partitionKey, operations[error.index]!, error.index);
        if (rejection === undefined) throw error;
        const evidence = operations[0]!.entity.uniqueWrites
          ? operations.slice(0, 1)
          : operations.filter(({ rowKey }) => !isListKey(rowKey));
        const applied = wasResent(error) ? await etagsIfApplied(partitionKey, evidence) : undefined;
        if (applied === undefined) throw rejection;
        return applied;
      }
    },
  };

  /**
   * Returns the ETags ("" for a removed row) if every written row has exactly the intended value and every removed row is
   * missing. Otherwise returns undefined.
   */
  async function etagsIfApplied(partitionKey: string, operations: readonly Operation[]) {
    const etags = new Map<string, string>();
    for (const { entity, kind, rowKey, columns } of operations) {
      const stored = await readAfterUnclear(entity.table, partitionKey, rowKey);
      if (kind === "remove") {
        if (stored !== undefined) return undefined;
        etags.set(rowKey, "");
        continue;
      }
      if (stored === undefined) return undefined;
      const { etag, ...value } = decode<object>(entity.table, entity.schema, entity.members, stored.row);
      const currentColumns = encode(entity.members, value);
      const names =
        kind === "merge" ? Object.keys(columns) : new Set([...Object.keys(columns), ...Object.keys(currentColumns)]);
      // `currentColumns` has no signature, because `encode` writes only members.
      for (const name of names) if (name !== SIGNATURE && columns[name] !== currentColumns[name]) return undefined;
      etags.set(rowKey, etag);
    }
    return etags;
  }

  /** Reads a row after an unclear answer. If the read fails too, its error counts as unclear. */
  async function readAfterUnclear(table: string, partitionKey: string, rowKey: string) {
    try {
      return await rows.read(table, partitionKey, rowKey);
    } catch (error) {
      markResent(error);
      throw error;
    }
  }

  return rows;
}

async function send(client: ConnectedTable["client"], partitionKey: string, operation: Operation): Promise<string> {
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

/**
 * Converts an error of the service, by https://learn.microsoft.com/rest/api/storageservices/table-service-error-codes. Returns
 * undefined for other errors.
 */
function rejectionOf(error: unknown, partitionKey: string, operation: Operation, index: number): Error | undefined {
  const { kind, rowKey, entity } = operation;
  if (errorCode(error) === "EntityAlreadyExists") return new RowExists(entity.table, partitionKey, rowKey, index);
  switch (statusOf(error)) {
    case 412:
      return new RowChanged(entity.table, partitionKey, rowKey, index);
    case 404:
      if (errorCode(error) === "TableNotFound" && kind !== "remove") return undefined; // the table could not be created
      return kind === "replace"
        ? new RowChanged(entity.table, partitionKey, rowKey, index)
        : new RowMissing(entity.table, partitionKey, rowKey, index);
    default:
      return undefined;
  }
}
