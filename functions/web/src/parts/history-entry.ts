/**
 * Stores values, such as a scroll position, for each entry of the browser history, so that Back restores them. The values are
 * in memory and lost on reload.
 */
const valuesByEntry = new Map<string, Map<string, unknown>>();

/** Returns the id that `storeInEntry` gave the current history entry. Undefined if it has none. */
const idOfEntry = (): string | undefined => (history.state as { entry?: string } | null)?.entry;

/** Returns a value that was stored for the current history entry. */
export const readFromEntry = <T>(name: string): T | undefined =>
  valuesByEntry.get(idOfEntry() ?? "")?.get(name) as T | undefined;

/** Stores a value for the current history entry. */
export function storeInEntry(name: string, value: unknown): void {
  let id = idOfEntry();
  if (id === undefined) {
    // A reload keeps the id in the history entry, but not the values. The start time of the page makes ids differ after each
    // load.
    id = `${performance.timeOrigin} ${valuesByEntry.size + 1}`;
    // History entries contain no other state.
    history.replaceState({ entry: id }, "");
  }
  valuesByEntry.set(id, (valuesByEntry.get(id) ?? new Map()).set(name, value));
}
