/**
 * Which view is shown, and with which filters: the part of the address after `#`, such as `#/inventory?type=key`. A link to
 * another view is a plain `href` of `createHref`.
 */
import { createContext, type ReactNode, useContext, useMemo, useSyncExternalStore } from "react";

interface Route {
  /** Such as `/inventory/:assetId`: a part that begins with a colon stands for any text, which `useParams` answers. */
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

/** @param options.replace - The address before is not gone back to. */
export function navigate(address: string, { replace = false } = {}): void {
  if (!replace) location.hash = address;
  else {
    history.replaceState(null, "", `#${address}`);
    dispatchEvent(new Event(CHANGED));
  }
}

type Search = URLSearchParams | Record<string, string>;

/** The filters of the address; setting them keeps the view. */
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

/** What the address has in the places that the view's path names. */
export const useParams = (): Partial<Record<string, string>> => useContext(ParamsContext);

/** The first whose path fits the address, else `otherwise`. */
export function Routes({ routes, otherwise }: { routes: readonly Route[]; otherwise: ReactNode }) {
  const { pathname } = useLocation();
  for (const { path, element } of routes) {
    const params = matched(path, pathname);
    if (params) return <ParamsContext value={params}>{element}</ParamsContext>;
  }
  return otherwise;
}

function matched(path: string, pathname: string): Record<string, string> | undefined {
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
