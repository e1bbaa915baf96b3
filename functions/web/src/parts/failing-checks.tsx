import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { Instant } from "./instant.tsx";
import { counted } from "./plural.ts";
import { violationsHref } from "./score.tsx";
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
  return (
    <>
      <Text size={200}>
        In the order of their effect on the score: the number of violations, weighted by severity. Evaluated{" "}
        <Instant at={evaluatedAt} relative />.
        {checks.some(({ title }) => title.endsWith("threshold")) &&
          " The critical and the warning threshold in titles are numbers of days before expiry: 7 and 30 unless the settings differ. They are not severities."}
      </Text>
      <ul className={styles.list} aria-label={label}>
        {checks.map(({ id, title, severity, failed }) => (
          <li key={id} className={styles.item}>
            <span>
              <SeverityBadge severity={severity} />
            </span>
            <span>
              {title}: <Link href={violationsHref({ check: id })}>{counted(failed, "violation")}</Link>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}
