import { makeStyles, tokens } from "@fluentui/react-components";
import { dayText, exactText, relativeText, timeText } from "./dates.ts";
import { DAY_MS } from "./time.ts";
import { LOCAL_ZONE, useTimeZone } from "./time-zone.ts";

/**
 * A point in time in the selected time zone, with the zone's name. A tooltip has the exact time in UTC, and for a relative time
 * also in the selected zone. Null is shown as "never".
 */
export function Instant({ at, relative = false }: { at: string | null; relative?: boolean }) {
  const zone = useTimeZone();
  if (at === null) return <>never</>;
  const date = new Date(at);
  // An invalid date is shown as text, so that the rest of the view still renders.
  if (Number.isNaN(date.getTime())) return <>{at}</>;
  const utc = exactText(date);
  return (
    // The tooltip is the browser's own, because Fluent UI renders tooltips outside of all landmarks of the page.
    <time
      dateTime={at}
      title={relative && zone !== "UTC" && LOCAL_ZONE !== "UTC" ? `${timeText(date, zone)} (${utc})` : utc}
    >
      {relative ? relativeText(date) : timeText(date, zone)}
    </time>
  );
}

const useStyles = makeStyles({ past: { color: tokens.colorPaletteRedForeground1 } });

/** The expiry of something in a table, relative to now. In the past, it is red: "Expired 4 months ago". Null: "Never". */
export function Expiry({ at }: { at: string | null }) {
  const { past } = useStyles();
  if (at === null) return <>Never</>;
  const when = <Instant at={at} relative />;
  return Date.parse(at) < Date.now() ? <span className={past}>Expired {when}</span> : when;
}

/**
 * The last day of something that ends at a point in time, such as "Dec 15, 2026 (end of day, UTC)". The API stores a date that a
 * user entered as the end of that day, which is midnight of the next one.
 */
export function LastDay({ until }: { until: string }) {
  const date = new Date(until);
  if (Number.isNaN(date.getTime())) return <>{until}</>;
  if (date.getTime() % DAY_MS !== 0) return <Instant at={until} />;
  const lastDay = new Date(date.getTime() - DAY_MS);
  return <time dateTime={lastDay.toISOString().slice(0, 10)}>{dayText(lastDay.getTime())} (end of day, UTC)</time>;
}

/** A time in a sentence of the API, such as "2026-11-26T13:14:05Z" or "2026-11-26 13:14 UTC". */
const API_TIME = /(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| UTC))/;

/** A sentence of the API. Times in it are shown in the page's style and zone. */
export const ApiSentence = ({ text }: { text: string }) =>
  text.split(API_TIME).map((part, index) =>
    index % 2 === 1 ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other identity.
      <Instant key={index} at={part.replace(" UTC", "Z").replace(" ", "T")} />
    ) : (
      part
    ),
  );
