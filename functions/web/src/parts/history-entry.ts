/** Stores values per entry of the browser history, so that Back restores the scroll position. The values are lost on reload.
 */
const entries = new Map<string, Map<string, unknown>>();

const idOfEntry = (): string | undefined => (history.state as { entry?: string } | null)?.entry;

export const remembered = <T>(name: string): T | undefined =>
  entries.get(idOfEntry() ?? "")?.get(name) as T | undefined;

export function remember(name: string, value: unknown): void {
  let id = idOfEntry();
  if (id === undefined) {
    // The browser keeps the ids across a reload but the values are lost, so an id must differ after each load.
    id = `${performance.timeOrigin} ${entries.size + 1}`;
    history.replaceState({ entry: id }, "");
  }
  entries.set(id, (entries.get(id) ?? new Map()).set(name, value));
}
