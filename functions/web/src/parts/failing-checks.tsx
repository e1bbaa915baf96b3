import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { Instant } from "./instant.tsx";
import { counted } from "./plural.ts";
import { violationsHref } from "./score.tsx";
import { type ExpiryThresholds, useExpiryThresholds } from "./setting-value.ts";
import { SeverityBadge } from "./status.tsx";

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalS,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  // As wide as the longest severity, so that the titles start below each other.
  item: { display: "grid", gridTemplateColumns: "64px minmax(0, 1fr)", columnGap: tokens.spacingHorizontalS },
});

/** Returns the title of a check with the days of the settings, such as "within 7 days" for "within the critical threshold". */
const withDays = (title: string, thresholds: ExpiryThresholds | undefined): string =>
  title.replace(/the (critical|warning) threshold$/, (text, name: keyof ExpiryThresholds) =>
    thresholds ? counted(thresholds[name], "day") : text,
  );

/** A list of failing checks in the order of the API, each with a link to its violations, on the Overview and Compliance pages. */
export function FailingChecks({
  checks,
  evaluatedAt,
  label,
}: {
  checks: Schemas["ComplianceBreakdown"]["checks"];
  evaluatedAt: string | null;
  label: string;
}) {
  const styles = useStyles();
  const thresholds = useExpiryThresholds();
  return (
    <>
      <Text size={200}>
        In the order of their effect on the score: the number of violations, weighted by severity. Evaluated{" "}
        <Instant at={evaluatedAt} relative />.
      </Text>
      <ul className={styles.list} aria-label={label}>
        {checks.map(({ id, title, severity, failed }) => (
          <li key={id} className={styles.item}>
            <span>
              <SeverityBadge severity={severity} />
            </span>
            <span>
              {withDays(title, thresholds)}:{" "}
              <Link href={violationsHref({ check: id })}>{counted(failed, "violation")}</Link>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}
