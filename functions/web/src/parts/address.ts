/** The address of a view with its filters. */
export function createHref(path: string, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#${path}${text === "" ? "" : `?${text}`}`;
}
