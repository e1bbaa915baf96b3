// Helpers of the tests that apply random events to a table of states (`run-states.test.ts`, `transitions.test.ts`).

/** A row of a simulated table. A write that names an outdated version is rejected, as storage rejects an outdated ETag. */
export class VersionedRow<T> {
  value: T;
  version = 0;
  /** Time of the last write in milliseconds. */
  writtenAt: number;

  constructor(value: T, now: number) {
    this.value = value;
    this.writtenAt = now;
  }

  /** Writes the row and returns its new version; undefined if the write is rejected. */
  write(version: number, value: T, now: number): number | undefined {
    if (version !== this.version) return undefined;
    this.value = value;
    this.writtenAt = now;
    return ++this.version;
  }
}

/** Counts how often the random cases of a test reached each situation. */
export class Reached {
  readonly #counts = new Map<string, number>();
  count(situation: string): void {
    this.#counts.set(situation, (this.#counts.get(situation) ?? 0) + 1);
  }
  /** Returns the situations in alphabetical order. */
  get situations(): string[] {
    return [...this.#counts.keys()].sort();
  }
  toString(): string {
    return [...this.#counts].map(([situation, count]) => `${situation}: ${count}`).join("\n");
  }
}
