/**
 * Parser of NCRONTAB schedules, compatible with `NCrontab.Signed` 3.3 of the timer trigger: five fields, or six with seconds
 * first. If both day of month and day of week are given, both must match. `L`, `W`, `#`, `?`, `@daily` and 7 for Sunday are not
 * supported. The expected results of that library are in test/vectors/ncrontab.json.
 */

const MONTHS = "january february march april may june july august september october november december".split(" ");
const DAYS = "sunday monday tuesday wednesday thursday friday saturday".split(" ");

/** Some dates (29 February on a Monday) occur once in 28 years, or once in 40 years around 2100, which is no leap year. */
const SEARCH_YEARS = 40;

/** Allowed values of one field, for example 1 to 12 and the names of months. */
interface Field {
  min: number;
  max: number;
  names?: readonly string[];
}

const SECOND: Field = { min: 0, max: 59 };
const MINUTE: Field = { min: 0, max: 59 };
const HOUR: Field = { min: 0, max: 23 };
const DAY: Field = { min: 1, max: 31 };
const MONTH: Field = { min: 1, max: 12, names: MONTHS };
const WEEKDAY: Field = { min: 0, max: 6, names: DAYS };

export interface Crontab {
  /** Returns the first occurrence strictly after `base` (UTC). Undefined if there is none within 40 years. */
  next(base: Date): Date | undefined;
}

/**
 * Parses a schedule.
 * @throws Error that names the invalid part
 */
export function parseCrontab(expression: string): Crontab {
  const parts = expression.split(/\s+/).filter((part) => part !== "");
  if (parts.length !== 5 && parts.length !== 6)
    throw new Error(`"${expression}" has ${parts.length} fields, not 5 or 6`);
  const texts = parts.length === 6 ? parts : ["0", ...parts];
  const [seconds, minutes, hours, days, months, weekdays] = [SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY].map(
    (field, index) => parseField(texts[index]!, field),
  ) as [number[], number[], number[], number[], number[], number[]];
  const fields = { seconds, minutes, hours, days, months, weekdays: new Set(weekdays) };
  return { next: (base) => nextOccurrence(fields, base) };
}

function parseField(text: string, field: Field): number[] {
  const values = new Set<number>();
  for (const item of text.split(",")) {
    const [range, step, ...furtherSteps] = item.split("/") as [string, string?, ...string[]];
    if (furtherSteps.length > 0) throw new Error(`"${item}" has two steps`);
    // A step of 0 counts as 1.
    const stepSize = step === undefined ? 1 : Math.max(1, parseNumber(step));
    const [from, to] = parseRange(range, step !== undefined, field);
    for (let value = from; value <= to; value += stepSize) values.add(value);
  }
  return [...values].sort((a, b) => a - b);
}

function parseRange(text: string, stepped: boolean, field: Field): [number, number] {
  if (text === "*") return [field.min, field.max];
  const dash = text.indexOf("-");
  if (dash > 0) {
    const first = parseValue(text.slice(0, dash), field);
    const last = parseValue(text.slice(dash + 1), field);
    // Reversed ranges are swapped: `22-2` is `2-22` and does not wrap around midnight.
    return first <= last ? [first, last] : [last, first];
  }
  const value = parseValue(text, field);
  return [value, stepped ? field.max : value];
}

function parseValue(text: string, { min, max, names }: Field): number {
  if (names !== undefined && !/^\d/.test(text)) {
    const index = text === "" ? -1 : names.findIndex((name) => name.startsWith(text.toLowerCase()));
    if (index === -1) throw new Error(`"${text}" is not a name of this field`);
    return min + index;
  }
  const value = parseNumber(text);
  if (value < min || value > max) throw new Error(`${value} is outside ${min}-${max}`);
  return value;
}

function parseNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new Error(`"${text}" is not a number`);
  return Number(text);
}

/** Matching values of each field in ascending order. */
interface Fields {
  seconds: number[];
  minutes: number[];
  hours: number[];
  days: number[];
  months: number[];
  weekdays: Set<number>;
}

/**
 * Returns the first occurrence after `start`. Ignores the day of week first, and continues with the next day if it does not
 * match.
 */
function nextOccurrence(fields: Fields, start: Date): Date | undefined {
  const end = new Date(start);
  end.setUTCFullYear(end.getUTCFullYear() + SEARCH_YEARS);
  let base = start;
  while (base < end) {
    const candidate = nextIgnoringWeekday(fields, base, end);
    if (candidate === undefined || candidate >= end) return undefined;
    if (fields.weekdays.has(candidate.getUTCDay())) return candidate;
    base = new Date(candidate);
    // The search starts after this second, so at the next midnight.
    base.setUTCHours(23, 59, 59, 0);
  }
  return undefined;
}

/**
 * Returns the first occurrence after `base` on any day of week. Goes from the seconds up to the year. A field without a later
 * value starts again at its first value and increases the next larger field. A later hour resets the minute, and a later day,
 * month or year resets the whole time. A later minute or hour does not reset the second, as in the library: `* 20 * * * *` gives
 * 12:20:01 after 12:00:00.
 */
function nextIgnoringWeekday(fields: Fields, base: Date, end: Date): Date | undefined {
  let year = base.getUTCFullYear();
  let month = base.getUTCMonth() + 1;
  let day: number | undefined = base.getUTCDate();
  let hour: number | undefined = base.getUTCHours();
  let minute: number | undefined = base.getUTCMinutes();
  const first = (values: number[]) => values[0]!;
  const atLeast = (values: number[], value: number) => values.find((each) => each >= value);

  let second = atLeast(fields.seconds, base.getUTCSeconds() + 1);
  if (second === undefined) {
    second = first(fields.seconds);
    minute += 1;
  }
  minute = atLeast(fields.minutes, minute);
  if (minute === undefined) {
    minute = first(fields.minutes);
    hour += 1;
  }
  hour = atLeast(fields.hours, hour);
  if (hour === undefined) {
    minute = first(fields.minutes);
    hour = first(fields.hours);
    day += 1;
  } else if (hour > base.getUTCHours()) {
    minute = first(fields.minutes);
  }
  const startOfDay = () => {
    second = first(fields.seconds);
    minute = first(fields.minutes);
    hour = first(fields.hours);
  };
  day = atLeast(fields.days, day);
  // One pass per month: `day` is undefined if the month has no later matching day, or lacks the day (30 February).
  for (;;) {
    if (day === undefined) {
      startOfDay();
      day = first(fields.days);
      month += 1;
    } else if (day > base.getUTCDate()) {
      startOfDay();
    }
    const nextMonth = atLeast(fields.months, month);
    if (nextMonth === undefined) {
      startOfDay();
      day = first(fields.days);
      month = first(fields.months);
      year += 1;
    } else {
      if (nextMonth > base.getUTCMonth() + 1) {
        startOfDay();
        day = first(fields.days);
      }
      month = nextMonth;
    }
    if (year > end.getUTCFullYear()) return undefined;
    if (day <= daysInMonth(year, month)) return new Date(Date.UTC(year, month - 1, day, hour, minute, second));
    day = undefined;
  }
}

function daysInMonth(year: number, month: number): number {
  return new Date(Date.UTC(year, month, 0)).getUTCDate();
}
