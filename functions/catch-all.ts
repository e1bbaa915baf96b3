import { Problem } from "../shared/platform/http/problem.ts";
import { builtIndex } from "./built-index.ts";
import { endpoint } from "./declare.ts";
import { page } from "./page.ts";

/** The route that matches every path. */
export const CATCH_ALL = "{*path}";

/**
 * Handles requests that match no other function: the page at `/`, which no route can name, unknown paths (404) and unsupported
 * methods (405). Without this function the platform returns an empty 404. The name sorts last, because the platform matches
 * functions in the order of their names.
 */
const everyOtherPath = endpoint({
  name: "zzCatchAll",
  method: "GET",
  route: CATCH_ALL,
  summary: "Handle every other path",
  tag: "Documentation",
  access: "open",
  tier: "core",
  undocumented: true,
  // The page itself is not rate limited, and neither are its files. For all other paths, `admit` applies the rate limit.
  rateLimit: "none",
  responds: {},
  handle: async ({ url, headers, admit }) => {
    // The platform ignores one slash at the end of a path, too.
    const path = url.pathname.replace(/\/$/, "").slice(1);
    if (path === "") return await page(headers);
    await admit("open");
    const methods = methodsAt(path);
    if (methods.length === 0) throw new Problem("unknownPath", "See /docs for a list of paths.");
    const list = methods.join(", ");
    throw new Problem("methodNotAllowed", `This path accepts ${list}.`, { headers: { Allow: list } });
  },
});

export const endpoints = [everyOtherPath];

/** Returns the methods of all functions that match a path. Reads only the index, so that no area is loaded. */
function methodsAt(path: string): string[] {
  const matchingEndpoints = builtIndex().endpoints.filter(
    ({ route }) => route !== CATCH_ALL && routePattern(route).test(path),
  );
  return [...new Set(matchingEndpoints.flatMap(({ methods }) => methods))].sort();
}

/** Returns a pattern for the paths of a route. A segment with a parameter, such as `{rule_id}`, matches any segment. */
const routePattern = (route: string): RegExp =>
  new RegExp(
    `^${route
      .split("/")
      .map((part) => (part.startsWith("{") ? "[^/]+" : part.replace(/[.]/g, "\\.")))
      .join("/")}$`,
    "i",
  );
