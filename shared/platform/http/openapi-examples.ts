import type { Endpoint } from "./endpoint.ts";
import { EXAMPLE_ULID, MEMBER_DESCRIPTIONS, MEMBER_EXAMPLES, PARAMETER_DESCRIPTIONS } from "./member-descriptions.ts";
import { type Document, type Operation, operationsOf, resolveReference, type Schema } from "./openapi-document.ts";
import { PROBLEMS, type ProblemCode } from "./problem.ts";

/** Fixed time, so that the API description of a commit is reproducible. */
const INSTANT = "2026-11-21T10:00:00.000Z";
const FORMATS: Record<string, string> = {
  "date-time": INSTANT,
  date: "2026-11-21",
  email: "platform@acme.example",
  uri: "https://login.example.com",
};

/** Adds examples of requests, responses and problems, from the declarations and schemas. */
export function addExamples(document: Document, endpoints: readonly Endpoint<never>[]): void {
  const byName = new Map(endpoints.map((endpoint) => [endpoint.name, endpoint]));
  for (const operation of operationsOf(document)) {
    addRequest(document, operation, byName.get(operation.operationId)!);
    for (const { content = {} } of Object.values(operation.responses)) {
      const json = content["application/json"];
      if (json) json.example ??= exampleOf(document, json.schema);
    }
  }
  for (const { requestBody } of Object.values(document.webhooks).flatMap((methods) => Object.values(methods)))
    for (const media of Object.values(requestBody?.content ?? {})) media.example = exampleOf(document, media.schema);
}

/**
 * Adds the initial values of the try-out page. Query parameters without an example stay empty, because any value would exclude
 * items.
 */
function addRequest(document: Document, operation: Operation, { example = {} }: Endpoint<never>): void {
  for (const parameter of operation.parameters ?? []) {
    const { name, in: where } = parameter;
    const given: Record<string, unknown> = { ...(where === "path" ? example.params : example.query) };
    const value = given[name] ?? (where === "path" ? PARAMETER_DESCRIPTIONS[name]?.example : undefined);
    const { example: _, ...schema } = parameter.schema;
    parameter.schema = schema;
    if (value !== undefined) parameter.example = typedValue(schema, value);
  }
  for (const media of Object.values(operation.requestBody?.content ?? {})) {
    media.example = example.body ?? exampleOf(document, media.schema);
  }
}

/** Converts the text of a query parameter to the type of its schema. */
const typedValue = ({ type }: Schema, value: unknown): unknown =>
  type === "integer" ? Number(value) : type === "boolean" ? value === "true" : value;

/** Returns the example of a schema, or builds one from the examples of its parts. */
export function exampleOf(document: Document, schema: Schema, name = ""): unknown {
  if (schema.example !== undefined) return schema.example;
  // The named schema if `schema` is a reference, otherwise `schema` itself.
  const form = resolveReference(document, schema);
  if (form.example !== undefined) return form.example;
  const named = [MEMBER_DESCRIPTIONS[name]?.example, MEMBER_EXAMPLES[name]].find(
    (value) => value !== undefined && matchesType(document, form, value),
  );
  if (named !== undefined) return named;
  if (form.const !== undefined) return form.const;
  if (form.enum) return form.enum[0];
  const forms = form.anyOf ?? form.oneOf;
  if (forms) return exampleOf(document, forms.find(({ type }) => type !== "null") ?? forms[0]!, name);
  const type = [form.type ?? (form.properties ? "object" : "string")].flat().find((name) => name !== "null");
  if (type === "object") return objectOf(document, form);
  if (type === "array") return form.items ? [exampleOf(document, form.items, name)] : [];
  if (type === "boolean") return form.default ?? true;
  if (type === "integer" || type === "number") return form.default ?? Math.max(form.minimum ?? 1, 1);
  return FORMATS[form.format ?? ""] ?? form.default ?? "…";
}

function objectOf(document: Document, form: Schema): object {
  // An answer has `totalAtLeast` only if its total is null.
  const members = Object.entries(form.properties ?? {}).filter(([name]) => name !== "totalAtLeast");
  if (members.length > 0) {
    return Object.fromEntries(members.map(([name, member]) => [name, exampleOf(document, member, name)]));
  }
  // A record with free keys, such as tags. `prod` is an example of a key.
  const { additionalProperties: value } = form;
  return typeof value === "object" && Object.keys(value).length > 0 ? { prod: exampleOf(document, value) } : {};
}

/**
 * Returns whether the example of a name fits a schema by type, or is one of its enum values. Patterns are not evaluated. Constants
 * and dates never fit, because the caller has better examples for them: the constant, and the fixed time.
 */
function matchesType(document: Document, schema: Schema, value: unknown): boolean {
  const { type, enum: values, const: only, anyOf = [], format, items } = resolveReference(document, schema);
  if (value === null) return [type].flat().includes("null") || anyOf.some((form) => form.type === "null");
  if (values || only !== undefined) return values?.includes(value) ?? false;
  if (anyOf.length > 0) return anyOf.some((form) => matchesType(document, form, value));
  if (type === undefined) return true;
  if (format === "date-time" || format === "date") return false;
  if (Array.isArray(value) && items)
    return type === "array" && value.every((item) => matchesType(document, items, item));
  const kind = Array.isArray(value) ? "array" : typeof value;
  const types = [type].flat();
  return types.includes(kind) || (types.includes("integer") && Number.isInteger(value));
}

/** Examples of all problems by code, to be referenced from responses. */
export const PROBLEM_EXAMPLES = Object.fromEntries(
  Object.entries(PROBLEMS).map(([code, { status, title, detail }]) => [
    code,
    {
      summary: title,
      value: { type: `/problems/${code}`, title, status, detail, instance: EXAMPLE_ULID, code },
    },
  ]),
);

/** References the examples of these problems. */
export const problemExamples = (codes: readonly ProblemCode[]): Record<string, { $ref: string }> =>
  Object.fromEntries(codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]));
