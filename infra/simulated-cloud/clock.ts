/**
 * The simulated clock. It follows the machine's clock until a test moves it ahead. It never returns the same time twice, so
 * that times keep the order of events.
 */
export class CloudClock {
  #ahead = 0;
  #last = 0;

  /** Returns Unix milliseconds, with a fraction. */
  now(): number {
    this.#last = Math.max(Date.now() + this.#ahead, this.#last + 1 / 1024);
    return this.#last;
  }

  /** Returns Unix seconds. */
  seconds(): number {
    return Math.floor(this.now() / 1000);
  }

  /** Moves the clock ahead by this many milliseconds. The clock can't be moved back. */
  move(milliseconds: number): void {
    if (!(milliseconds >= 0)) throw new Error("The clock can only be moved ahead.");
    this.#ahead += milliseconds;
  }
}
