import { Problem } from "../shared/platform/http/problem.ts";
import { builtIndex } from "./built-index.ts";
import { endpoint } from "./kit.ts";
import { page } from "./page.ts";

export const CATCH_ALL = "{*path}";

/**
 * Answers what no other function does: the page at `/`, which no route can name, a path that is none, or a method the path
 * does not take. The platform alone would answer an empty 404 to these. Its name sorts last, since the platform asks
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
  // The page is as free as its files. What is no address at all is counted below.
  rateLimit: "none",
  responds: {},
  handle: async ({ url, headers, admit }) => {
    // One slash at the end counts for nothing, as for the platform.
    const path = url.pathname.replace(/\/$/, "").slice(1);
    if (path === "") return await page(headers);
    await admit("open");
    const allow = methodsAt(path);
    if (allow.length === 0) throw new Problem("unknownPath", "See /docs for the paths there are.");
    const list = allow.join(", ");
    throw new Problem("methodNotAllowed", `This path takes ${list}.`, { headers: { Allow: list } });
  },
});

export const endpoints = [everyOtherPath];

/** The methods that other functions take at a path, by the index alone: no area is loaded for it. */
function methodsAt(path: string): string[] {
  const found = builtIndex().endpoints.filter(({ route }) => route !== CATCH_ALL && routePattern(route).test(path));
  return [...new Set(found.flatMap(({ methods }) => methods))].sort();
}

const routePattern = (route: string): RegExp =>
  new RegExp(
    `^${route
      .split("/")
      .map((part) => (part.startsWith("{") ? "[^/]+" : part.replace(/[.]/g, "\\.")))
      .join("/")}$`,
    "i",
  );
