/**
 * The time of the parts of the cloud that tests wait for. It is the machine's until it is moved, and never says the same
 * instant twice, so that what was done first is also earlier.
 */
export class CloudClock {
  #ahead = 0;
  #last = 0;

  /** Unix milliseconds, with a fraction. */
  now(): number {
    this.#last = Math.max(Date.now() + this.#ahead, this.#last + 1 / 1024);
    return this.#last;
  }

  /** Unix seconds. */
  seconds(): number {
    return Math.floor(this.now() / 1000);
  }

  /** From now on it is this many milliseconds later. It can't be moved back. */
  move(milliseconds: number): void {
    if (!(milliseconds >= 0)) throw new Error("The cloud's clock moves ahead only.");
    this.#ahead += milliseconds;
  }
}
