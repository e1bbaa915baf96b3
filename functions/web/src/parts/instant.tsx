import { Tooltip } from "@fluentui/react-components";
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from "./time.ts";

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
/** Units of relative times. The first whose length is not longer than the difference is used, such as "in 3 days". */
const UNITS = [
  ["year", 365 * DAY_MS],
  ["month", 30 * DAY_MS],
  ["day", DAY_MS],
  ["hour", HOUR_MS],
  ["minute", MINUTE_MS],
] as const;

/** A point in time in the user's time zone, with UTC in a tooltip. Null is shown as "never". */
export function Instant({ at, relative = false }: { at: string | null; relative?: boolean }) {
  if (at === null) return <>never</>;
  const date = new Date(at);
  // An invalid date is shown as text, so that the rest of the view still renders.
  if (Number.isNaN(date.getTime())) return <>{at}</>;
  return (
    <Tooltip content={`${date.toISOString().slice(0, 19).replace("T", " ")} UTC`} relationship="description">
      <time dateTime={at}>{relative ? relativeTo(date) : LOCAL.format(date)}</time>
    </Tooltip>
  );
}

function relativeTo(date: Date): string {
  const differenceMs = date.getTime() - Date.now();
  const [unit, length] = UNITS.find(([, length]) => Math.abs(differenceMs) >= length) ?? ["second", SECOND_MS];
  return RELATIVE.format(Math.round(differenceMs / length), unit);
}
