import { Tooltip } from "@fluentui/react-components";
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from "./time.ts";
import { LOCAL_ZONE, useTimeZone } from "./time-zone.ts";

const formatOf = (timeZone: string) =>
  new Intl.DateTimeFormat(undefined, {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "numeric",
    minute: "2-digit",
    timeZoneName: "short",
    timeZone,
  });
const [LOCAL, UTC] = [formatOf(LOCAL_ZONE), formatOf("UTC")];
const UTC_DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
/** Units of relative times. The first whose length is not longer than the difference is used, such as "in 3 days". */
const UNITS = [
  ["year", 365 * DAY_MS],
  ["month", 30 * DAY_MS],
  ["day", DAY_MS],
  ["hour", HOUR_MS],
  ["minute", MINUTE_MS],
] as const;

/**
 * A point in time in the selected time zone, with the zone's name. A tooltip has the exact time in UTC, and for a relative time
 * also in the selected zone. Null is shown as "never".
 */
export function Instant({ at, relative = false }: { at: string | null; relative?: boolean }) {
  const format = useTimeZone() === "UTC" ? UTC : LOCAL;
  if (at === null) return <>never</>;
  const date = new Date(at);
  // An invalid date is shown as text, so that the rest of the view still renders.
  if (Number.isNaN(date.getTime())) return <>{at}</>;
  const utc = `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return (
    <Tooltip
      content={relative && format === LOCAL && LOCAL_ZONE !== "UTC" ? `${format.format(date)} (${utc})` : utc}
      relationship="description"
    >
      <time dateTime={at}>{relative ? relativeTo(date) : format.format(date)}</time>
    </Tooltip>
  );
}

/**
 * The last day of something that ends at a point in time, such as "Dec 15, 2026 (UTC)". The API stores a date that a user
 * entered as the end of that day, which is midnight of the next one.
 */
export function LastDay({ until }: { until: string }) {
  const date = new Date(until);
  if (Number.isNaN(date.getTime())) return <>{until}</>;
  if (date.getTime() % DAY_MS !== 0) return <Instant at={until} />;
  const lastDay = new Date(date.getTime() - DAY_MS);
  return <time dateTime={lastDay.toISOString().slice(0, 10)}>{UTC_DAY.format(lastDay)} (end of day, UTC)</time>;
}

function relativeTo(date: Date): string {
  const differenceMs = date.getTime() - Date.now();
  const [unit, length] = UNITS.find(([, length]) => Math.abs(differenceMs) >= length) ?? ["second", SECOND_MS];
  return RELATIVE.format(Math.round(differenceMs / length), unit);
}
