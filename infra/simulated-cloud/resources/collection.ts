/** Items that exist from the start, and that may be too many to keep: the cloud asks for them one by one. */
export interface InitialItems<T> {
  count: number;
  at(index: number): T;
  /** The index of a name in lower case, or -1. */
  indexOf(name: string): number;
}

/**
 * The items of one kind in one vault: the initial ones with later changes over them. A slot is a position that an item
 * keeps for as long as the collection lives, even when it is removed and put back, so a listing that is under way neither
 * skips nor repeats what did not change.
 */
export class Collection<T extends { name: string }> {
  readonly #initial: InitialItems<T>;
  /** By name in lower case; null is removed. */
  readonly #changed = new Map<string, T | null>();
  readonly #added: string[] = [];
  #removed = 0;

  constructor(initial: InitialItems<T>) {
    this.#initial = initial;
  }

  get slots(): number {
    return this.#initial.count + this.#added.length;
  }

  get size(): number {
    return this.slots - this.#removed;
  }

  /** What is in a slot; undefined when it was removed. */
  slot(index: number): T | undefined {
    if (index >= this.#initial.count) return this.#changed.get(this.#added[index - this.#initial.count]!) ?? undefined;
    const item = this.#initial.at(index);
    if (this.#changed.size === 0) return item;
    const change = this.#changed.get(item.name.toLowerCase());
    return change === undefined ? item : (change ?? undefined);
  }

  get(name: string): T | undefined {
    const key = name.toLowerCase();
    const change = this.#changed.get(key);
    if (change !== undefined) return change ?? undefined;
    const index = this.#initial.indexOf(key);
    return index < 0 ? undefined : this.#initial.at(index);
  }

  put(item: T): void {
    const key = item.name.toLowerCase();
    const before = this.#changed.get(key);
    if (before === null) this.#removed--;
    if (before === undefined && this.#initial.indexOf(key) < 0) this.#added.push(key);
    this.#changed.set(key, item);
  }

  /** False when there is no such thing. */
  remove(name: string): boolean {
    if (this.get(name) === undefined) return false;
    this.#changed.set(name.toLowerCase(), null);
    this.#removed++;
    return true;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let index = 0; index < this.slots; index++) {
      const item = this.slot(index);
      if (item !== undefined) yield item;
    }
  }
}
