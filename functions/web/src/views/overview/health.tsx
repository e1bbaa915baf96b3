import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { createHref } from "../../parts/address.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useExpiryThresholds } from "../../parts/setting-value.ts";
import { STATUS_TEXTS, STATUSES } from "../../parts/status.tsx";
import { useCoverage, vaultNoun } from "../../parts/status-queries.ts";
import { useSummary } from "./summary.ts";

/** Color of each status in the bars and in the legend. */
const COLORS = {
  expired: tokens.colorPaletteRedBackground3,
  critical: tokens.colorPaletteDarkOrangeBorderActive,
  warning: tokens.colorPaletteMarigoldBorderActive,
  healthy: tokens.colorPaletteGreenBackground3,
};
const TYPES = [
  ["secret", "Secrets"],
  ["key", "Keys"],
  ["certificate", "Certificates"],
] as const;

const useStyles = makeStyles({
  bar: { display: "flex", gap: "2px", height: "12px", borderRadius: tokens.borderRadiusMedium, overflow: "hidden" },
  // Small counts stay visible.
  part: { minWidth: "4px" },
  title: { display: "flex", justifyContent: "space-between" },
  links: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalL, lineHeight: "24px" },
  swatch: {
    display: "inline-block",
    width: "12px",
    height: "12px",
    marginInlineEnd: tokens.spacingHorizontalXS,
    borderRadius: tokens.borderRadiusSmall,
  },
});

/**
 * The card of the Overview page with the numbers of assets by type and status. The filter `counted` of the links selects the
 * assets that these numbers include.
 */
export function Health() {
  const styles = useStyles();
  const { data: coverage } = useCoverage();
  const days = useExpiryThresholds();
  return (
    <QueryResult of={useSummary()}>
      {({ assets, byStatus, byType, byTypeAndStatus, vaults, owners }) =>
        assets === 0 && coverage?.complete === false ? (
          <Text>No assets were read yet. The first line of this page names the reason.</Text>
        ) : (
          <>
            <Text size={800} weight="semibold">
              {assets.toLocaleString()}
            </Text>
            <Text>
              <Link href={createHref("/inventory", { counted: "true" })}>secrets, keys and certificates</Link> (assets),{" "}
              <Link href={createHref("/inventory", { hasOwner: "false", counted: "true" })}>
                {owners.none.toLocaleString()} of them without an owner
              </Link>
              , in{" "}
              <Link href={createHref("/vaults")}>
                {counted(vaults.total, coverage ? vaultNoun(coverage) : "vault")}
              </Link>{" "}
              {coverage && coverage.vaults.read < coverage.vaults.total
                ? `(${coverage.vaults.read.toLocaleString()} of them read completely) `
                : ""}
              and directories.
            </Text>
            {TYPES.filter(([type]) => byType[type] > 0).map(([type, title]) => (
              <div key={type}>
                <div className={styles.title}>
                  <Link href={createHref("/inventory", { type, counted: "true" })}>{title}</Link>
                  <Text weight="semibold">{byType[type].toLocaleString()}</Text>
                </div>
                <div
                  className={styles.bar}
                  role="img"
                  aria-label={`${title}: ${STATUSES.map((status) => `${byTypeAndStatus[type][status]} ${STATUS_TEXTS[status]}`).join(", ")}`}
                >
                  {STATUSES.filter((status) => byTypeAndStatus[type][status] > 0).map((status) => (
                    <div
                      key={status}
                      className={styles.part}
                      style={{ flexGrow: byTypeAndStatus[type][status], backgroundColor: COLORS[status] }}
                    />
                  ))}
                </div>
              </div>
            ))}
            <div className={styles.links}>
              {STATUSES.map((status) => (
                <span key={status}>
                  <span className={styles.swatch} style={{ backgroundColor: COLORS[status] }} />
                  <Link href={createHref("/inventory", { status, counted: "true" })}>
                    {byStatus[status].toLocaleString()} {STATUS_TEXTS[status]}
                  </Link>
                </span>
              ))}
            </div>
            <Text size={200}>
              {days
                ? `Urgent: expires within ${counted(days.critical, "day")}. Warning: within ${counted(days.warning, "day")}.`
                : "Urgent and warning: expires within the days that are set under Compliance in Settings."}{" "}
              Healthy: expires later or never. Certificates with a renewer have these statuses by how late their renewal
              is, so the numbers can differ from those of assets that expire within these days.
            </Text>
          </>
        )
      }
    </QueryResult>
  );
}
