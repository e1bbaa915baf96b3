/**
 * A router for the URL fragment, such as `#/inventory?type=key`. The path selects the view, and the query contains its filters.
 * Links are plain `href` attributes from `createHref`.
 */
import { createContext, type ReactNode, useContext, useMemo, useSyncExternalStore } from "react";

interface Route {
  /** A path such as `/inventory/:assetId`. A segment with a colon matches any text; `useParams` returns that text. */
  path: string;
  element: ReactNode;
}

const ParamsContext = createContext<Partial<Record<string, string>>>({});
/**
 * The browser sends this event when the user changes the fragment or goes back. `navigate` sends it itself, because the
 * browser would send it only after the click's event, and a controlled checkbox would show its old state until then.
 */
const CHANGED = "hashchange";

const listen = (listener: () => void): (() => void) => {
  addEventListener(CHANGED, listener);
  return () => removeEventListener(CHANGED, listener);
};
/** Returns the path and query in the fragment. */
const currentAddress = (): string => location.hash.slice(1) || "/";

/** Returns the path and the query of the current address. The component renders again when the address changes. */
export function useLocation(): { pathname: string; search: string } {
  const address = useSyncExternalStore(listen, currentAddress);
  return useMemo(() => {
    const [pathname = "/", ...search] = address.split("?");
    return { pathname, search: search.join("?") };
  }, [address]);
}

/**
 * Opens an address, such as `/inventory?type=key`.
 *
 * @param options.replace - Whether to replace the current history entry.
 */
export function navigate(address: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", `#${address}`);
  else if (address !== currentAddress()) history.pushState(null, "", `#${address}`);
  dispatchEvent(new Event(CHANGED));
}

type Search = URLSearchParams | Record<string, string>;

/** Returns the query of the current address and a function that sets it for the same view. */
export function useSearchParams(): [URLSearchParams, (next: Search | ((before: URLSearchParams) => Search)) => void] {
  const { search } = useLocation();
  return useMemo(() => [new URLSearchParams(search), setSearch], [search]);
}

function setSearch(next: Search | ((before: URLSearchParams) => Search)): void {
  const [pathname = "/", ...search] = currentAddress().split("?");
  const nextQuery = new URLSearchParams(
    typeof next === "function" ? next(new URLSearchParams(search.join("?"))) : next,
  ).toString();
  navigate(nextQuery === "" ? pathname : `${pathname}?${nextQuery}`);
}

/** Returns the values of the path's named segments. */
export const useParams = (): Partial<Record<string, string>> => useContext(ParamsContext);

/** Renders the first route that matches the address, or `otherwise`. */
export function Routes({ routes, otherwise }: { routes: readonly Route[]; otherwise: ReactNode }) {
  const { pathname } = useLocation();
  for (const { path, element } of routes) {
    const params = matchPath(path, pathname);
    if (params) return <ParamsContext value={params}>{element}</ParamsContext>;
  }
  return otherwise;
}

/** Returns the values of the named segments if the path matches, otherwise undefined. */
function matchPath(path: string, pathname: string): Record<string, string> | undefined {
  const [pattern, segments] = [path.split("/"), pathname.split("/")];
  if (pattern.length !== segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = decodeSegment(segments[index]!);
    else if (part !== segments[index]) return undefined;
  }
  return params;
}

/** Returns the decoded text, or the text itself if it is not validly encoded. */
function decodeSegment(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
