import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { assetName, vaultOrTenant } from "../../parts/asset-name.ts";
import { Bars } from "../../parts/charts.tsx";
import { daysText } from "../../parts/dates.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { navigate } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { DAY_MS } from "../../parts/time.ts";
import { useIsNarrow } from "../../parts/width.ts";
import { useSummary } from "./summary.ts";

/** The summary contains counts per UTC day for this many past and future days. */
const PAST_DAYS = 28;
const NEXT_DAYS = 90;

/** The types of assets, stacked in each bar from the first to the last. */
const TYPES = [
  { type: "secret", legend: "Secrets", color: tokens.colorPaletteBlueBorderActive },
  { type: "key", legend: "Keys", color: tokens.colorPaletteMarigoldBorderActive },
  { type: "certificate", legend: "Certificates", color: tokens.colorPaletteGreenBorderActive },
] as const;

/** Text that is truncated to the available width. */
const TRUNCATED = {
  overflow: "hidden",
  textOverflow: "ellipsis",
  whiteSpace: "nowrap",
  unicodeBidi: "isolate",
} as const;

const useStyles = makeStyles({
  list: {
    display: "grid",
    gridTemplateColumns: "repeat(auto-fill, minmax(min(100%, 440px), 1fr))",
    columnGap: tokens.spacingHorizontalXXL,
    rowGap: tokens.spacingVerticalS,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  item: {
    display: "flex",
    gap: tokens.spacingHorizontalS,
    alignItems: "center",
    minWidth: 0,
    // On a phone: status, name and time in the first line, vault and owner in the second and third.
    "@media (max-width: 479px)": { flexWrap: "wrap", rowGap: 0 },
  },
  name: { ...TRUNCATED, flexShrink: 1, minWidth: "96px", "@media (max-width: 479px)": { flex: "1 1 0" } },
  vault: { ...TRUNCATED, flex: "1 3 0", minWidth: 0, "@media (max-width: 479px)": { flex: "1 0 100%", order: 1 } },
  owner: {
    ...TRUNCATED,
    flex: "1 2 0",
    minWidth: "64px",
    color: tokens.colorNeutralForeground3,
    "@media (max-width: 479px)": { flex: "1 0 100%", order: 1 },
  },
  when: { flexShrink: 0, marginLeft: "auto" },
});

/** The first card of the Overview page: a chart of assets by expiry date, and a list of the first ones to expire. */
export function ExpiringSoon() {
  const styles = useStyles();
  return (
    <QueryResult of={useSummary()}>
      {({ generatedAt, endsByDay, endsNext }) => (
        <>
          <Timeline days={endsByDay} today={Math.floor(Date.parse(generatedAt) / DAY_MS) * DAY_MS} />
          <ul className={styles.list} aria-label="Next to expire">
            {endsNext.map((asset) => (
              <li key={asset.id} className={styles.item}>
                <StatusBadge status={asset.status} />
                <Link
                  className={styles.name}
                  href={createHref(`/inventory/${encodeURIComponent(asset.id)}`)}
                  title={assetName(asset)}
                >
                  {assetName(asset)}
                </Link>
                <span className={styles.vault} title={vaultOrTenant(asset)}>
                  {vaultOrTenant(asset)}
                </span>
                <span className={styles.owner}>
                  {asset.owner === null ? "no owner" : <span title={asset.owner}>{asset.owner}</span>}
                </span>
                <span className={styles.when}>
                  <Instant at={asset.expiresOn} relative />
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </QueryResult>
  );
}

/**
 * The bar chart of the card, and the totals of both halves of its period.
 *
 * @param today - Start of the current UTC day, Unix milliseconds.
 */
function Timeline({ days, today }: { days: Schemas["AssetSummary"]["endsByDay"]; today: number }) {
  const first = today - PAST_DAYS * DAY_MS;
  // A narrow screen has room for one past and five future weeks. The text below the chart counts the whole period there too.
  const [pastWeeks, nextWeeks] = useIsNarrow() ? [1, 5] : [PAST_DAYS / 7, Math.ceil((NEXT_DAYS + 1) / 7)];
  // The period includes today. The last bar can be shorter than the others.
  const spans = Array.from({ length: pastWeeks + nextWeeks }, (_, span) => {
    const start = today + (span - pastWeeks) * 7 * DAY_MS;
    const end = Math.min(start + 7 * DAY_MS, today + (NEXT_DAYS + 1) * DAY_MS);
    return { start, end, spanDays: days.filter(({ date }) => Date.parse(date) >= start && Date.parse(date) < end) };
  });
  /** Returns the number of assets that expire on the given days. */
  const count = (someDays: typeof days) =>
    someDays.reduce((sum, day) => sum + day.secret + day.key + day.certificate, 0);
  const past = count(days.filter(({ date }) => Date.parse(date) < today));
  /** Today counts as a future day. */
  const next = count(days) - past;
  /** The filters of the inventory for assets that expire in a period. */
  const inventoryFilters = (from: number, until: number) => ({
    sort: "expiresOn",
    // Only assets that totals include, like the summary.
    counted: "true",
    // The filter excludes the boundary itself.
    expiresAfter: new Date(from - 1).toISOString(),
    expiresBefore: new Date(until).toISOString(),
  });
  return (
    <>
      <Text size={200}>
        Number of secrets, keys and certificates by expiry date, per week (UTC). Select a bar to list them.
      </Text>
      <Bars
        data={spans.map(({ start, end, spanDays }) => ({
          xAxisPoint: daysText(start, end - DAY_MS),
          xAxisCalloutData: daysText(start, end - DAY_MS),
          chartData: TYPES.map(({ type, legend, color }) => ({
            legend,
            color,
            data: spanDays.reduce((sum, day) => sum + day[type], 0),
          })),
          onClick: () => navigate(createHref("/inventory", inventoryFilters(start, end)).slice(1)),
        }))}
        chartTitle={`Assets by expiry date and type, per week: ${past} expired in the last ${PAST_DAYS} days, ${next} expire in the next ${NEXT_DAYS} days`}
        height={220}
        barWidth="auto"
        enableReflow
        roundCorners
      />
      <Text>
        <Link href={createHref("/inventory", inventoryFilters(first, today))}>{past.toLocaleString()} expired</Link> in
        the last {PAST_DAYS} days,{" "}
        <Link href={createHref("/inventory", inventoryFilters(today, today + (NEXT_DAYS + 1) * DAY_MS))}>
          {next.toLocaleString()} expire
        </Link>{" "}
        in the next {NEXT_DAYS} days.
      </Text>
    </>
  );
}
