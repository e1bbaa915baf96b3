import { Link, makeStyles, mergeClasses, Text, tokens } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { dayText, monthText, weekdayText } from "../../parts/dates.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { DAY_MS } from "../../parts/time.ts";
import { FILTERS, MORE_FILTERS } from "./query.ts";

const useStyles = makeStyles({
  months: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalXXL, alignItems: "flex-start" },
  month: { borderCollapse: "collapse", tableLayout: "fixed", width: "min(322px, 100%)" },
  caption: { textAlign: "start", fontWeight: tokens.fontWeightSemibold, padding: tokens.spacingVerticalXS },
  weekday: {
    fontWeight: tokens.fontWeightRegular,
    color: tokens.colorNeutralForeground3,
    fontSize: tokens.fontSizeBase200,
  },
  day: {
    height: "44px",
    padding: "2px 4px",
    verticalAlign: "top",
    border: `1px solid ${tokens.colorNeutralStroke3}`,
    fontSize: tokens.fontSizeBase200,
  },
  count: { display: "block", fontSize: tokens.fontSizeBase400, fontWeight: tokens.fontWeightSemibold },
  past: { backgroundColor: tokens.colorStatusDangerBackground1 },
  soon: { backgroundColor: tokens.colorStatusWarningBackground1 },
  later: { backgroundColor: tokens.colorNeutralBackground3 },
  today: { outline: `2px solid ${tokens.colorBrandStroke1}`, outlineOffset: "-2px" },
});

/** Days from today that are marked as soon. */
const SOON_DAYS = 7;
/** The period of the API's summary, in days before and after today. */
const [PAST_DAYS, NEXT_DAYS] = [28, 90];
/** The filters of the inventory that the API's summary supports. */
const CALENDAR_FILTERS = [...FILTERS, ...MORE_FILTERS].filter(({ name }) => name === "type" || name === "source");

/** A Monday, for the names of the weekdays. */
const MONDAY = Date.UTC(2026, 0, 5);

/** The expiry calendar: the number of assets that expire on each day of the last four weeks and of the next 90 days. */
export function Calendar() {
  const styles = useStyles();
  const [params] = useSearchParams();
  const query = givenFilters(params, CALENDAR_FILTERS);
  const summary = api.useQuery("get", "/api/assets/summary", { params: { query } });
  return (
    <>
      <Filters of={CALENDAR_FILTERS} />
      <QueryResult of={summary}>
        {({ generatedAt, endsByDay }) => {
          const today = startOfDay(Date.parse(generatedAt));
          const counts = new Map(endsByDay.map((day) => [Date.parse(day.date), countOf(day)]));
          return (
            <>
              <Text>
                {[...counts.values()].every((count) => count === 0)
                  ? "No asset expires in this period. "
                  : "Select a number to list the assets that expire on that day. "}
                Days are in UTC, from {dayText(today - PAST_DAYS * DAY_MS)} to {dayText(today + NEXT_DAYS * DAY_MS)}.
              </Text>
              <div className={styles.months}>
                {monthsOf(today).map((month) => (
                  <Month key={month} start={month} today={today} counts={counts} filters={query} />
                ))}
              </div>
            </>
          );
        }}
      </QueryResult>
    </>
  );
}

const startOfDay = (time: number): number => Math.floor(time / DAY_MS) * DAY_MS;
const countOf = ({ secret, key, certificate }: Schemas["AssetSummary"]["endsByDay"][number]): number =>
  secret + key + certificate;

/** Returns the first days of the months of the period. */
function monthsOf(today: number): number[] {
  const first = new Date(today - PAST_DAYS * DAY_MS);
  const months: number[] = [];
  for (let offset = 0; ; offset++) {
    const month = Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + offset);
    if (month > today + NEXT_DAYS * DAY_MS) return months;
    months.push(month);
  }
}

interface MonthProps {
  /** The first day of the month. */
  start: number;
  today: number;
  /** Number of assets by day. */
  counts: ReadonlyMap<number, number>;
  /** Filters of the calendar, which links to the list keep. */
  filters: Record<string, string>;
}

function Month({ start, today, counts, filters }: MonthProps) {
  const styles = useStyles();
  const date = new Date(start);
  const end = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
  // Weeks start on Monday.
  const firstMonday = start - ((date.getUTCDay() + 6) % 7) * DAY_MS;
  const weeks = Array.from(
    { length: Math.ceil((end - firstMonday) / (7 * DAY_MS)) },
    (_, week) => firstMonday + week * 7 * DAY_MS,
  );
  return (
    <table className={styles.month}>
      <caption className={styles.caption}>{monthText(start)}</caption>
      <thead>
        <tr>
          {days(MONDAY).map((day) => (
            <th key={day} scope="col" className={styles.weekday}>
              {weekdayText(day)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {weeks.map((week) => (
          <tr key={week}>
            {days(week).map((day) =>
              day < start || day >= end ? (
                <td key={day} />
              ) : (
                <Day key={day} day={day} today={today} count={counts.get(day) ?? 0} filters={filters} />
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Returns the seven days of a week. */
const days = (monday: number): number[] => Array.from({ length: 7 }, (_, weekday) => monday + weekday * DAY_MS);

function Day({ day, today, count, filters }: { day: number; count: number } & Pick<MonthProps, "today" | "filters">) {
  const styles = useStyles();
  const color = day < today ? styles.past : day < today + SOON_DAYS * DAY_MS ? styles.soon : styles.later;
  return (
    <td className={mergeClasses(styles.day, count > 0 && color, day === today && styles.today)}>
      {new Date(day).getUTCDate()}
      {count > 0 && (
        <Link
          className={styles.count}
          aria-label={`${dayText(day)}: ${counted(count, "asset")}`}
          href={createHref("/inventory", {
            ...filters,
            // Only assets that totals include, like the summary.
            counted: "true",
            // `expiresAfter` excludes its own time, so it is one millisecond before the day.
            expiresAfter: new Date(day - 1).toISOString(),
            expiresBefore: new Date(day + DAY_MS).toISOString(),
          })}
        >
          {count.toLocaleString()}
        </Link>
      )}
    </td>
  );
}
