import * as z from "zod";
import { systemRandomness } from "../runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import { CALL_LIMITS, clientOptions, type Route } from "./calls.ts";
import { type CloudFailure, failure, malformedAnswer } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";

/** The result of a query. */
export interface QueryAnswer {
  /** Rows by column name. Times are `Date`. */
  rows: Record<string, unknown>[];
  /** Set if the service returned only a part of the rows. */
  incomplete: CloudFailure | undefined;
}

/** Queries of Log Analytics. https://learn.microsoft.com/azure/azure-monitor/logs/api/overview */
export interface LogAnalytics {
  /**
   * Runs a query and returns its rows. The query is sent once, because callers limit their number of queries and retry later.
   *
   * @param workspaceId - The workspace's ID, a GUID.
   * @param span - Range of the rows' `TimeGenerated`.
   * @throws {CloudFailure} throttled, with the seconds to wait if the answer has them; timedOut if the query took too long.
   */
  query(workspaceId: string, query: string, span: { from: Date; to: Date }, signal?: AbortSignal): Promise<QueryAnswer>;
}

/**
 * Seconds after which the service ends a query, at most 600: https://learn.microsoft.com/azure/azure-monitor/logs/api/timeouts
 */
const QUERY_SECONDS = 60;
/** Maximum duration of a request. Responses can have up to 100 MB, so one minute is added for the transfer. */
const ANSWER_MS = QUERY_SECONDS * SECOND_MS + MINUTE_MS;

const QUERY_PATH = /^\/v1\/workspaces\/[0-9a-f-]{36}\/query$/i;
/** https://learn.microsoft.com/azure/azure-monitor/logs/api/response-format */
const answer = z.object({
  tables: z
    .array(
      z.object({
        columns: z.array(z.object({ name: z.string(), type: z.string() })),
        rows: z.array(z.array(z.unknown())),
      }),
    )
    .min(1),
});

export function createLogAnalytics(services: CloudServices): LogAnalytics {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const endpoint = config.cloud.logAnalytics;
  const origin = new URL(endpoint).origin;
  const scope = `${endpoint}/.default`;

  return {
    async query(workspaceId, query, { from, to }, signal) {
      const target = {
        operation: "query the logs",
        resource: `Log Analytics workspace ${workspaceId}`,
        grant: "the role Log Analytics Data Reader on this workspace, or one that may query its tables",
      };
      const route = (path: string): Route | undefined => (QUERY_PATH.test(path) ? { target, answer } : undefined);
      const singleTry = { throttledTries: 1, concurrencyTries: 1, unreachableTries: 1 };
      const { LogsQueryClient } = await import("@azure/monitor-query-logs");
      const client = new LogsQueryClient(await identity.credential(), {
        ...(await clientOptions({
          origin,
          scope,
          identity,
          route,
          resource: target.resource,
          signal,
          failureOf: ({ status }) =>
            status === 504
              ? failure("timedOut", target, `the query took longer than ${QUERY_SECONDS} s`, {
                  remedy: "No action needed: the next run queries a shorter period.",
                })
              : undefined,
          log,
          randomness,
          limits: { ...CALL_LIMITS, requestTimeoutMs: ANSWER_MS, ...limits, ...singleTry },
        })),
        endpoint: `${origin}/v1`,
        credentials: { scopes: [scope] },
      });
      const options = { serverTimeoutInSeconds: QUERY_SECONDS };
      const result = await client.queryWorkspace(workspaceId, query, { startTime: from, endTime: to }, options);
      const isWhole = result.status === "Success";
      const table = (isWhole ? result.tables : result.partialTables)[0];
      if (table === undefined) throw malformedAnswer(target, "the response has no table");
      const names = table.columnDescriptors.map(({ name }) => name ?? "");
      const rows = table.rows.map((cells) => Object.fromEntries(names.map((name, column) => [name, cells[column]])));
      if (isWhole) return { rows, incomplete: undefined };
      return {
        rows,
        incomplete: failure("incomplete", target, "the response contains only a part of the rows", {
          remedy: "No action needed: the next run queries the missing period again.",
          cloudCode: codeOf(result.partialError.code),
        }),
      };
    },
  };
}

/** Returns the value if it has the form of an error code, such as `PartialError`. */
const codeOf = (code: unknown): string | undefined =>
  typeof code === "string" && /^[A-Za-z][A-Za-z0-9_]{1,63}$/.test(code) ? code : undefined;
