/**
 * What is remembered of an entry of the browser's history while the page is loaded, so that Back comes to the same place.
 */
const entries = new Map<string, Map<string, unknown>>();

const idOfEntry = (): string | undefined => (history.state as { entry?: string } | null)?.entry;

export const remembered = <T>(name: string): T | undefined =>
  entries.get(idOfEntry() ?? "")?.get(name) as T | undefined;

export function remember(name: string, value: unknown): void {
  let id = idOfEntry();
  if (id === undefined) {
    // The browser keeps the ids when the page is loaded anew, and what was remembered is gone then.
    id = `${performance.timeOrigin} ${entries.size + 1}`;
    history.replaceState({ entry: id }, "");
  }
  entries.set(id, (entries.get(id) ?? new Map()).set(name, value));
}
