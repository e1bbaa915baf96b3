import { CONTENT_TYPE, MEDIA_TYPE } from "../shared/metrics/prometheus-text.ts";
import { content } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";

const getMetrics = endpoint({
  name: "getMetrics",
  method: "GET",
  route: "metrics",
  summary: "Get metrics in Prometheus format",
  description:
    "Returns assets by type and status, score and open violations, the last scan, alert deliveries and failed messages, in the Prometheus text format 0.0.4. Metrics are read from storage on every call, so all instances return the same values. Labels contain no names of vaults, subscriptions or assets. A scrape counts toward the rate limit; an API token with the role user is sufficient.",
  tag: "System",
  access: "user",
  tier: "core",
  responds: {
    200: {
      description: "Gauges, each with HELP and TYPE.",
      mediaType: MEDIA_TYPE,
      example: [
        "# HELP lifecycle_assets Secrets, keys and certificates by their current status, including credentials of applications.",
        "# TYPE lifecycle_assets gauge",
        'lifecycle_assets{type="secret",status="healthy"} 412',
        'lifecycle_assets{type="secret",status="expired"} 3',
        "# HELP lifecycle_compliance_score_ratio The compliance score, 0 to 1. 1 before the first evaluation.",
        "# TYPE lifecycle_compliance_score_ratio gauge",
        "lifecycle_compliance_score_ratio 0.873",
        "",
      ].join("\n"),
    },
  },
  handle: async ({ services }) => content(CONTENT_TYPE, await services.metrics.text()),
});

export const endpoints = [getMetrics];
