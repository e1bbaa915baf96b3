/** A router for the URL fragment, such as `#/inventory?type=key`: the path selects the view, the query holds its filters. Links are
 * plain `href` attributes from `createHref`.
 */
import { createContext, type ReactNode, useContext, useMemo, useSyncExternalStore } from "react";

interface Route {
  /** A path such as `/inventory/:assetId`. A segment with a colon matches any text; `useParams` returns that text. */
  path: string;
  element: ReactNode;
}

const ParamsContext = createContext<Partial<Record<string, string>>>({});
const CHANGED = "hashchange";

const listen = (listener: () => void): (() => void) => {
  addEventListener(CHANGED, listener);
  return () => removeEventListener(CHANGED, listener);
};
const current = (): string => location.hash.slice(1) || "/";

export function useLocation(): { pathname: string; search: string } {
  const address = useSyncExternalStore(listen, current);
  return useMemo(() => {
    const [pathname = "/", ...search] = address.split("?");
    return { pathname, search: search.join("?") };
  }, [address]);
}

/** @param options.replace - Whether to replace the current history entry. */
export function navigate(address: string, { replace = false } = {}): void {
  if (!replace) location.hash = address;
  else {
    history.replaceState(null, "", `#${address}`);
    dispatchEvent(new Event(CHANGED));
  }
}

type Search = URLSearchParams | Record<string, string>;

/** Returns the query of the current address and a function that sets it for the same view. */
export function useSearchParams(): [URLSearchParams, (next: Search | ((before: URLSearchParams) => Search)) => void] {
  const { search } = useLocation();
  return useMemo(() => [new URLSearchParams(search), setSearch], [search]);
}

function setSearch(next: Search | ((before: URLSearchParams) => Search)): void {
  const [pathname = "/", ...search] = current().split("?");
  const after = new URLSearchParams(
    typeof next === "function" ? next(new URLSearchParams(search.join("?"))) : next,
  ).toString();
  navigate(after === "" ? pathname : `${pathname}?${after}`);
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

function matchPath(path: string, pathname: string): Record<string, string> | undefined {
  const [wanted, given] = [path.split("/"), pathname.split("/")];
  if (wanted.length !== given.length) return undefined;
  const params: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = decoded(given[at]!);
    else if (part !== given[at]) return undefined;
  }
  return params;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
