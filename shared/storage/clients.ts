import { setTimeout as delay } from "node:timers/promises";
import type { HttpClient, PipelinePolicy, PipelineRequest } from "@azure/core-rest-pipeline";
import type { TableClient } from "@azure/data-tables";
import type { Logger } from "../runtime.ts";
import type { StoreClock } from "./clock.ts";
import { type StorageConnection, usesPlainHttp } from "./connection.ts";
import { ANSWER_TIMEOUT_MS, FIRST_RETRY_MS, MAX_DELETION_WAIT_MS, MAX_RETRY_MS, MAX_TRIES } from "./limits.ts";
import { TransactionRefused } from "./transaction.ts";

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
   * Does something with a table. What the SDK doesn't try again is tried again here: a table being deleted, and a busy
   * service that says so inside the answer to a transaction. A missing table is created only when that is asked for, and
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
    async use(table, { create }, action) {
      const reached = await reach(table);
      let missing = false;
      let waited = 0;
      let tries = 1;
      for (;;) {
        try {
          if (missing) await reached.client.createTable();
          return await action(reached);
        } catch (error) {
          const code = errorCode(error);
          if (code === "TableNotFound" && create && !missing) {
            missing = true;
            log?.info("Creating a table", { table });
            continue;
          }
          const settling = code === "TableBeingDeleted" || (code === "TableNotFound" && missing);
          if (settling ? waited >= MAX_DELETION_WAIT_MS : !isBusy(error) || tries >= MAX_TRIES) throw error;
          const pause = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (tries++ - 1)) * (0.5 + Math.random() / 2);
          log?.warn("Trying a table again", { table, code, pauseMs: Math.round(pause) });
          await delay(pause);
          waited += pause;
        }
      }
    },
  };
}

async function connect(connection: StorageConnection, table: string, clock: StoreClock | undefined): Promise<Reached> {
  const [{ TableClient }, { createDefaultHttpClient, RestError }] = await Promise.all([
    import("@azure/data-tables"),
    import("@azure/core-rest-pipeline"),
  ]);
  const http = createDefaultHttpClient();
  const options = {
    httpClient: http,
    retryOptions: { maxRetries: MAX_TRIES - 1, retryDelayInMs: FIRST_RETRY_MS, maxRetryDelayInMs: MAX_RETRY_MS },
    additionalPolicies: [{ policy: tryPolicy(RestError, clock), position: "perRetry" as const }],
  };
  const client =
    "connectionString" in connection
      ? TableClient.fromConnectionString(connection.connectionString, table, {
          ...options,
          allowInsecureConnection: usesPlainHttp(connection.connectionString),
        })
      : new TableClient(connection.tableServiceUri, table, await connection.credential(), options);
  const [address = "", query] = client.url.split("?");
  return { client, http, address: address.replace(/\/$/, ""), signature: query === undefined ? "" : `?${query}` };
}

const sent = new WeakSet<PipelineRequest>();
const resent = new WeakSet<PipelineRequest>();

/** Errors of the connection that the SDK's retry policy doesn't know as such. */
const connectionErrors = new Set(["EPIPE", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/**
 * Around every single try: limits its time, lets the retry policy see a broken connection as one, counts it, and takes the
 * service's time from its answer.
 */
function tryPolicy(
  RestError: typeof import("@azure/core-rest-pipeline").RestError,
  clock: StoreClock | undefined,
): PipelinePolicy {
  return {
    name: "storageTryPolicy",
    async sendRequest(request, next) {
      if (sent.has(request)) resent.add(request);
      sent.add(request);
      request.timeout = ANSWER_TIMEOUT_MS;
      const sentAt = performance.now();
      try {
        const answer = await next(request);
        clock?.saw(Date.parse(answer.headers.get("date") ?? ""), sentAt, performance.now());
        return answer;
      } catch (error) {
        const { name, code } = error as { name?: string; code?: string };
        if (name === "AbortError" || (code !== undefined && connectionErrors.has(code)))
          throw new RestError(`No answer from ${new URL(request.url).host} (${code ?? "timeout"}).`, {
            code: "ETIMEDOUT",
            request,
          });
        throw error;
      }
    },
  };
}

/** True when the request behind an error was sent more than once, so that an earlier try may have been applied. */
export function wasResent(error: unknown): boolean {
  const request = (error as { request?: PipelineRequest }).request;
  return request !== undefined && resent.has(request);
}

/** The service's own error code, e.g. `EntityAlreadyExists`. https://learn.microsoft.com/rest/api/storageservices/table-service-error-codes */
export function errorCode(error: unknown): string | undefined {
  const { code, details } = error as { code?: string; details?: { odataError?: { code?: string } } };
  return code ?? details?.odataError?.code;
}

export const statusOf = (error: unknown): number | undefined => (error as { statusCode?: number }).statusCode;

/** A transaction is answered 202 even when it failed for being busy, so the SDK's retry policy never sees it. */
const isBusy = (error: unknown) =>
  error instanceof TransactionRefused &&
  (error.statusCode >= 500 || error.statusCode === 429 || error.statusCode === 408);
