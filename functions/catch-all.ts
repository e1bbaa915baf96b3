import { type Endpoint, methodsOf } from "../shared/http/endpoint.ts";
import { Problem } from "../shared/http/problem.ts";
import { endpoint } from "./kit.ts";
import { page } from "./page.ts";
import type { Services } from "./services.ts";

export const CATCH_ALL = "{*path}";

/**
 * Answers what no other function does: the page at `/`, which no route can name, a path that is none, or a method the path
 * does not take. The platform alone would answer an empty 404 to these. Its name sorts last, since the platform asks
 * functions in the order of their names.
 */
export function catchAll(all: () => Promise<Endpoint<Services>[]>): { endpoints: Endpoint<Services>[] } {
  const everyOtherPath = endpoint({
    name: "zzCatchAll",
    method: "GET",
    route: CATCH_ALL,
    summary: "Every other path",
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
      const methods = (await all())
        .filter(({ route }) => route !== CATCH_ALL && routePattern(route).test(path))
        .flatMap(methodsOf);
      if (methods.length === 0) throw new Problem("unknownPath", "See /docs for the paths there are.");
      const allow = [...new Set(methods)].sort().join(", ");
      throw new Problem("methodNotAllowed", `This path takes ${allow}.`, { headers: { Allow: allow } });
    },
  });
  return { endpoints: [everyOtherPath] };
}

const routePattern = (route: string): RegExp =>
  new RegExp(
    `^${route
      .split("/")
      .map((part) => (part.startsWith("{") ? "[^/]+" : part.replace(/[.]/g, "\\.")))
      .join("/")}$`,
    "i",
  );
