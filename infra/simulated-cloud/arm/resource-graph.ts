import { randomUUID } from "node:crypto";
import { type IncomingRequest, jsonObject, retryAfter, type ServiceResponse } from "../http.ts";
import type { Claims } from "../tokens.ts";
import { TABLES } from "./graph-tables.ts";
import { compareRows, parse, type Query, QueryError, type Row } from "./kql.ts";
import type { ArmOptions, Route } from "./request-context.ts";

// The simulated endpoint of Azure Resource Graph: checks a request, limits its rate, runs its query and returns one page.

const VERSIONS = ["2021-03-01", "2022-10-01", "2024-04-01"];
/** Number of queries that a principal can send in a window. */
const QUOTA = 15;
const WINDOW_MS = 5000;

/**
 * Returns the route of a query of Azure Resource Graph. Undefined for other requests:
 * https://learn.microsoft.com/rest/api/azureresourcegraph/resourcegraph/resources/resources. Results omit rows that the caller
 * may not read, without an error:
 * https://learn.microsoft.com/azure/governance/resource-graph/overview#permissions-in-azure-resource-graph
 */
export function resourceGraphRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  if (request.method !== "POST" || !/^\/providers\/microsoft\.resourcegraph\/resources$/i.test(request.path))
    return undefined;
  return {
    name: "arm.queryResourceGraph",
    versions: VERSIONS,
    answer(claims) {
      const quota = takeQuota(options, claims);
      if (quota === undefined) return throttled();
      const answer = runQuery(options, jsonObject(request));
      const headers = { "x-ms-user-quota-remaining": String(quota), "x-ms-user-quota-resets-after": "00:00:05" };
      return { ...answer, headers };
    },
  };
}

/** Times of the latest queries by principal, for each simulated cloud. */
const recentQueries = new WeakMap<ArmOptions, Map<string, number[]>>();

/** Returns the remaining quota after this query. Undefined when the quota is exceeded. */
function takeQuota(options: ArmOptions, { oid }: Claims): number | undefined {
  const timesByPrincipal = recentQueries.get(options) ?? new Map<string, number[]>();
  recentQueries.set(options, timesByPrincipal);
  const now = options.consumers.now();
  const times = (timesByPrincipal.get(oid) ?? []).filter((at) => now - at < WINDOW_MS);
  timesByPrincipal.set(oid, times);
  if (options.consumers.graphSettings.limited && times.length >= QUOTA) return undefined;
  times.push(now);
  return Math.max(0, QUOTA - times.length);
}

const throttled = (): ServiceResponse => ({
  status: 429,
  headers: { ...retryAfter(5), "x-ms-user-quota-remaining": "0", "x-ms-user-quota-resets-after": "00:00:05" },
  body: {
    error: {
      code: "RateLimiting",
      message:
        "Client application has been throttled and should not attempt to repeat the request until an amount of time has elapsed. Please see https://aka.ms/resourcegraph-throttling for help.",
    },
  },
});

/** Validates the request body and runs its query. */
function runQuery(options: ArmOptions, body: Row | undefined): ServiceResponse {
  const {
    query,
    subscriptions,
    managementGroups,
    options: queryOptions = {},
  } = (body ?? {}) as {
    query?: unknown;
    subscriptions?: unknown;
    managementGroups?: unknown;
    options?: { $top?: unknown; $skipToken?: unknown; $skip?: unknown; resultFormat?: unknown };
  };
  if (typeof query !== "string" || query.trim() === "") return invalid("InvalidQuery", "The query is missing.");
  if (subscriptions !== undefined && !isTextList(subscriptions))
    return invalid("InvalidSubscriptions", "subscriptions must be a list of ids.");
  if (managementGroups !== undefined && !isTextList(managementGroups))
    return invalid("InvalidManagementGroups", "managementGroups must be a list of names.");
  if (queryOptions.resultFormat !== undefined && queryOptions.resultFormat !== "objectArray") {
    return invalid("InvalidOptions", "The simulated cloud supports only the result format objectArray.");
  }
  const top = queryOptions.$top ?? 100;
  if (typeof top !== "number" || !Number.isInteger(top) || top < 1 || top > 1000) {
    return invalid("InvalidOptions", "$top must be between 1 and 1000.");
  }
  const start =
    queryOptions.$skipToken === undefined
      ? Number(queryOptions.$skip ?? 0)
      : positionOf(queryOptions.$skipToken, query);
  if (start === undefined) return invalid("InvalidSkipToken", "The skip token is not valid for this query.");
  try {
    return results(options, parse(query, options.consumers.now()), { query, subscriptions, top, start });
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    return invalid("ParserFailure", `${error.message} at position ${error.position}.`);
  }
}

/** Runs a query. Returns one page of its results. */
function results(
  options: ArmOptions,
  { table, stages }: Query,
  request: { query: string; subscriptions: readonly string[] | undefined; top: number; start: number },
): ServiceResponse {
  const source = TABLES[table];
  if (source === undefined) return invalid("InvalidQuery", `There is no table '${table}'.`);
  // Resources read secrets again when the clock reaches a time, which changes their rows.
  options.consumers.runDueWork();
  const subscriptionIds = request.subscriptions?.map((one) => one.toLowerCase());
  let rows: Row[] = [...source(options, subscriptionIds)];
  for (const stage of stages) {
    switch (stage.kind) {
      case "where":
        rows = rows.filter((row) => stage.test(row));
        break;
      case "extend":
        rows = rows.map((row) => Object.assign(copyRow(row), columnsOf(stage.columns, row)));
        break;
      case "project":
        // See below: the columns are computed only if necessary.
        break;
      case "order":
        rows.sort((a, b) => compareRows(stage.by, a, b));
        break;
      case "limit":
        rows = rows.slice(0, stage.count);
    }
    // Results can be large and pages are small. Projected columns are computed last, unless a later operator reads them.
    if (stage.kind === "project" && stage !== stages.at(-1)) rows = rows.map((row) => columnsOf(stage.columns, row));
  }
  const lastStage = stages.at(-1);
  const page = rows.slice(request.start, request.start + request.top);
  const data = lastStage?.kind === "project" ? page.map((row) => columnsOf(lastStage.columns, row)) : page.map(copyRow);
  const hasMore = request.start + request.top < rows.length;
  const projection = stages.findLast((stage) => stage.kind === "project");
  // Without the column `id` Resource Graph does not page:
  // https://learn.microsoft.com/azure/governance/resource-graph/concepts/work-with-data
  const canPage = projection?.kind !== "project" || projection.columns.some(({ name }) => name === "id");
  return {
    status: 200,
    body: {
      totalRecords: rows.length,
      count: data.length,
      resultTruncated: String(hasMore && !canPage),
      ...(hasMore && canPage && { $skipToken: skipToken(request.start + request.top, request.query) }),
      data,
      facets: [],
    },
  };
}

const copyRow = (row: Row): Row => ({ ...row });

const columnsOf = (columns: readonly { name: string; value(row: Row): unknown }[], row: Row): Row =>
  Object.fromEntries(columns.map(({ name, value }) => [name, value(row) ?? null]));

/** Creates the token of the next page: the position of its first row, and the query to which the token belongs. */
const skipToken = (position: number, query: string): string =>
  Buffer.from(JSON.stringify({ $id: "1", position, query })).toString("base64");

/** Parses a skip token. Undefined when the token does not belong to this query. */
function positionOf(token: unknown, query: string): number | undefined {
  try {
    const content = JSON.parse(Buffer.from(String(token), "base64").toString("utf8")) as {
      position?: unknown;
      query?: unknown;
    };
    return content.query === query && typeof content.position === "number" ? content.position : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Creates the error response for an invalid query. */
function invalid(code: string, message: string): ServiceResponse {
  const details = [
    {
      code: "InvalidQuery",
      message:
        "Query is invalid. Please refer to the documentation for the Azure Resource Graph service and fix the error before retrying.",
    },
    { code, message },
  ];
  const support = `timestamp = ${new Date().toISOString()}, correlationId = ${randomUUID()}.`;
  return {
    status: 400,
    body: {
      error: { code: "BadRequest", message: `Please provide below info when asking for support: ${support}`, details },
    },
  };
}

const isTextList = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === "string");
