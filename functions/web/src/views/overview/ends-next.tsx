import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { assetName } from "../../parts/asset-name.ts";
import { Bars } from "../../parts/charts.tsx";
import { Instant } from "../../parts/instant.tsx";
import { navigate } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { DAY_MS } from "../../parts/time.ts";
import { useIsNarrow } from "../../parts/width.ts";
import { useSummary } from "./summary.ts";

/** The summary counts these days of UTC one by one. */
const PAST_DAYS = 28;
const NEXT_DAYS = 90;

const TYPES = [
  { type: "secret", legend: "Secrets", color: tokens.colorPaletteBlueBorderActive },
  { type: "key", legend: "Keys", color: tokens.colorPaletteMarigoldBorderActive },
  { type: "certificate", legend: "Certificates", color: tokens.colorPaletteGreenBorderActive },
] as const;

/** As much as there is room for. */
const CUT = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap", unicodeBidi: "isolate" } as const;

const useStyles = makeStyles({
  list: {
    display: "grid",
    gridTemplateColumns: "repeat(auto-fill, minmax(min(100%, 340px), 1fr))",
    columnGap: tokens.spacingHorizontalXXL,
    rowGap: tokens.spacingVerticalS,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  item: { display: "flex", gap: tokens.spacingHorizontalS, alignItems: "center", minWidth: 0 },
  name: { ...CUT, flexShrink: 1, minWidth: "96px" },
  // On a phone there is room for its first letter, which says nothing: it is there for screen readers alone.
  vault: {
    ...CUT,
    flex: "1 3 0",
    minWidth: 0,
    "@media (max-width: 479px)": { position: "absolute", width: "1px", height: "1px", clipPath: "inset(50%)" },
  },
  when: { flexShrink: 0, marginLeft: "auto" },
});

/** A timeline of what ended in the last weeks and what ends in the next, and the first of these by name. */
export function EndsNext() {
  const styles = useStyles();
  return (
    <Answer of={useSummary()}>
      {({ generatedAt, endsByDay, endsNext }) => (
        <>
          <Timeline days={endsByDay} today={Math.floor(Date.parse(generatedAt) / DAY_MS) * DAY_MS} />
          <ul className={styles.list} aria-label="The first that end">
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
                <span className={styles.vault}>{asset.vaultName}</span>
                <span className={styles.when}>
                  <Instant at={asset.expiresOn} relative />
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Answer>
  );
}

/** @param today - When it began, in milliseconds. */
function Timeline({ days, today }: { days: Schemas["AssetSummary"]["endsByDay"]; today: number }) {
  const first = today - PAST_DAYS * DAY_MS;
  // A bar a week, on a narrow screen a bar in four.
  const length = useIsNarrow() ? 28 : 7;
  const spans = Array.from({ length: Math.ceil((PAST_DAYS + NEXT_DAYS + 1) / length) }, (_, span) => {
    const begins = first + span * length * DAY_MS;
    const ends = Math.min(begins + length * DAY_MS, today + (NEXT_DAYS + 1) * DAY_MS);
    return { begins, ends, within: days.filter(({ date }) => Date.parse(date) >= begins && Date.parse(date) < ends) };
  });
  const count = (of: typeof days) => of.reduce((sum, one) => sum + one.secret + one.key + one.certificate, 0);
  const past = count(days.filter(({ date }) => Date.parse(date) < today));
  const next = count(days) - past;
  const list = (from: number, until: number) => ({
    sort: "expiresOn",
    // As the summary does.
    counted: "true",
    // The filter leaves out what ends at that very instant.
    expiresAfter: new Date(from - 1).toISOString(),
    expiresBefore: new Date(until).toISOString(),
  });
  return (
    <>
      <Bars
        data={spans.map(({ begins, ends, within }) => ({
          xAxisPoint: begins === today ? "Today" : DATE.format(begins),
          xAxisCalloutData: `${DATE.format(begins)} to ${DATE.format(ends - DAY_MS)}`,
          chartData: TYPES.map(({ type, legend, color }) => ({
            legend,
            color,
            data: within.reduce((sum, one) => sum + one[type], 0),
          })),
          onClick: () => navigate(createHref("/inventory", list(begins, ends)).slice(1)),
        }))}
        chartTitle={`${past} ended in the last ${PAST_DAYS} days, ${next} end from today until in ${NEXT_DAYS} days, by date and type`}
        height={220}
        barWidth="auto"
        enableReflow
        roundCorners
      />
      <Text>
        <Link href={createHref("/inventory", list(first, today))}>{past.toLocaleString()} ended</Link> in the last{" "}
        {PAST_DAYS} days,{" "}
        <Link href={createHref("/inventory", list(today, today + (NEXT_DAYS + 1) * DAY_MS))}>
          {next.toLocaleString()} end
        </Link>{" "}
        from today until in {NEXT_DAYS} days.
      </Text>
    </>
  );
}

/** The days are those of UTC. */
const DATE = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
