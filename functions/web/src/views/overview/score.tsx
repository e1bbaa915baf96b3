import { Text, tokens } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { Line } from "../../parts/charts.tsx";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

/** The card of the Overview page with the compliance score and its history over 90 days. */
export function Score() {
  const query = api.useQuery("get", "/compliance/score", { params: { query: { history: 90 } } });
  return (
    <QueryResult of={query}>
      {({ score, bySeverity, evaluatedAt, history = [] }) => (
        <>
          <Text size={800} weight="semibold">
            {score} of 100
          </Text>
          <Text>Compliance score. 100 means that no check fails.</Text>
          <Text>
            {bySeverity.critical} critical, {bySeverity.high} high, {bySeverity.medium} medium and {bySeverity.low} low
            violations. Evaluated <Instant at={evaluatedAt} relative />.
          </Text>
          {/* One day alone makes no line. */}
          {history.length > 1 && (
            <Line
              height={160}
              yMinValue={0}
              yMaxValue={100}
              hideLegend
              data={{
                chartTitle: "Compliance score by day",
                lineChartData: [
                  {
                    legend: "Score",
                    color: tokens.colorBrandBackground,
                    data: history.map(({ date, score }) => ({ x: new Date(date), y: score })),
                  },
                ],
              }}
            />
          )}
        </>
      )}
    </QueryResult>
  );
}
