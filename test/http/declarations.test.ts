import { describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { PRO_SECTIONS, SPECIFICATION } from "./specification.ts";

const { endpoints, queues, timers } = await declarations();

const CATCH_ALL = "{*path}";
const named = ({ method, route }: { method: string; route: string }) => `${method} /${route}`;
const declared = endpoints.map((endpoint) => ({ ...endpoint, id: named(endpoint) }));

describe("every endpoint", () => {
  test.each(declared)("$id describes itself and each of its responses", ({ route, summary, tag, responds }) => {
    expect(summary.trim()).not.toBe("");
    expect(tag.trim()).not.toBe("");
    // The catch-all answers only with problems, except for the redirect of `/`.
    if (route === CATCH_ALL) return;
    const answers = Object.entries(responds);
    expect(answers.length).toBeGreaterThan(0);
    for (const [status, answer] of answers) {
      expect(Number(status)).toBeLessThan(400);
      const json = answer instanceof z.ZodType ? answer : "json" in answer ? answer.json : undefined;
      // More than `$schema`, which every schema has.
      if (json) expect(Object.keys(z.toJSONSchema(json, { io: "output" })).length).toBeGreaterThan(1);
      if (answer instanceof z.ZodType || "json" in answer) continue;
      expect(answer.description.trim()).not.toBe("");
      // A redirect names its target only in a header.
      if (Number(status) < 300) expect(answer.mediaType).toMatch(/\//);
    }
  });

  test.each(declared)("$id declares the parameters of its path", ({ route, params }) => {
    const inRoute = [...route.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
    expect(Object.keys(params?.shape ?? {})).toEqual(inRoute);
  });

  test("only the catch-all and the files of the page and of the documentation are missing in the description", () => {
    const left = declared.filter(({ undocumented }) => undocumented).map(({ id }) => id);
    expect(left.sort()).toEqual(["GET /docs/files/{file}", "GET /page/{file}", "GET /{*path}"]);
  });
});

describe("the specification", () => {
  const started = Object.entries(SPECIFICATION).filter(([, ids]) =>
    ids.some((id) => declared.some((one) => one.id === id)),
  );

  test.each(started)("section %s is fully declared", (section, ids) => {
    expect(declared.map(({ id }) => id)).toEqual(expect.arrayContaining([...ids]));
    const isPro = PRO_SECTIONS.includes(section);
    // In PRO sections, data from the time of a license stays readable. Those endpoints check the license in their module.
    const asksItself = ({ method, problems = [] }: (typeof declared)[number]) =>
      isPro && method === "GET" && problems.includes("licenseRequired");
    const tiers = declared.filter((one) => ids.includes(one.id) && !asksItself(one)).map(({ tier }) => tier);
    if (section !== "SSO") expect([...new Set(tiers)]).toEqual([isPro ? "pro" : "core"]);
  });

  test("the basic sections exist", () => {
    expect(started.map(([section]) => section)).toEqual(
      expect.arrayContaining(["Authentication and health", "Discovery", "Documentation routes"]),
    );
  });
});

describe("routes", () => {
  test("no path and method is served by two functions, except by the catch-all", () => {
    const rest = declared.filter(({ route }) => route !== CATCH_ALL);
    const twice = rest.flatMap((one, index) =>
      rest
        .slice(index + 1)
        .filter((other) => one.method === other.method && overlap(one.route, other.route))
        .map((other) => `${one.id} and ${other.id}`),
    );
    expect(twice).toEqual([]);
  });

  test("the platform tries the catch-all last: functions are matched in the order of their names", () => {
    // Compares like StringComparer.OrdinalIgnoreCase: by code units of the upper-cased names.
    const order = declared.map(({ name, route }) => ({ name: name.toUpperCase(), route }));
    order.sort((a, b) => (a.name < b.name ? -1 : 1));
    expect(order.at(-1)!.route).toBe(CATCH_ALL);
  });

  test("no route starts with a prefix that the platform reserves", () => {
    expect(declared.filter(({ route }) => /^(admin|runtime)/i.test(route))).toEqual([]);
  });

  test("this test detects an overlap", () => {
    expect(overlap("api/settings/{category}", "api/Settings/all")).toBe(true);
    expect(overlap("api/settings/{category}/{key}", "api/settings/all")).toBe(false);
    expect(overlap("docs/{page}.html", "docs/index.html")).toBe(true);
    expect(overlap("auth/users", "auth/user")).toBe(false);
  });
});

test("an alert rule created from its example sends nothing", () => {
  const { example } = declared.find(({ name }) => name === "createAlertRule")!;
  expect(example).toMatchObject({ body: { enabled: false } });
});

test("function names are unique and valid on the platform", () => {
  const names = [...endpoints, ...timers, ...queues].map(({ name }) => name.toLowerCase());
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(name).toMatch(/^[a-z][a-z0-9_-]{0,127}$/);
});

/** Returns whether a path can match both routes. A segment with a parameter matches any segment. */
function overlap(one: string, other: string): boolean {
  const [left, right] = [one, other].map((route) => route.toLowerCase().split("/"));
  return (
    left!.length === right!.length &&
    left!.every((part, index) => part === right![index] || part.includes("{") || right![index]!.includes("{"))
  );
}
