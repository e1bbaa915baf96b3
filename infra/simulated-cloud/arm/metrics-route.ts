import type { Route } from "./request-context.ts";
import { failure } from "./request-context.ts";
import { type ResourceCall, resourceRoute } from "./resource-route.ts";

const DAY_MS = 86_400_000;
/** Azure Monitor keeps metrics for 93 days. */
const KEPT_DAYS = 93;
const METRICS = "providers/microsoft.insights/metrics";
const VERSIONS = ["2018-01-01", "2019-07-01", "2021-05-01", "2023-10-01", "2024-02-01"];

/**
 * Returns the route of a request for the metric Transactions of a storage account, by authentication and day:
 * https://learn.microsoft.com/rest/api/monitor/metrics/list
 */
export function metricsRoute(call: ResourceCall): Route | undefined {
  const { request, rest, type, options } = call;
  if (request.method !== "GET" || rest !== METRICS || type.noun !== "StorageAccount") return undefined;
  const route = { name: "arm.listMetrics", versions: VERSIONS, action: "Microsoft.Insights/metrics/read" };
  return resourceRoute(call, route, (resource) => {
    const { query } = request;
    const [from, to] = (query.get("timespan") ?? "").split("/").map((text) => Date.parse(text));
    if (query.get("metricnames") !== "Transactions") return failure(400, "BadRequest", "The metric is not valid.");
    if (query.get("interval") !== "P1D" || query.get("aggregation") !== "Total")
      return failure(400, "BadRequest", "The interval or the aggregation is not supported.");
    if (query.get("$filter") !== "Authentication eq '*'") return failure(400, "BadRequest", "The filter is not valid.");
    if (from === undefined || to === undefined || !(from < to)) return failure(400, "BadRequest", "Invalid time span.");
    if (to - from > KEPT_DAYS * DAY_MS) return failure(400, "BadRequest", `At most ${KEPT_DAYS} days can be queried.`);
    const found = options.store.transactions.filter(
      ({ id, at }) => id === resource.id.toLowerCase() && at >= from && at < to,
    );
    const kinds = [...new Set(found.map(({ authentication }) => authentication))];
    const timeseries = kinds.map((value) => ({
      metadatavalues: [{ name: { value: "authentication", localizedValue: "authentication" }, value }],
      data: found
        .filter(({ authentication }) => authentication === value)
        .map(({ at, count }) => ({ timeStamp: `${new Date(at).toISOString().slice(0, 10)}T00:00:00Z`, total: count })),
    }));
    const name = { value: "Transactions", localizedValue: "Transactions" };
    const id = `${resource.id}/providers/Microsoft.Insights/metrics/Transactions`;
    const value = [{ id, type: "Microsoft.Insights/metrics", name, unit: "Count", timeseries }];
    return { status: 200, body: { cost: 0, timespan: query.get("timespan"), interval: "P1D", value } };
  });
}
