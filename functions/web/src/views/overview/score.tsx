import { Link, Text } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { FailingChecks } from "../../parts/failing-checks.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { ScoreHistory } from "../../parts/score.tsx";
import { useScore } from "../../parts/status-queries.ts";

/** Number of checks on the card. The Compliance page has all. */
const MAX_CHECKS = 5;

/** The card of the Overview page with the compliance score, its history, and the checks that lower it the most. */
export function Score() {
  const breakdown = api.useQuery("get", "/compliance/breakdown");
  return (
    <>
      <QueryResult of={useScore()}>{(score) => <ScoreHistory compliance={score} height={140} />}</QueryResult>
      <QueryResult of={breakdown}>
        {({ checks, evaluatedAt }) => {
          const failing = checks.filter(({ failed }) => failed > 0);
          return failing.length === 0 ? (
            <Text>No failing checks were found.</Text>
          ) : (
            <FailingChecks
              checks={failing.slice(0, MAX_CHECKS)}
              evaluatedAt={evaluatedAt}
              label="Checks that lower the score the most"
            />
          );
        }}
      </QueryResult>
      <Link href={createHref("/compliance")}>Show compliance by check, subscription, owner and framework</Link>
    </>
  );
}
