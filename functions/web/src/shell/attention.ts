/** The number beside a view in the navigation: how many things in the view need attention. */
import { useMay } from "../api/access.ts";
import { api } from "../api/client.ts";
import { counted } from "../parts/plural.ts";
import { useAlertSummary, useCoverage, useScore } from "../parts/status-queries.ts";

export interface Attention {
  count: number;
  /** The unit beside the number in the navigation, in few letters, such as "gaps". */
  unit: string;
  /** Name of the counted things. */
  text: string;
}

/** Query options. The numbers may be five minutes older than those of a view, so that opening views costs no further requests. */
const UP_TO_5_MINUTES_OLD = { staleTime: 300_000 };

/** Returns the numbers by path. A number that is 0 or unknown is left out. */
export function useAttention(): Partial<Record<string, Attention>> {
  const may = useMay();
  const { data: coverage } = useCoverage(UP_TO_5_MINUTES_OLD);
  const { data: score } = useScore(UP_TO_5_MINUTES_OLD);
  const { data: alerts } = useAlertSummary(UP_TO_5_MINUTES_OLD);
  const { data: approvals } = api.useQuery(
    "get",
    "/approvals",
    { params: { query: { state: "pending", limit: 1 } } },
    { ...UP_TO_5_MINUTES_OLD, enabled: may("listApprovals") },
  );
  const unsent = alerts && alerts.notifications.failed + alerts.notifications.partial + alerts.notifications.inDoubt;
  const gaps = coverage?.gapsTotal;
  const critical = score?.bySeverity.critical;
  const requests = approvals?.total;
  return {
    ...(gaps && {
      "/vaults": {
        count: gaps,
        unit: gaps === 1 ? "gap" : "gaps",
        text: `${counted(gaps, "gap")} in the coverage`,
      },
    }),
    ...(unsent && {
      "/alerts": {
        count: unsent,
        unit: "not sent",
        text: `${counted(unsent, "notification")} not delivered in the last 7 days`,
      },
    }),
    ...(critical && {
      "/compliance": { count: critical, unit: "critical", text: counted(critical, "critical violation") },
    }),
    ...(requests && {
      "/access": {
        count: requests,
        unit: requests === 1 ? "request" : "requests",
        text: `${counted(requests, "request")} to approve`,
      },
    }),
  };
}
