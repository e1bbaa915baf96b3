import type { HttpClient } from "@azure/core-rest-pipeline";
import type { TableClient } from "@azure/data-tables";
import type { Logger } from "../runtime.ts";
import type { StoreClock } from "./clock.ts";
import { type StorageConnection, usesPlainHttp } from "./connection.ts";
import { isUnclear, markResent } from "./errors.ts";
import { createStorageTransport } from "./http-client.ts";
import { FIRST_RETRY_MS, MAX_ATTEMPTS, MAX_RETRY_MS } from "./limits.ts";
import { withRetries } from "./retry.ts";
import { TransactionRejected, TransactionTruncated } from "./transaction.ts";

/** A connected table: the SDK's client, and the parts of the client that requests outside the SDK's methods need. */
export interface ConnectedTable {
  readonly client: TableClient;
  readonly http: HttpClient;
  /** Address of the table service. */
  readonly address: string;
  /** Shared access signature to append to an address ("?sv=…"). Empty if the connection string contains none. */
  readonly signature: string;
}

/** Runs requests on tables, with one connection per table. */
export interface TableClients {
  /**
   * Runs `action` on a table and retries what the SDK's retry policy does not. These are a table that is being deleted, a busy
   * service that reports so inside the answer to a transaction, and a truncated answer.
   *
   * A missing table is created only if `create` is set, and only after the service reported that the table is missing. So no
   * request checks whether a table exists.
   */
  run<R>(table: string, options: { create: boolean }, action: (connected: ConnectedTable) => Promise<R>): Promise<R>;
  connect(table: string): Promise<ConnectedTable>;
}

/** Creates the connections to tables, one per table, with retries. */
export function createTableClients(
  connection: StorageConnection,
  { log, clock }: { log?: Logger | undefined; clock?: StoreClock | undefined },
): TableClients {
  const clients = new Map<string, Promise<ConnectedTable>>();
  const connectOnce = (table: string): Promise<ConnectedTable> => {
    let connected = clients.get(table);
    if (connected === undefined) {
      connected = connect(connection, table, clock);
      clients.set(table, connected);
      // The next call connects again, because acquiring a credential can fail temporarily.
      connected.catch(() => clients.delete(table));
    }
    return connected;
  };

  return {
    connect: connectOnce,
    async run(table, { create: createMissing }, action) {
      const connected = await connectOnce(table);
      let unclear = false;
      const options = { kind: "table", name: table, createMissing, isTransient: isBusy, log } as const;
      return await withRetries(options, async ({ create }) => {
        try {
          if (create) await connected.client.createTable();
          return await action(connected);
        } catch (error) {
          // An attempt without a clear answer may have been applied. A later clear rejection can be its effect.
          if (unclear) markResent(error);
          unclear ||= isUnclear(error);
          throw error;
        }
      });
    },
  };
}

/**
 * Policies of the SDK's pipeline that cost time on each request and have no effect here. Logging and tracing are off, but both
 * still prepare the sanitized address. No request has a form or multipart body, an abort signal of another realm, or a
 * redirect. The table service does not compress.
 */
export const UNUSED_POLICIES = [
  "logPolicy",
  "tracingPolicy",
  "formDataPolicy",
  "multipartPolicy",
  "decompressResponsePolicy",
  "wrapAbortSignalLikePolicy",
  "redirectPolicy",
];

async function connect(
  connection: StorageConnection,
  table: string,
  clock: StoreClock | undefined,
): Promise<ConnectedTable> {
  const [{ TableClient }, http] = await Promise.all([import("@azure/data-tables"), createStorageTransport({ clock })]);
  const options = {
    httpClient: http,
    retryOptions: { maxRetries: MAX_ATTEMPTS - 1, retryDelayInMs: FIRST_RETRY_MS, maxRetryDelayInMs: MAX_RETRY_MS },
  };
  const client =
    "connectionString" in connection
      ? TableClient.fromConnectionString(connection.connectionString, table, {
          ...options,
          allowInsecureConnection: usesPlainHttp(connection.connectionString),
        })
      : new TableClient(connection.tableServiceUri, table, await connection.credential(), options);
  for (const name of UNUSED_POLICIES) client.pipeline.removePolicy({ name });
  const [address = "", query] = client.url.split("?");
  return { client, http, address: address.replace(/\/$/, ""), signature: query === undefined ? "" : `?${query}` };
}

/**
 * Returns whether to retry an error that the SDK's retry policy does not recognize. Such errors are a transaction that was
 * rejected inside a 202 answer, and an answer whose truncation shows only when it is parsed.
 */
const isBusy = (error: unknown): boolean =>
  error instanceof TransactionTruncated ||
  (error instanceof TransactionRejected &&
    error.insideAccepted &&
    (error.statusCode >= 500 || error.statusCode === 429 || error.statusCode === 408)) ||
  (error as { code?: string }).code === "PARSE_ERROR";
