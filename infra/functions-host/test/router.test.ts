import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { createRouter, type HttpRoute } from "../router.ts";

/**
 * Results that were recorded from the router of the platform's host, for one set of functions. `target` is a request's path.
 */
interface Scenario {
  id: string;
  routePrefix: string;
  functions: HttpRoute[];
  /** Names of the functions whose route the platform rejects. */
  rejected?: string[];
  cases: {
    method: string;
    target: string;
    status: number;
    function?: string;
    params?: Record<string, string | null>;
  }[];
}

const scenarios: Scenario[] = JSON.parse(
  readFileSync(new URL("../../../test/vectors/http-routes.json", import.meta.url), "utf8"),
);

describe.each(scenarios)(
  "the router matches the platform's router: $id",
  ({ routePrefix, functions, rejected, cases }) => {
    const router = createRouter(functions, routePrefix);

    it("rejects the same functions", () => {
      expect(router.rejected.map(({ name }) => name).sort()).toEqual(rejected ?? []);
    });

    it.each(cases)("$method $target -> $status $function", ({ method, target, status, function: name, params }) => {
      const match = router.match(method, target);
      expect(match.status).toBe(status);
      if (match.status !== 200) return;
      if (name !== undefined) expect(match.function.name).toBe(name);
      if (params !== undefined) {
        // The platform's router returns null for an empty catch-all. The platform's host omits it, and so does this router.
        const present = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null));
        expect(match.params).toEqual(present);
      }
    });
  },
);

describe("the router rejects", () => {
  const rejectedNames = (functions: HttpRoute[]) => createRouter(functions, "").rejected.map(({ name }) => name);

  it("routes that start with a built-in prefix (admin, runtime)", () => {
    const functions = [
      { name: "a", route: "admin/x" },
      { name: "b", route: "Runtime/x" },
      { name: "c", route: "x/admin" },
    ];
    expect(rejectedNames(functions)).toEqual(["a", "b"]);
  });

  it("the function that sorts later by name, if two functions share a route and a method", () => {
    const functions = [
      { name: "second", route: "x/{id}", methods: ["GET", "PUT"] },
      { name: "first", route: "X/{id}", methods: ["get"] },
      { name: "third", route: "x/{id}", methods: ["POST"] },
    ];
    expect(rejectedNames(functions)).toEqual(["second"]);
  });

  it.each(["x/{a}{b}", "x/{*r?}", "x/{a?=1}", "x/p{*r}", "x}", "x/{a:length()}", "~x"])(
    "the invalid route %s",
    (route) => {
      expect(rejectedNames([{ name: "f", route }])).toEqual(["f"]);
    },
  );
});

describe("a route template that the recorded scenarios do not cover", () => {
  const matchedParameters = (route: string, target: string) => {
    const match = createRouter([{ name: "f", route }], "").match("GET", target);
    return match.status === 200 ? match.params : undefined;
  };

  it.each([
    ["files/{name}.{extension?}", "/files/readme", { name: "readme" }],
    ["files/{name}.{extension?}", "/files/a.b.c", { name: "a.b", extension: "c" }],
    ["x/{p:regex(^a{{2}}$)}", "/x/aa", { p: "aa" }],
    ["x/{p:minlength(2):maxlength(3)}", "/x/abcd", undefined],
    ["x/{p:min(3)=7}", "/x", { p: "7" }],
    ["x/{{y}}", "/x/{y}", {}],
  ])("%s matches the path %s with the parameters %j", (route, target, expected) => {
    expect(matchedParameters(route, target)).toEqual(expected);
  });
});
