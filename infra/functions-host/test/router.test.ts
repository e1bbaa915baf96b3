import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { createRouter, type HttpRoute } from "../router.ts";

interface Scenario {
  id: string;
  routePrefix: string;
  functions: HttpRoute[];
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

    it("removes the functions whose route is invalid", () => {
      expect(router.rejected.map(({ name }) => name).sort()).toEqual(rejected ?? []);
    });

    it.each(cases)("$method $target -> $status $function", ({ method, target, status, function: name, params }) => {
      const match = router.match(method, target);
      expect(match.status).toBe(status);
      if (match.status !== 200) return;
      if (name !== undefined) expect(match.function.name).toBe(name);
      if (params !== undefined) {
        // The router returns null for an empty catch-all. The host omits it.
        const present = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null));
        expect(match.params).toEqual(present);
      }
    });
  },
);

describe("routes that the host rejects", () => {
  const rejected = (functions: HttpRoute[]) => createRouter(functions, "").rejected.map(({ name }) => name);

  it("start with a built-in route", () => {
    const functions = [
      { name: "a", route: "admin/x" },
      { name: "b", route: "Runtime/x" },
      { name: "c", route: "x/admin" },
    ];
    expect(rejected(functions)).toEqual(["a", "b"]);
  });

  it("are the later by name of two with the same template and a common method", () => {
    const functions = [
      { name: "second", route: "x/{id}", methods: ["GET", "PUT"] },
      { name: "first", route: "X/{id}", methods: ["get"] },
      { name: "third", route: "x/{id}", methods: ["POST"] },
    ];
    expect(rejected(functions)).toEqual(["second"]);
  });

  it.each(["x/{a}{b}", "x/{*r?}", "x/{a?=1}", "x/p{*r}", "x}", "x/{a:length()}", "~x"])(
    "are invalid like %s",
    (route) => {
      expect(rejected([{ name: "f", route }])).toEqual(["f"]);
    },
  );
});

describe("template details that the vectors do not cover", () => {
  const params = (route: string, target: string) => {
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
  ])("%s with %s", (route, target, expected) => {
    expect(params(route, target)).toEqual(expected);
  });
});
