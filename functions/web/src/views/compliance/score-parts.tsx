import { Button, Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { type ReactNode, useState } from "react";
import { api } from "../../api/client.ts";
import { Bar, type BarColor } from "../../parts/bar.tsx";
import { FailingChecks } from "../../parts/failing-checks.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { scoreColor, violationsHref } from "../../parts/score.tsx";

const useBreakdown = () => api.useQuery("get", "/compliance/breakdown");

/** Number of rows that a card shows before "Show all". */
const MAX_SHOWN = 6;

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  // The number moves below a long name, so that the name does not break within a word.
  row: { display: "flex", flexWrap: "wrap", justifyContent: "space-between", columnGap: tokens.spacingHorizontalM },
  name: { minWidth: 0, overflowWrap: "anywhere" },
  number: { flexShrink: 0 },
});

/** The card with all failing checks, those that lower the score the most first. */
export function AllFailingChecks() {
  return (
    <QueryResult of={useBreakdown()}>
      {({ checks, evaluatedAt }) => {
        const failing = checks.filter(({ failed }) => failed > 0);
        if (failing.length === 0) return <Text>No failing checks were found.</Text>;
        return (
          <ShowAll items={failing} noun="failing check">
            {(shown) => (
              <FailingChecks
                checks={shown}
                evaluatedAt={evaluatedAt}
                label="Failing checks, those that lower the score the most first"
              />
            )}
          </ShowAll>
        );
      }}
    </QueryResult>
  );
}

/** The card with the score of each subscription, lowest first. */
export function BySubscription() {
  return (
    <QueryResult of={useBreakdown()}>
      {({ subscriptions }) =>
        subscriptions.length === 0 ? (
          <Text>No subscription was evaluated yet. Start a scan on the Overview page.</Text>
        ) : (
          <>
            {subscriptions.some(({ subscriptionId }) => subscriptionId === null) && (
              <Text size={200}>Rows without a link are credentials that belong to no subscription.</Text>
            )}
            <ShowAll items={subscriptions} noun="row">
              {(shown) => (
                <Bars
                  label="Score by subscription"
                  rows={shown.map(({ subscriptionId, name, score, failed }) => ({
                    key: subscriptionId ?? name,
                    name,
                    share: score / 100,
                    color: scoreColor(score),
                    text: `Score ${score}`,
                    count: failed,
                    // Credentials outside of key vaults have no subscription, so no filter of the list selects them.
                    ...(subscriptionId !== null && { href: violationsHref({ subscription: subscriptionId }) }),
                  }))}
                />
              )}
            </ShowAll>
          </>
        )
      }
    </QueryResult>
  );
}

/** A row of a bar list. `share`: length of its bar, 0 to 1. */
interface BarRow {
  key: string;
  name: string;
  share: number;
  color?: BarColor;
  /** Text of the bar, such as "Score 92". */
  text: string;
  /** Number of violations, and the link to their list. */
  count: number;
  href?: string;
}

/** A list with a bar for each row. */
export function Bars({ rows, label }: { rows: BarRow[]; label: string }) {
  const styles = useStyles();
  return (
    <ul className={styles.list} aria-label={label}>
      {rows.map(({ key, name, share, color = "neutral", text, count, href }) => (
        <li key={key}>
          <div className={styles.row}>
            <bdi className={styles.name}>{name}</bdi>
            <span className={styles.number}>
              {text}
              {text === "" ? "" : ", "}
              {href === undefined ? (
                counted(count, "violation")
              ) : (
                <Link href={href}>{counted(count, "violation")}</Link>
              )}
            </span>
          </div>
          <Bar share={share} color={color} />
        </li>
      ))}
    </ul>
  );
}

/** The first items of a list, and a button that shows all. */
export function ShowAll<T>({
  items,
  noun,
  children,
}: {
  items: readonly T[];
  noun: string;
  children(shown: T[]): ReactNode;
}) {
  const [isExpanded, setExpanded] = useState(false);
  return (
    <>
      {children(isExpanded ? [...items] : items.slice(0, MAX_SHOWN))}
      {items.length > MAX_SHOWN && (
        <div>
          <Button size="small" onClick={() => setExpanded(!isExpanded)}>
            {isExpanded ? "Show fewer" : `Show all ${counted(items.length, noun)}`}
          </Button>
        </div>
      )}
    </>
  );
}
