import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { DAY_MS } from "../../parts/time.ts";

const MAX_SHOWN_FAILURES = 5;
/** Only failures of this many last days are shown. */
const DAYS = 7;

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalS,
    margin: 0,
    paddingInlineStart: tokens.spacingHorizontalXL,
    overflowWrap: "anywhere",
  },
});

/** The card of the Overview page with the alerts of the last seven days that could not be delivered, and the reasons. */
export function AlertFailures() {
  const styles = useStyles();
  // Rounded to the day, so that the query key stays the same.
  const since = new Date(Date.now() - DAYS * DAY_MS).toISOString().slice(0, 10);
  const failed = api.useQuery("get", "/alerts/history", {
    params: { query: { status: "failed", start_date: since, limit: MAX_SHOWN_FAILURES } },
  });
  return (
    <QueryResult of={failed}>
      {({ items, nextCursor }) =>
        items.length === 0 ? (
          <Text>All notifications of the last {DAYS} days were delivered, or there were none.</Text>
        ) : (
          <>
            <ul className={styles.list}>
              {items.map(({ id, ruleName, error, createdAt }) => (
                <li key={id}>
                  <Link href={createHref(`/alerts/history/${id}`)}>
                    <bdi>{ruleName}</bdi>
                  </Link>
                  : {error} (<Instant at={createdAt} relative />)
                </li>
              ))}
            </ul>
            {nextCursor !== null && <Link href={createHref("/alerts")}>Show all sent notifications</Link>}
          </>
        )
      }
    </QueryResult>
  );
}
