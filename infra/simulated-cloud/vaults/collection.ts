/** Initial objects. They can be too many to store, so the vault reads them one by one. */
export interface InitialItems<T> {
  count: number;
  at(index: number): T;
  /** Returns the index of a name in lower case. -1 if there is none. */
  indexOf(name: string): number;
}

/**
 * Stores the objects of one kind in one vault: the initial objects and later changes. An object keeps its slot for the lifetime
 * of the collection, also when it is removed and added again, so that a listing in progress neither skips nor repeats unchanged
 * objects.
 */
export class Collection<T extends { name: string }> {
  readonly #initial: InitialItems<T>;
  /** Changes by name in lower case. Null means removed. */
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

  /** Returns the object in a slot. Undefined if it was removed. */
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

  /** Removes an object. Returns false if there is none. */
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
