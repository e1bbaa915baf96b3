import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type Service,
  type ServiceResponse,
} from "../http.ts";
import { type Tokens, tokenProblem } from "../tokens.ts";
import { type Column, isSummaryQuery, runSummaryQuery } from "./summary-query.ts";
import type { Workspace, Workspaces } from "./workspaces.ts";

/**
 * Simulates the query API of Log Analytics: `POST /v1/workspaces/{id}/query`. It supports one query, the summary of vault reads
 * and sign-ins, which it recognizes by its tables and columns. It rejects other queries.
 * https://learn.microsoft.com/azure/azure-monitor/logs/api/request-format, …/response-format, …/errors
 */
export function logAnalytics(parts: { workspaces: Workspaces; tokens: Tokens; origin: string }): Service {
  return (request) => {
    const [version, collection, id = "", action, ...more] = request.segments;
    const isQuery = version === "v1" && collection === "workspaces" && action === "query" && more.length === 0;
    if (request.method !== "POST" || !isQuery) return undefined;
    const workspace = parts.workspaces.find(id);
    const problem = tokenProblem(parts.tokens, request.headers.authorization, parts.origin);
    // A test can request this response with a fault named `partial`: half of the rows, with an error.
    const partial = () => {
      const { status, body } = runQuery(parts.workspaces, workspace, request);
      return status === 200 ? toPartialResult(body as Result) : { status, body };
    };
    return {
      name: "loganalytics.query",
      ...(workspace && { resource: workspace.resourceId }),
      action: "Microsoft.OperationalInsights/workspaces/query/read",
      item: id,
      anonymous: problem !== undefined,
      errorResponses: { ...errorResponses, named: { partial } },
      answer: () =>
        problem === undefined
          ? runQuery(parts.workspaces, workspace, request)
          : failure(401, "InvalidTokenError", "The provided authorization token is not valid."),
    } satisfies Operation;
  };
}

interface Result {
  tables: { name: string; columns: Column[]; rows: unknown[][] }[];
}

/** Validates a query and runs it. */
function runQuery(workspaces: Workspaces, workspace: Workspace | undefined, request: IncomingRequest): ServiceResponse {
  if (workspace === undefined) return failure(404, "WorkspaceNotFoundError", "The workspace could not be found");
  const { query, timespan } = jsonObject(request) ?? {};
  if (typeof query !== "string") return invalid("A query has to be specified");
  const interval = parseInterval(timespan);
  if (interval === undefined) return invalid(`The timespan ${String(timespan)} is not valid`);
  if (!isSummaryQuery(query)) return invalid("A recognition error occurred in the query.", "SyntaxError");
  const result = runSummaryQuery(query, interval, workspace, workspaces);
  if (typeof result === "string") return invalid(result, "SemanticError");
  return { status: 200, body: { tables: [{ name: "PrimaryResult", ...result }] } satisfies Result };
}

/** Parses an ISO 8601 interval of two times. */
function parseInterval(timespan: unknown): { from: number; to: number } | undefined {
  const [from = Number.NaN, to = Number.NaN, ...more] = String(timespan).split("/").map(Date.parse);
  return Number.isNaN(from) || Number.isNaN(to) || more.length > 0 || to <= from ? undefined : { from, to };
}

/** Returns a partial result with an error, as Log Analytics does when a query exceeds its limits. */
function toPartialResult({ tables }: Result): ServiceResponse {
  const halfTables = tables.map(({ rows, ...table }) => ({
    ...table,
    rows: rows.slice(0, Math.floor(rows.length / 2)),
  }));
  const error = {
    code: "PartialError",
    message: "There were some errors when processing your query.",
    details: [
      {
        code: "EngineError",
        message: "Something went wrong processing your query on the server.",
        innererror: {
          code: "-2133196797",
          message: "The results of this query exceed the set limit of 67108864 bytes.",
          severity: 2,
          severityName: "Error",
        },
      },
    ],
  };
  return { status: 200, body: { tables: halfTables, error } };
}

const invalid = (message: string, inner?: string): ServiceResponse =>
  failure(400, "BadArgumentError", "The request had some invalid properties", {
    code: inner ?? "QueryValidationError",
    message,
  });

function failure(status: number, code: string, message: string, innererror?: object): ServiceResponse {
  return {
    status,
    body: { error: { message, code, correlationId: crypto.randomUUID(), ...(innererror && { innererror }) } },
  };
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({
    ...failure(429, "ThrottledError", "Too many requests: the limit is 200 requests in 30 seconds."),
    headers: retryAfter(seconds),
  }),
  denied: () =>
    failure(
      403,
      "InsufficientAccessError",
      "The provided credentials have insufficient access to perform the requested operation",
    ),
  firewalled: () => failure(403, "NspValidationFailedError", "The workspace takes no queries from public networks."),
  failed: (status) =>
    failure(status, status === 504 ? "GatewayTimeout" : "InternalServerError", "The query did not end."),
};
