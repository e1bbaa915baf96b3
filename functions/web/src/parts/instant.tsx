import { Tooltip } from "@fluentui/react-components";

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const UNITS = [
  ["year", 365 * 86_400],
  ["month", 30 * 86_400],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
] as const;

/** An instant in the reader's own time zone; in UTC when pointed at. */
export function Instant({ at, relative = false }: { at: string | null; relative?: boolean }) {
  if (at === null) return <>never</>;
  const date = new Date(at);
  // What is none is shown as it came: it takes nothing else of the view away.
  if (Number.isNaN(date.getTime())) return <>{at}</>;
  return (
    <Tooltip content={`${date.toISOString().slice(0, 19).replace("T", " ")} UTC`} relationship="description">
      <time dateTime={at}>{relative ? relativeTo(date) : LOCAL.format(date)}</time>
    </Tooltip>
  );
}

function relativeTo(date: Date): string {
  const seconds = (date.getTime() - Date.now()) / 1000;
  const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ["second", 1];
  return RELATIVE.format(Math.round(seconds / length), unit);
}
