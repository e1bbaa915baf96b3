/** Descriptions, types, defaults and examples of members and parameters in `/openapi.json`, without a running service. */
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { beforeAll, expect, test, vi } from "vitest";
import type * as z from "zod";
import { documentation, openApiText } from "../../functions/docs.ts";
import { declarations } from "../../functions/functions.ts";
import { TAGS } from "../../functions/tags.ts";
import { isDescribed } from "../../shared/platform/http/describe-members.ts";
import {
  MEMBER_DESCRIPTIONS,
  MEMBER_EXAMPLES,
  PARAMETER_DESCRIPTIONS,
} from "../../shared/platform/http/member-descriptions.ts";
import { type Document, operationsOf, type Schema, schemasOf } from "../../shared/platform/http/openapi-document.ts";
import { parse } from "../../shared/platform/http/parse-request.ts";

const { endpoints } = await declarations();

let document: Document;
beforeAll(async () => {
  document = JSON.parse(await openApiText(endpoints));
});

const membersOf = (schemas: Schema[]) => schemas.flatMap(({ properties = {} }) => Object.entries(properties));

test("every member and every parameter has a description", () => {
  const members = membersOf(schemasOf(document));
  const parameters = operationsOf(document).flatMap(({ operationId, parameters = [] }) =>
    parameters.map((parameter) => [operationId, parameter] as const),
  );
  expect(members.length).toBeGreaterThan(1700);
  expect(parameters.length).toBeGreaterThan(290);
  const advice = "Add a description to each of these with `.meta({ description })`.";
  expect(
    members.filter(([, member]) => !isDescribed(document, member)),
    advice,
  ).toEqual([]);
  expect(
    parameters.filter(([, { description = "" }]) => description.trim() === ""),
    advice,
  ).toEqual([]);
});

test("names with default descriptions and examples exist in the API", () => {
  const members = new Set(membersOf(schemasOf(document)).map(([name]) => name));
  const parameters = new Set(
    operationsOf(document).flatMap(({ parameters = [] }) => parameters.map(({ name }) => name)),
  );
  expect(
    [...Object.keys(MEMBER_DESCRIPTIONS), ...Object.keys(MEMBER_EXAMPLES)].filter((name) => !members.has(name)),
  ).toEqual([]);
  expect(Object.keys(PARAMETER_DESCRIPTIONS).filter((name) => !parameters.has(name))).toEqual([]);
});

test("the example of a name is shown for members with this name", () => {
  const exampleValues = new Map<string, Set<string>>();
  /** Collects the values in examples by the name of their member. */
  const collect = (value: unknown, isExample: boolean): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [name, member] of Object.entries(value)) {
      // For a list of texts, the item has the description.
      for (const example of [member, ...(Array.isArray(member) ? member : [])])
        if (isExample) exampleValues.set(name, (exampleValues.get(name) ?? new Set()).add(JSON.stringify(example)));
      collect(member, isExample || name === "example");
    }
  };
  collect(document, false);
  const ofMembers = Object.entries(MEMBER_DESCRIPTIONS).map(([name, { example }]) => [name, example] as const);
  const unusedExamples = [...ofMembers, ...Object.entries(MEMBER_EXAMPLES)].filter(
    ([name, example]) => example !== undefined && !exampleValues.get(name)?.has(JSON.stringify(example)),
  );
  expect(unusedExamples).toEqual([]);
});

test("no two schemas get the same name in generated clients", () => {
  const clientName = (name: string) => name.replace(/[^a-z0-9]/gi, "").toLowerCase();
  const names = Object.keys(document.components.schemas).map(clientName);
  expect(names.length).toBeGreaterThan(150);
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
});

test("every request has an example that its endpoint accepts", () => {
  let examples = 0;
  for (const { operationId, parameters = [], requestBody } of operationsOf(document)) {
    const { params, query, body } = endpoints.find(({ name }) => name === operationId)!;
    const examplesIn = (where: string) =>
      parameters.filter((one) => one.in === where && one.example !== undefined).map((one) => [one.name, one.example]);
    const path = parameters.filter((one) => one.in === "path").map(({ name }) => name);
    expect([operationId, examplesIn("path").map(([name]) => name)]).toEqual([operationId, path]);
    if (params) parse(params, Object.fromEntries(examplesIn("path")), "path");
    if (query)
      parse(query, Object.fromEntries(examplesIn("query").map(([name, value]) => [name, String(value)])), "query");
    examples += examplesIn("path").length + examplesIn("query").length;
    for (const { example } of Object.values(requestBody?.content ?? {})) {
      expect([operationId, example]).toEqual([operationId, expect.anything()]);
      parse(body!, structuredClone(example), "body");
      examples += 1;
    }
  }
  expect(examples).toBeGreaterThan(130);
});

test("every response has an example that matches its schema and contains no placeholder", () => {
  const wrong: string[] = [];
  let answers = 0;
  for (const { operationId, responses } of operationsOf(document)) {
    for (const [status, { content = {} }] of Object.entries(responses)) {
      const json = content["application/json"];
      if (!json) continue;
      const declared = endpoints.find(({ name }) => name === operationId)!.responds[Number(status)]!;
      const schema = "json" in declared ? declared.json : (declared as z.ZodType);
      const { error } = schema.safeParse(json.example);
      if (error) wrong.push(`${operationId} ${status}: ${error.message}`);
      if (JSON.stringify(json.example).includes('"…"'))
        wrong.push(`${operationId} ${status}: a text without an example`);
      answers += 1;
    }
    for (const [status, { content = {} }] of Object.entries(responses)) {
      if (Number(status) < 400) continue;
      const { examples = {} } = content["application/problem+json"]!;
      expect([operationId, status, Object.keys(examples)]).not.toEqual([operationId, status, []]);
    }
  }
  expect(wrong).toEqual([]);
  expect(answers).toBeGreaterThan(130);
});

test("no example contradicts its schema", () => {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema({ $id: "openapi.json", components: document.components });
  const wrong: string[] = [];
  let examples = 0;
  function check(schema: object, example: unknown, path: string): void {
    const validate = ajv.compile(
      JSON.parse(JSON.stringify(schema).replaceAll('"#/components/', '"openapi.json#/components/')),
    );
    examples++;
    if (!validate(example)) wrong.push(`${path}: ${JSON.stringify(example)} ${ajv.errorsText(validate.errors)}`);
  }
  /** Checks the examples of parameters, bodies and schemas. In `properties`, the keys are names of members. */
  function walk(value: unknown, path: string, isNames = false): void {
    if (typeof value !== "object" || value === null) return;
    const { example, schema, ...others } = value as { example?: unknown; schema?: object };
    if (!isNames && example !== undefined) check(schema ?? others, example, path);
    for (const [name, member] of Object.entries(value))
      if (isNames || !["example", "examples", "enum", "default"].includes(name))
        walk(member, `${path}/${name}`, name === "properties" && !isNames);
  }
  walk(document, "");
  expect(wrong).toEqual([]);
  expect(examples).toBeGreaterThan(500);
});

test("parameters of queries have the type and the bounds that the service accepts", () => {
  const counts = { boolean: 0, integer: 0 };
  for (const { operationId, parameters = [] } of operationsOf(document)) {
    const { query, example } = endpoints.find(({ name }) => name === operationId)!;
    // The parameters that the operation requires.
    const given = { ...(operationId === "removeCertificateEndpoint" && example?.query) };
    const accepts = (name: string, value: unknown): boolean => {
      try {
        return (parse(query!, { ...given, [name]: String(value) }, "query") as Record<string, unknown>)[name] === value;
      } catch {
        return false;
      }
    };
    for (const { name, schema } of parameters.filter((one) => one.in === "query")) {
      const where = `${operationId} ${name}`;
      const { type, minimum, maximum } = schema;
      if (type === "boolean") {
        expect([where, ...[true, false, 1, ""].map((value) => accepts(name, value))]).toEqual([
          where,
          true,
          true,
          false,
          false,
        ]);
        counts.boolean++;
      } else if (type === "integer") {
        const values = [minimum!, maximum!, minimum! - 1, maximum! + 1, minimum! + 0.5];
        expect([where, ...values.map((value) => accepts(name, value))]).toEqual([
          where,
          true,
          true,
          false,
          false,
          false,
        ]);
        counts.integer++;
      } else {
        // A text that the service reads as a boolean or a number would be described with the wrong type.
        const parsed = ["true", "1"].map((value) => query!.shape[name]!.safeParse(value).data);
        expect([where, ...parsed.map((value) => typeof value)]).not.toContain("boolean");
        expect([where, ...parsed.map((value) => typeof value)]).not.toContain("number");
      }
    }
  }
  expect(counts.boolean).toBeGreaterThan(25);
  expect(counts.integer).toBeGreaterThan(50);
});

test("every tag is declared with a description, and used", () => {
  const used = new Set(operationsOf(document).flatMap(({ tags }) => tags));
  expect([...used].sort()).toEqual(Object.keys(TAGS).sort());
  expect(document.tags).toEqual(Object.entries(TAGS).map(([name, description]) => ({ name, description })));
});

test("every component is used", () => {
  const { schemas, examples } = document.components;
  const references = new Set(JSON.stringify(document).match(/#\/components\/\w+\/[\w.-]+/g));
  const unused = [
    ...Object.keys(schemas).map((name) => `#/components/schemas/${name}`),
    ...Object.keys(examples!).map((name) => `#/components/examples/${name}`),
  ].filter((reference) => !references.has(reference));
  expect(unused).toEqual([]);
});

test("no description is empty", () => {
  const emptyTexts: string[] = [];
  const findEmpty = (value: unknown, path: string): void => {
    if (value === "") emptyTexts.push(path);
    else if (typeof value === "object" && value !== null)
      for (const [name, member] of Object.entries(value)) findEmpty(member, `${path}/${name}`);
  };
  findEmpty(document, "");
  expect(emptyTexts).toEqual([]);
});

// Swagger UI fills in the examples, and a click on "Execute" sends them.
test("prefilled requests filter no list by date, and only preview changes that can be previewed", () => {
  for (const { operationId, parameters = [], requestBody } of operationsOf(document)) {
    const named = Object.fromEntries(parameters.map((one) => [one.name, one.example]));
    // Three times undefined: these parameters have no example, so Swagger UI leaves them empty.
    expect([operationId, named.expiresBefore, named.expiresAfter, named.cursor]).toEqual([operationId, ...Array(3)]);
    if ("preview" in named) expect([operationId, named.preview]).toEqual([operationId, true]);
    for (const { schema, example } of Object.values(requestBody?.content ?? {})) {
      const name = schema.$ref?.split("/").at(-1) ?? "";
      if (!("dryRun" in (document.components.schemas[name]?.properties ?? {}))) continue;
      expect([operationId, example]).toEqual([operationId, expect.objectContaining({ dryRun: true })]);
    }
  }
});

test("dates in examples are in the future when the document is requested", async () => {
  const dated = endpoints.filter(({ example }) => JSON.stringify(example)?.includes('"until"'));
  expect(dated.length).toBeGreaterThan(1);
  const described = documentation(async () => dated).endpoints.find(({ name }) => name === "openApi")!;
  const exampleDaysOn = async (requestedAt: string) => {
    vi.setSystemTime(requestedAt);
    const { content } = await described.handle({ headers: new Headers() } as never);
    return [...String(content!.data).matchAll(/"until":"([\d-]+)"/g)].map(([, day]) => day!);
  };
  vi.useFakeTimers({ toFake: ["Date"] });
  try {
    for (const requestedAt of ["2030-01-01T23:59:59Z", "2030-01-02T00:00:00Z", "2030-03-01T00:00:00Z"]) {
      const days = await exampleDaysOn(requestedAt);
      expect(days).toHaveLength(dated.length);
      expect(days.filter((day) => Date.parse(day) <= Date.parse(requestedAt))).toEqual([]);
    }
  } finally {
    vi.useRealTimers();
  }
});
