/** Pseudorandom number generator (mulberry32) for sample data and tests. The same seed returns the same numbers. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Returns a number in [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns a number in [low, high). */
  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** Returns true with the probability 1/count. */
  oneIn(count: number): boolean {
    return this.next() * count < 1;
  }

  /** Returns one of the elements. */
  pick<T>(choices: readonly T[]): T {
    return choices[Math.floor(this.next() * choices.length)]!;
  }

  /** Returns `count` different elements, or all if there are fewer. */
  sample<T>(choices: readonly T[], count: number): T[] {
    const remaining = [...choices];
    return Array.from({ length: Math.min(count, remaining.length) }, () => {
      return remaining.splice(Math.floor(this.next() * remaining.length), 1)[0]!;
    });
  }
}
