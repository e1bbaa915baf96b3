/** The initial items of a vault. There can be too many to store, so they are created one by one when they are read. */
export interface InitialItems<T> {
  count: number;
  itemAt(index: number): T;
  /** Returns the index of a name in lower case. -1 if there is none. */
  indexOf(name: string): number;
}

/**
 * Stores the items (secrets, keys or certificates) of one kind in one vault: the initial items and later changes. An item has
 * the same slot, which is its position in lists, for the lifetime of the collection, also when it is removed and added again. A
 * listing in progress then neither skips nor repeats unchanged items.
 */
export class Collection<T extends { name: string }> {
  readonly #initial: InitialItems<T>;
  /** Changes by name in lower case. Null means removed. */
  readonly #changed = new Map<string, T | null>();
  /** Names of items that were added later, in lower case, in the order of their slots. */
  readonly #added: string[] = [];
  #removed = 0;

  constructor(initial: InitialItems<T>) {
    this.#initial = initial;
  }

  /** Number of slots, including the slots of removed items. */
  get slots(): number {
    return this.#initial.count + this.#added.length;
  }

  /** Number of items. */
  get size(): number {
    return this.slots - this.#removed;
  }

  /** Returns the item in a slot. Undefined if it was removed. */
  slot(index: number): T | undefined {
    if (index >= this.#initial.count) return this.#changed.get(this.#added[index - this.#initial.count]!) ?? undefined;
    const item = this.#initial.itemAt(index);
    if (this.#changed.size === 0) return item;
    const change = this.#changed.get(item.name.toLowerCase());
    return change === undefined ? item : (change ?? undefined);
  }

  get(name: string): T | undefined {
    const key = name.toLowerCase();
    const change = this.#changed.get(key);
    if (change !== undefined) return change ?? undefined;
    const index = this.#initial.indexOf(key);
    return index < 0 ? undefined : this.#initial.itemAt(index);
  }

  /** Adds or replaces an item. */
  put(item: T): void {
    const key = item.name.toLowerCase();
    const previous = this.#changed.get(key);
    if (previous === null) this.#removed--;
    if (previous === undefined && this.#initial.indexOf(key) < 0) this.#added.push(key);
    this.#changed.set(key, item);
  }

  /** Removes an item. Returns false if there is none. */
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
