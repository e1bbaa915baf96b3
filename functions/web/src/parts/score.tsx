import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import type { BarColor } from "./bar.tsx";
import { Line } from "./charts.tsx";
import { Instant } from "./instant.tsx";
import { SEVERITIES, SeverityBadge } from "./status.tsx";

const useStyles = makeStyles({
  links: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, lineHeight: "24px" },
});

/** Returns the link to the list of violations without an exemption, with further filters. */
export const violationsHref = (filters: Record<string, string> = {}): string =>
  createHref("/compliance", { exempted: "false", ...filters });

/** Returns the color of a bar for a score. */
export const scoreColor = (score: number): BarColor => (score >= 90 ? "good" : score >= 70 ? "medium" : "bad");

/** The compliance score with its history and the numbers of violations, on the Overview and Compliance pages. */
export function ScoreHistory({
  compliance: { score, bySeverity, evaluatedAt, history = [] },
  height,
}: {
  compliance: Schemas["ComplianceScore"];
  height: number;
}) {
  const styles = useStyles();
  // Before the first evaluation, the API returns a score of 100.
  if (evaluatedAt === null) return <Text>Not evaluated yet. A scan evaluates every asset that it reads.</Text>;
  return (
    <>
      <Text size={800} weight="semibold">
        {score} of 100
      </Text>
      <Text>
        100 means that no check fails. Evaluated <Instant at={evaluatedAt} relative />.
      </Text>
      <div className={styles.links}>
        <Text>Violations by severity:</Text>
        {SEVERITIES.map((severity) => (
          <span key={severity}>
            <Link href={violationsHref({ severity })}>{bySeverity[severity].toLocaleString()}</Link>{" "}
            <SeverityBadge severity={severity} />
          </span>
        ))}
      </div>
      {history.length > 1 ? (
        <Line
          height={height}
          yMinValue={0}
          yMaxValue={100}
          hideLegend
          data={{
            chartTitle: `Compliance score of the last ${history.length} days with a score, now ${score}`,
            lineChartData: [
              {
                legend: "Score",
                color: tokens.colorBrandBackground,
                data: history.map(({ date, score }) => ({ x: new Date(date), y: score })),
              },
            ],
          }}
        />
      ) : (
        <Text size={200}>The history appears here from the second day on.</Text>
      )}
    </>
  );
}
