/** Returns the link to a view, with its filters as the query. */
export function createHref(path: string, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#${path}${text === "" ? "" : `?${text}`}`;
}
