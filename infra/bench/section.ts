/** Types and helpers of all benchmarks. Each benchmark returns a `Section`; page.ts writes it to BENCHMARKS.md as a table. */

/** A row of the table. */
export interface Figure {
  /** The measured quantity. Identifies the row: docs/cost.md and `--check` refer to it. */
  what: string;
  /** The measured value with its unit, often followed by its ratio to the value in `comparedWith`. */
  value: string;
  /** The value's baseline, or a remark. Can be empty. */
  comparedWith: string;
  bound?: Bound;
}

/** The bound of a figure: `npm run bench -- --check` fails if the figure violates it. */
export interface Bound {
  /** Text in the table, such as `≤ 1.05`. */
  text: string;
  holds: boolean;
}

/** The figures of one benchmark. */
export interface Section {
  title: string;
  /** Describes how the figures are measured. */
  how: string;
  figures: Figure[];
}

/**
 * Returns the bound `value ≤ limit`.
 * @param unit - Appended to the limit, such as ` s`.
 */
export const atMost = (value: number, limit: number, unit = ""): Bound => ({
  text: `≤ ${limit}${unit}`,
  holds: value <= limit,
});
/** Returns the bound `value = expected`. */
export const equalTo = (value: number, expected: number): Bound => ({
  text: `= ${expected}`,
  holds: value === expected,
});

const MEBIBYTE = 1_048_576;
/** The smallest instances have 512 MB, which includes the platform's own host. */
const MEMORY_LIMIT_BYTES = 320 * MEBIBYTE;
/** Returns the row for a peak of resident memory, with the bound of all benchmarks. */
export const peakMemory = (what: string, bytes: number): Figure => ({
  what,
  value: megabytes(bytes),
  comparedWith: "peak counted by the system",
  bound: { text: `< ${megabytes(MEMORY_LIMIT_BYTES)}`, holds: bytes < MEMORY_LIMIT_BYTES },
});

/** Returns the row for a processor time. Choose a wide limit, so that it detects twice the work, but not a slower machine. */
export const processorTime = (what: string, milliseconds: number, limit: number, comparedWith: string): Figure => ({
  what,
  value: `${Math.round(milliseconds)} ms`,
  comparedWith,
  bound: atMost(milliseconds, limit, " ms"),
});

export const ratio = (value: number, baseline: number): string => (value / baseline).toFixed(3);
/** Formats bytes as MB. 1 MB is 1,048,576 bytes, as in the memory limits of the platform. */
export const megabytes = (bytes: number): string => `${Math.round(bytes / MEBIBYTE)} MB`;
export const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
