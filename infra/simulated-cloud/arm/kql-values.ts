// Compares and converts values in KQL queries (kql.ts).

type Comparison = (left: unknown, right: unknown) => boolean;

export const equalText: Comparison = (left, right) => asText(left) === asText(right);
export const equalIgnoringCase: Comparison = (left, right) =>
  asText(left).toLowerCase() === asText(right).toLowerCase();
const contains: Comparison = (left, right) => asText(left).toLowerCase().includes(asText(right).toLowerCase());
/** Returns whether the text contains the whole word, as the operator `has`. */
const has: Comparison = (left, right) => {
  const term = asText(right).replace(/[.\\^$+?*()[\]{}|]/g, "\\$&");
  return new RegExp(`(?<![a-z0-9])${term}(?![a-z0-9])`, "i").test(asText(left));
};
/** Creates a comparison of numbers or times. */
const orderedBy =
  (holds: (difference: number) => boolean): Comparison =>
  (left, right) => {
    const [a, b] = [asNumber(left), asNumber(right)];
    return !Number.isNaN(a) && !Number.isNaN(b) && holds(a - b);
  };

/** Comparison operators of KQL. */
export const COMPARISONS: Record<string, Comparison | undefined> = {
  "==": equalText,
  "!=": (left, right) => !equalText(left, right),
  "=~": equalIgnoringCase,
  "!~": (left, right) => !equalIgnoringCase(left, right),
  contains,
  "!contains": (left, right) => !contains(left, right),
  has,
  startswith: (left, right) => asText(left).toLowerCase().startsWith(asText(right).toLowerCase()),
  endswith: (left, right) => asText(left).toLowerCase().endsWith(asText(right).toLowerCase()),
  ">": orderedBy((difference) => difference > 0),
  ">=": orderedBy((difference) => difference >= 0),
  "<": orderedBy((difference) => difference < 0),
  "<=": orderedBy((difference) => difference <= 0),
};

/** Returns a member of an object. Undefined for other values. */
export function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** Converts a value to text. Null is the empty text, and objects become JSON. */
export function asText(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Converts a value to a time. Undefined if it is not a date. */
export function asTime(value: unknown): Date | undefined {
  const time = value instanceof Date ? value : new Date(asText(value));
  return Number.isNaN(time.getTime()) ? undefined : time;
}

/** Returns a value as a number, or a date text as Unix milliseconds. */
const asNumber = (value: unknown): number =>
  typeof value === "number" ? value : (asTime(value)?.getTime() ?? Number.NaN);

/** Converts a timespan such as `30s`, `15m`, `1h` or `7d` to milliseconds. */
export function parseTimespan(text: string): number {
  const unit = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[text.at(-1) as "s" | "m" | "h" | "d"];
  return Number(text.slice(0, -1)) * unit;
}

/** Compares two values for sorting. The result is negative if `a` comes first. */
export function compareValues(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [left, right] = [asText(a), asText(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}
