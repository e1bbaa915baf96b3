import { requestPath } from "./request-path.ts";
import { matchTemplate, parseTemplate, type Template } from "./route-template.ts";

/** The part of an HTTP function that the router needs. */
export interface HttpRoute {
  name: string;
  /** Default: the function's name. */
  route?: string | null | undefined;
  /** Default: any method. */
  methods?: readonly string[] | undefined;
}

type Match<T> =
  | { status: 200; function: T; params: Record<string, string>; path: string }
  /** No function matches this path and method. A wrong method is also 404, never 405. */
  | { status: 404 }
  /** The web server rejects the target. */
  | { status: 400 };

export interface Router<T> {
  /** Functions that were removed because their route is invalid. */
  rejected: { name: string; reason: string }[];
  /** Finds the function for a request. `target` is the request target of HTTP: a path with the query. */
  match(method: string, target: string): Match<T>;
}

interface Route<T> {
  function: T;
  template: Template;
  methods: Set<string> | undefined;
}

/**
 * Creates a router. If several functions match, the first by name wins, ignoring case. A literal does not take precedence over
 * a parameter (github.com/Azure/azure-functions-host issues 3153 and 9876). The recorded results of the platform's router are
 * in test/vectors/http-routes.json.
 * @param routePrefix `extensions.http.routePrefix` of host.json. Default on the platform: `api`.
 */
export function createRouter<T extends HttpRoute>(functions: readonly T[], routePrefix: string): Router<T> {
  const routes: Route<T>[] = [];
  /** Routes by their text in upper case, to find two functions with the same route. */
  const routesByText = new Map<string, Route<T>[]>();
  const rejected: { name: string; reason: string }[] = [];

  for (const each of [...functions].sort(byName)) {
    const route = each.route || each.name;
    const methods =
      each.methods === undefined ? undefined : new Set(each.methods.map((method) => method.toUpperCase()));
    try {
      checkReserved(route);
      const sameText = routesByText.get(route.toUpperCase()) ?? [];
      const conflicting = sameText.find((other) => methodsOverlap(other.methods, methods));
      if (conflicting !== undefined)
        throw new Error(`it conflicts with the route of the function '${conflicting.function.name}'`);
      const template = parseTemplate(routePrefix === "" ? route : `${routePrefix}/${route}`);
      const added = { function: each, template, methods };
      routes.push(added);
      routesByText.set(route.toUpperCase(), [...sameText, added]);
    } catch (error) {
      rejected.push({ name: each.name, reason: `the route '${route}' is invalid: ${(error as Error).message}` });
    }
  }

  const match = (method: string, target: string): Match<T> => {
    const path = requestPath(target);
    if (path === undefined) return { status: 400 };
    for (const { function: each, template, methods } of routes) {
      if (methods !== undefined && !methods.has(method.toUpperCase())) continue;
      const params = matchTemplate(template, path);
      if (params !== undefined) return { status: 200, function: each, params, path };
    }
    return { status: 404 };
  };
  return { rejected, match };
}

/** Compares names as `StringComparer.OrdinalIgnoreCase`: code units of the upper-case names, so `_` sorts after letters. */
function byName(a: HttpRoute, b: HttpRoute): number {
  const [left, right] = [a.name.toUpperCase(), b.name.toUpperCase()];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Throws if the route is reserved for the host, as the platform's `ScriptHost.ValidateHttpFunction` does. */
function checkReserved(route: string): void {
  if (/^\/*(admin|runtime)/i.test(route)) throw new Error("it conflicts with one or more built-in routes");
}

function methodsOverlap(a: Set<string> | undefined, b: Set<string> | undefined): boolean {
  return a === undefined || b === undefined || [...a].some((method) => b.has(method));
}
