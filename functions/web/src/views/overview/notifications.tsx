import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { DELIVERY_STATUSES } from "../../parts/notification-texts.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useAlertSummary } from "../../parts/status-queries.ts";

const MAX_SHOWN_FAILURES = 5;
/** Statuses in the order in which their numbers are shown: sent ones first. */
const STATUSES = ["delivered", "pending", "partial", "failed", "inDoubt", "cancelled"] as const;

const useStyles = makeStyles({
  links: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalL, lineHeight: "24px" },
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalS,
    margin: 0,
    paddingInlineStart: tokens.spacingHorizontalXL,
    overflowWrap: "anywhere",
  },
});

/** The card of the Overview page with the notifications of the last days: how many were sent, and why others were not. */
export function Notifications() {
  const styles = useStyles();
  return (
    <QueryResult of={useAlertSummary()}>
      {({ rules, enabledRules, since, notifications }) => {
        const shown = STATUSES.filter((status) => notifications[status] > 0);
        const rulesLink = <Link href={createHref("/alerts")}>{counted(enabledRules, "alert rule")}</Link>;
        return (
          <>
            {enabledRules === 0 ? (
              <Text>
                No alert rule is enabled, so nobody is notified.{" "}
                <Link href={createHref("/alerts")}>{rules === 0 ? "Create a rule" : "Enable a rule"}</Link>
              </Text>
            ) : (
              <Text>
                {rulesLink} {enabledRules === 1 ? "is" : "are"} enabled. Notifications of the last 7 days:
              </Text>
            )}
            <div className={styles.links}>
              {shown.map((status) => (
                <Link key={status} href={createHref("/alerts", { status, start_date: since })}>
                  {notifications[status].toLocaleString()} {DELIVERY_STATUSES[status].toLowerCase()}
                </Link>
              ))}
              {shown.length === 0 && <Text>No notification was sent in the last 7 days.</Text>}
            </div>
            {notifications.failed > 0 && <Failures since={since} />}
          </>
        );
      }}
    </QueryResult>
  );
}

/** The newest notifications that could not be delivered, with the reasons. */
function Failures({ since }: { since: string }) {
  const styles = useStyles();
  const failed = api.useQuery("get", "/alerts/history", {
    params: { query: { status: "failed", start_date: since, limit: MAX_SHOWN_FAILURES } },
  });
  return (
    <QueryResult of={failed}>
      {({ items }) => (
        <ul className={styles.list} aria-label="Notifications that could not be delivered">
          {items.map(({ id, ruleName, error, createdAt }) => (
            <li key={id}>
              <Link href={createHref(`/alerts/history/${id}`)}>
                <bdi>{ruleName}</bdi>
              </Link>
              : {error} (<Instant at={createdAt} relative />)
            </li>
          ))}
        </ul>
      )}
    </QueryResult>
  );
}
