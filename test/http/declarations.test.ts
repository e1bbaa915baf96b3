import { describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { PRO_SECTIONS, SPECIFICATION } from "./specification.ts";

// Checks the declarations in functions/ without calling them: endpoints, timers and queue handlers.

const { endpoints, queues, timers } = await declarations();

/** Route of the function that answers all paths without an endpoint. */
const CATCH_ALL = "{*path}";
/** All endpoints, with an id such as `GET /auth/me`. */
const declaredEndpoints = endpoints.map((endpoint) => ({ ...endpoint, id: `${endpoint.method} /${endpoint.route}` }));

describe("every endpoint", () => {
  test.each(declaredEndpoints)(
    "$id describes itself and each of its responses",
    ({ route, summary, tag, responds }) => {
      expect(summary.trim()).not.toBe("");
      expect(tag.trim()).not.toBe("");
      // The catch-all answers only with problems, except for the redirect of `/`.
      if (route === CATCH_ALL) return;
      const responses = Object.entries(responds);
      expect(responses.length).toBeGreaterThan(0);
      for (const [status, response] of responses) {
        expect(Number(status)).toBeLessThan(400);
        const schema = response instanceof z.ZodType ? response : "json" in response ? response.json : undefined;
        // An empty schema contains only `$schema`.
        if (schema) expect(Object.keys(z.toJSONSchema(schema, { io: "output" })).length).toBeGreaterThan(1);
        if (response instanceof z.ZodType || "json" in response) continue;
        expect(response.description.trim()).not.toBe("");
        // A redirect has no content, and so no media type.
        if (Number(status) < 300) expect(response.mediaType).toMatch(/\//);
      }
    },
  );

  test.each(declaredEndpoints)("$id declares the parameters of its path", ({ route, params }) => {
    const inRoute = [...route.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
    expect(Object.keys(params?.shape ?? {})).toEqual(inRoute);
  });

  test("is in the OpenAPI document, except for the catch-all and static files", () => {
    const undocumentedIds = declaredEndpoints.filter(({ undocumented }) => undocumented).map(({ id }) => id);
    expect(undocumentedIds.sort()).toEqual(["GET /docs/files/{file}", "GET /page/{file}", "GET /{*path}"]);
  });
});

describe("the specification", () => {
  /** Sections with at least one existing endpoint. */
  const implementedSections = Object.entries(SPECIFICATION).filter(([, ids]) =>
    ids.some((id) => declaredEndpoints.some((endpoint) => endpoint.id === id)),
  );

  test.each(implementedSections)("section %s is fully declared, with the right tier", (section, ids) => {
    expect(declaredEndpoints.map(({ id }) => id)).toEqual(expect.arrayContaining([...ids]));
    const isPro = PRO_SECTIONS.includes(section);
    // Data that was created with a license stays readable without one. The endpoints that read such data are declared as core,
    // and their module checks the license.
    const checksLicenseInModule = ({ method, problems = [] }: (typeof declaredEndpoints)[number]) =>
      isPro && method === "GET" && problems.includes("licenseRequired");
    const tiers = declaredEndpoints
      .filter((endpoint) => ids.includes(endpoint.id) && !checksLicenseInModule(endpoint))
      .map(({ tier }) => tier);
    // The section SSO contains endpoints of both tiers.
    if (section !== "SSO") expect([...new Set(tiers)]).toEqual([isPro ? "pro" : "core"]);
  });

  test("the basic sections exist", () => {
    expect(implementedSections.map(([section]) => section)).toEqual(
      expect.arrayContaining(["Authentication and health", "Discovery", "Documentation routes"]),
    );
  });
});

describe("routes", () => {
  test("of one method don't match the same path, except for the catch-all", () => {
    const specificEndpoints = declaredEndpoints.filter(({ route }) => route !== CATCH_ALL);
    const ambiguousPairs = specificEndpoints.flatMap((first, index) =>
      specificEndpoints
        .slice(index + 1)
        .filter((second) => first.method === second.method && overlap(first.route, second.route))
        .map((second) => `${first.id} and ${second.id}`),
    );
    expect(ambiguousPairs).toEqual([]);
  });

  test("include the catch-all as the last route that the platform tries", () => {
    // The platform tries functions in the order of their names. It compares names with StringComparer.OrdinalIgnoreCase: by the
    // code units of the upper-cased names.
    const inPlatformOrder = declaredEndpoints.map(({ name, route }) => ({ name: name.toUpperCase(), route }));
    inPlatformOrder.sort((a, b) => (a.name < b.name ? -1 : 1));
    expect(inPlatformOrder.at(-1)!.route).toBe(CATCH_ALL);
  });

  test("don't start with a prefix that the platform reserves", () => {
    expect(declaredEndpoints.filter(({ route }) => /^(admin|runtime)/i.test(route))).toEqual([]);
  });

  test("that overlap are detected by `overlap`, as a control of the test above", () => {
    expect(overlap("api/settings/{category}", "api/Settings/all")).toBe(true);
    expect(overlap("api/settings/{category}/{key}", "api/settings/all")).toBe(false);
    expect(overlap("docs/{page}.html", "docs/index.html")).toBe(true);
    expect(overlap("auth/users", "auth/user")).toBe(false);
  });
});

test("the example of an alert rule is disabled, so that trying it in the documentation sends nothing", () => {
  const { example } = declaredEndpoints.find(({ name }) => name === "createAlertRule")!;
  expect(example).toMatchObject({ body: { enabled: false } });
});

test("function names are unique and valid on the platform", () => {
  const names = [...endpoints, ...timers, ...queues].map(({ name }) => name.toLowerCase());
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(name).toMatch(/^[a-z][a-z0-9_-]{0,127}$/);
});

/**
 * Returns whether one path can match both routes. A segment with a parameter is taken to match any segment, but an asset ID contains
 * dots, so it matches no fixed segment without a dot.
 */
function overlap(firstRoute: string, secondRoute: string): boolean {
  const [first, second] = [firstRoute, secondRoute].map((route) => route.toLowerCase().split("/"));
  const matches = (parameter: string, other: string) =>
    parameter.includes("{") && !(parameter === "{asset_id}" && !/[{.]/.test(other));
  return (
    first!.length === second!.length &&
    first!.every((segment, index) => {
      const other = second![index]!;
      return segment === other || matches(segment, other) || matches(other, segment);
    })
  );
}
