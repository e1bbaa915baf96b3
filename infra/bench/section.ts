export interface Figure {
  what: string;
  value: string;
  comparedWith: string;
  bound?: Bound;
}

/** The bound of a figure: `npm run bench -- --check` fails if the figure violates it. */
export interface Bound {
  /** Text in the table, such as `≤ 1.05`. */
  text: string;
  holds: boolean;
}

export interface Section {
  title: string;
  /** Describes in one or two sentences how the figure was measured. */
  how: string;
  figures: Figure[];
}

/** @param unit - Appended to the limit, such as ` s`. */
export const atMost = (value: number, limit: number, unit = ""): Bound => ({
  text: `≤ ${limit}${unit}`,
  holds: value <= limit,
});
export const equalTo = (value: number, wanted: number): Bound => ({ text: `= ${wanted}`, holds: value === wanted });

const MEBIBYTE = 1_048_576;
/** Limit in bytes. The smallest instances have 512 MB, which includes the platform's own host. */
const MEMORY_LIMIT = 300 * MEBIBYTE;
export const peakMemory = (what: string, bytes: number): Figure => ({
  what,
  value: megabytes(bytes),
  comparedWith: "peak counted by the system",
  bound: { text: `< ${megabytes(MEMORY_LIMIT)}`, holds: bytes < MEMORY_LIMIT },
});

/** Bounds of processor time are wide: they detect twice the work, not a slower machine. */
export const processorTime = (what: string, milliseconds: number, limit: number, comparedWith: string): Figure => ({
  what,
  value: `${Math.round(milliseconds)} ms`,
  comparedWith,
  bound: atMost(milliseconds, limit, " ms"),
});

export const ratio = (a: number, b: number): string => (a / b).toFixed(3);
/** Formats bytes as MB. 1 MB is 1,048,576 bytes, as in the memory limits of the platform. */
export const megabytes = (bytes: number): string => `${Math.round(bytes / MEBIBYTE)} MB`;
export const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
