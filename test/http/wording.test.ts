import { describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { parse } from "../../shared/platform/http/parse-request.ts";
import { Problem, type ProblemPart } from "../../shared/platform/http/problem.ts";

// Tests the texts of validation errors: the service replaces the validation library's messages by messages in plain words.

const { endpoints } = await declarations();

/** Terms of the validation library that API callers don't know. */
const LIBRARY_TERMS =
  /\b(invalid|expected|received|string|undefined|NaN|boolean|array|nonoptional|pattern|regex|unrecognized|union|discriminator|too (big|small))\b/i;
/** Messages start with a verb, because callers read them after the member's name: `name: is missing`. */
const STARTS_WITH_VERB = /^(must|is|has|can't|names|stands) /;

/** Values of all kinds, which few members accept. */
const TRIED_VALUES: unknown[] = [
  undefined,
  null,
  7,
  -1,
  1.5,
  1e300,
  true,
  "",
  "no such",
  "x".repeat(70_000),
  [],
  [7],
  [""],
  {},
];
TRIED_VALUES.push({ unknown: 1 }, Array(5000).fill("x"), { __proto__: null, a: { b: [] } });

/**
 * Yields every tried value in the place of the whole request, and of each member at any depth. The request has no other members.
 *
 * @param inRequest - Returns the request that has the value in the place that `schema` describes.
 */
function* invalidRequests(
  schema: z.core.$ZodType,
  inRequest: (value: unknown) => unknown = (value) => value,
): Generator<unknown> {
  for (const value of TRIED_VALUES) yield inRequest(value);
  const def = schema._zod.def as unknown as {
    type: string;
    innerType?: z.core.$ZodType;
    in?: z.core.$ZodType;
    element?: z.core.$ZodType;
    options?: z.core.$ZodType[];
    shape?: Record<string, z.core.$ZodType>;
    valueType?: z.core.$ZodType;
  };
  if (def.innerType ?? def.in) yield* invalidRequests((def.innerType ?? def.in)!, inRequest);
  if (def.element) yield* invalidRequests(def.element, (value) => inRequest([value]));
  if (def.valueType) yield* invalidRequests(def.valueType, (value) => inRequest({ name: value }));
  for (const option of def.options ?? []) yield* invalidRequests(option, inRequest);
  for (const [name, member] of Object.entries(def.shape ?? {}))
    yield* invalidRequests(member, (value) => inRequest({ [name]: value }));
}

/** Returns the errors that validation reports for a value, or an empty list if the value is valid. */
function validationErrors(schema: z.ZodType, value: unknown, where: "body" | "query" | "path"): ProblemPart[] {
  try {
    parse(schema, value, where);
    return [];
  } catch (error) {
    if (error instanceof Problem) return error.errors!;
    throw error;
  }
}

test("validation errors of all endpoints are in plain words", () => {
  const messages = new Set<string>();
  for (const { name, params, query, body } of endpoints) {
    const schemas = [
      ["path", params],
      ["query", query],
      ["body", body],
    ] as const;
    for (const [where, schema] of schemas) {
      if (!schema) continue;
      for (const value of invalidRequests(schema)) {
        for (const { path, message } of validationErrors(schema, value, where)) {
          messages.add(message);
          expect(message, `${name} ${path}`).not.toMatch(LIBRARY_TERMS);
          expect(message, `${name} ${path}`).toMatch(STARTS_WITH_VERB);
        }
      }
    }
  }
  // Controls: the tried values caused many different errors.
  expect([...messages]).toEqual(
    expect.arrayContaining(["is missing", "must be an object", "must be text", "must be true or false"]),
  );
  expect(messages.size).toBeGreaterThan(30);
});

describe("the message for", () => {
  const messagesFor = (schema: z.ZodType, value: unknown) =>
    validationErrors(z.strictObject({ member: schema }), { member: value }, "body").map(({ message }) => message);

  test.each<[string, z.ZodType, unknown, string]>([
    ["a missing member", z.string(), undefined, "is missing"],
    ["a number instead of text", z.string(), 7, "must be text"],
    ["a fraction instead of a whole number", z.int(), 1.5, "must be a whole number"],
    ["text instead of a number", z.number(), "7", "must be a number"],
    ["NaN instead of a number", z.number(), Number.NaN, "must be a number"],
    ["text instead of a list", z.array(z.string()), "x", "must be a list"],
    ["an unknown choice", z.enum(["email", "teams"]), "mail", "must be one of email, teams"],
    ["a value other than the only allowed one", z.literal(true), false, "must be true"],
    ["an empty text", z.string().min(1), "", "must not be empty"],
    ["a text that is too short", z.string().min(12), "x", "must have at least 12 characters"],
    ["a text that is too long", z.string().max(1), "xy", "must have at most 1 character"],
    ["a text of another length", z.string().length(3), "xy", "must have exactly 3 characters"],
    ["a list that is too short", z.array(z.int()).min(2), [1], "must have at least 2 items"],
    ["a number over the maximum", z.int().max(9), 10, "must be at most 9"],
    ["a number at its exclusive maximum", z.number().lt(9), 9, "must be less than 9"],
    ["a number at its exclusive minimum", z.number().gt(0), 0, "must be more than 0"],
    ["a number that is no multiple", z.int().multipleOf(5), 7, "must be a multiple of 5"],
    ["an invalid e-mail address", z.email(), "x", "must be an e-mail address"],
    ["an invalid instant", z.iso.datetime(), "x", "must be an instant such as 2026-11-21T10:00:00Z"],
    ["a text that does not match the pattern", z.string().regex(/^a/), "x", "has an invalid format"],
    ["a value of neither type", z.union([z.int(), z.boolean()]), "x", "must be a number, or must be true or false"],
    [
      "an object of neither shape",
      z.union([z.object({ a: z.int() }), z.int()]),
      {},
      "does not match any of the accepted forms",
    ],
    [
      // A name of more than 64 characters is cut.
      "members that neither shape has",
      z.union([z.strictObject({ a: z.int().optional() }), z.strictObject({ two: z.int().optional() })]),
      { [`${"n".repeat(64)}, cut`]: 1, two: 2 },
      `has unknown members: ${"n".repeat(64)}, two, or has unknown members: ${"n".repeat(64)}`,
    ],
    ["an invalid name in a record", z.record(z.string().max(1), z.int()), { ab: 1 }, "has an invalid member name"],
    ["a value that a `refine` rejects", z.string().refine(() => false), "x", "is not valid"],
  ])("%s is in plain words", (_invalidValue, schema, value, message) => {
    expect(messagesFor(schema, value)).toEqual([message]);
  });

  test("a schema with an own message is that message", () => {
    expect(messagesFor(z.string({ error: "must be a colour" }), 7)).toEqual(["must be a colour"]);
  });
});
