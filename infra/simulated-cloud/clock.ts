/** Smallest difference between two times. A power of two, so that sums are exact. */
const STEP_MS = 1 / 1024;

/**
 * The simulated clock of directories, vaults and resources. It follows the machine's clock until a test moves it ahead. Each
 * call returns a later time than the call before, so that times show the order of events.
 */
export class CloudClock {
  #aheadMs = 0;
  #lastTimeMs = 0;

  /** Returns Unix milliseconds, with a fraction. */
  now(): number {
    this.#lastTimeMs = Math.max(Date.now() + this.#aheadMs, this.#lastTimeMs + STEP_MS);
    return this.#lastTimeMs;
  }

  /** Returns Unix seconds. */
  seconds(): number {
    return Math.floor(this.now() / 1000);
  }

  /** Moves the clock ahead by this many milliseconds. The clock can't be moved back. */
  move(milliseconds: number): void {
    if (!(milliseconds >= 0)) throw new Error("The clock can only be moved ahead.");
    this.#aheadMs += milliseconds;
  }
}
