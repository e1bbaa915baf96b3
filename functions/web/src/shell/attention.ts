/** The numbers in the navigation: things that need attention, by the path of their view. */
import { useMay } from "../api/access.ts";
import { api } from "../api/client.ts";
import { counted } from "../parts/plural.ts";
import { useAlertSummary, useCoverage, useScore } from "../parts/status-queries.ts";

export interface Attention {
  count: number;
  /** The unit beside the number in the navigation, in few letters, such as "gaps". */
  unit: string;
  /** Says what is counted. */
  text: string;
}

type Text = (count: number) => string;

/** The numbers may be older than those of a view, so that opening views costs no further requests. */
const SHARED = { staleTime: 300_000 };

/** Returns the numbers by path. A number that is 0 or unknown is left out. */
export function useAttention(): Partial<Record<string, Attention>> {
  const may = useMay();
  const { data: coverage } = useCoverage(SHARED);
  const { data: score } = useScore(SHARED);
  const { data: alerts } = useAlertSummary(SHARED);
  const { data: approvals } = api.useQuery(
    "get",
    "/approvals",
    { params: { query: { state: "pending", limit: 1 } } },
    { ...SHARED, enabled: may("listApprovals") },
  );
  const unsent = alerts && alerts.notifications.failed + alerts.notifications.partial + alerts.notifications.inDoubt;
  const attention: [path: string, count: number | null | undefined, units: [string, string], text: Text][] = [
    ["/vaults", coverage?.gapsTotal, ["gap", "gaps"], (count) => `${counted(count, "gap")} in the coverage`],
    [
      "/alerts",
      unsent,
      ["not sent", "not sent"],
      (count) => `${counted(count, "notification")} not delivered in the last 7 days`,
    ],
    [
      "/compliance",
      score?.bySeverity.critical,
      ["critical", "critical"],
      (count) => counted(count, "critical violation"),
    ],
    ["/access", approvals?.total, ["request", "requests"], (count) => `${counted(count, "request")} to approve`],
  ];
  return Object.fromEntries(
    attention.flatMap(([path, count, [one, several], text]) =>
      count ? [[path, { count, unit: count === 1 ? one : several, text: text(count) }]] : [],
    ),
  );
}
