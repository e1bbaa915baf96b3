/** Compares and converts the values of a KQL query. */

type Comparison = (left: unknown, right: unknown) => boolean;

export const strictlySame: Comparison = (left, right) => asText(left) === asText(right);
export const sameText: Comparison = (left, right) => asText(left).toLowerCase() === asText(right).toLowerCase();
const contains: Comparison = (left, right) => asText(left).toLowerCase().includes(asText(right).toLowerCase());
/** Returns whether the text contains the whole word, as the operator `has`. */
const has: Comparison = (left, right) => {
  const term = asText(right).replace(/[.\\^$+?*()[\]{}|]/g, "\\$&");
  return new RegExp(`(?<![a-z0-9])${term}(?![a-z0-9])`, "i").test(asText(left));
};
const ordered =
  (holds: (difference: number) => boolean): Comparison =>
  (left, right) => {
    const [a, b] = [asNumber(left), asNumber(right)];
    return !Number.isNaN(a) && !Number.isNaN(b) && holds(a - b);
  };

export const COMPARISONS: Record<string, Comparison | undefined> = {
  "==": strictlySame,
  "!=": (left, right) => !strictlySame(left, right),
  "=~": sameText,
  "!~": (left, right) => !sameText(left, right),
  contains,
  "!contains": (left, right) => !contains(left, right),
  has,
  startswith: (left, right) => asText(left).toLowerCase().startsWith(asText(right).toLowerCase()),
  endswith: (left, right) => asText(left).toLowerCase().endsWith(asText(right).toLowerCase()),
  ">": ordered((difference) => difference > 0),
  ">=": ordered((difference) => difference >= 0),
  "<": ordered((difference) => difference < 0),
  "<=": ordered((difference) => difference <= 0),
};

export function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

export function asText(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function asTime(value: unknown): Date | undefined {
  const time = value instanceof Date ? value : new Date(asText(value));
  return Number.isNaN(time.getTime()) ? undefined : time;
}

/** Returns a value as a number, or a date text as Unix milliseconds. */
const asNumber = (value: unknown): number =>
  typeof value === "number" ? value : (asTime(value)?.getTime() ?? Number.NaN);

export function span(text: string): number {
  const unit = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[text.at(-1) as "s" | "m" | "h" | "d"];
  return Number(text.slice(0, -1)) * unit;
}

/** Compares two values for sorting. Negative when the first comes first. */
export function order(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [left, right] = [asText(a), asText(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}
