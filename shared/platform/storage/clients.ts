import type { HttpClient } from "@azure/core-rest-pipeline";
import type { TableClient } from "@azure/data-tables";
import type { Logger } from "../runtime.ts";
import type { StoreClock } from "./clock.ts";
import { type StorageConnection, usesPlainHttp } from "./connection.ts";
import { isUnclear, markResent } from "./errors.ts";
import { FIRST_RETRY_MS, MAX_RETRY_MS, MAX_TRIES } from "./limits.ts";
import { withRetries } from "./retry.ts";
import { TransactionCut, TransactionRefused } from "./transaction.ts";
import { createStorageTransport } from "./transport.ts";

/** One table, reached through the SDK's pipeline. */
export interface Reached {
  readonly client: TableClient;
  readonly http: HttpClient;
  /** The table service's address. */
  readonly address: string;
  /** A shared access signature to append to an address ("?sv=…"), when the connection string holds one; else empty. */
  readonly signature: string;
}

export interface TableClients {
  /**
   * Does something with a table. What the SDK doesn't try again is tried again here: a table being deleted, a busy service
   * that says so inside the answer to a transaction, and an answer that stops half-way. A missing table is created only when that is asked for, and
   * only once the service has said that it is missing: no request is spent on tables that exist.
   */
  use<R>(table: string, options: { create: boolean }, action: (reached: Reached) => Promise<R>): Promise<R>;
  reach(table: string): Promise<Reached>;
}

export function createTableClients(
  connection: StorageConnection,
  { log, clock }: { log?: Logger | undefined; clock?: StoreClock | undefined },
): TableClients {
  const clients = new Map<string, Promise<Reached>>();
  const reach = (table: string): Promise<Reached> => {
    let reached = clients.get(table);
    if (reached === undefined) {
      reached = connect(connection, table, clock);
      clients.set(table, reached);
      // A credential that could not be had now may be had at the next call.
      reached.catch(() => clients.delete(table));
    }
    return reached;
  };

  return {
    reach,
    async use(table, { create: createMissing }, action) {
      const reached = await reach(table);
      let unclear = false;
      const options = { kind: "table", name: table, createMissing, isTransient: isBusy, log } as const;
      return await withRetries(options, async ({ create }) => {
        try {
          if (create) await reached.client.createTable();
          return await action(reached);
        } catch (error) {
          // A clear refusal after an unclear answer may be the effect of the earlier try.
          if (unclear) markResent(error);
          unclear ||= isUnclear(error);
          throw error;
        }
      });
    },
  };
}

/**
 * Policies of the SDK's pipeline that do nothing here, at a price for each request: logging and tracing, since neither is
 * switched on and both prepare the sanitized address all the same; bodies of forms and of parts, since every body is text or bytes;
 * compression, which the table service does not have; foreign abort signals and redirects, since there are none.
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

async function connect(connection: StorageConnection, table: string, clock: StoreClock | undefined): Promise<Reached> {
  const [{ TableClient }, http] = await Promise.all([import("@azure/data-tables"), createStorageTransport({ clock })]);
  const options = {
    httpClient: http,
    retryOptions: { maxRetries: MAX_TRIES - 1, retryDelayInMs: FIRST_RETRY_MS, maxRetryDelayInMs: MAX_RETRY_MS },
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

/** What the SDK's retry policy can't see: a transaction's refusal within a 202, and an answer that only its reader finds cut. */
const isBusy = (error: unknown): boolean =>
  error instanceof TransactionCut ||
  (error instanceof TransactionRefused &&
    error.inside &&
    (error.statusCode >= 500 || error.statusCode === 429 || error.statusCode === 408)) ||
  (error as { code?: string }).code === "PARSE_ERROR";
