import { describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { parse } from "../../shared/platform/http/parse-request.ts";
import { Problem, type ProblemPart } from "../../shared/platform/http/problem.ts";

const { endpoints } = await declarations();

/** Terms of the validation library that API callers don't know. */
const OF_THE_LIBRARY =
  /\b(invalid|expected|received|string|undefined|NaN|boolean|array|nonoptional|pattern|regex|unrecognized|union|discriminator|too (big|small))\b/i;
/** Messages that continue after the name of the member. */
const FOLLOWS_A_NAME = /^(must|is|has|can't|names|stands) /;

const WRONG: unknown[] = [
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
WRONG.push({ unknown: 1 }, Array(5000).fill("x"), { __proto__: null, a: { b: [] } });

/** A value as each member of the schema could be sent, at its place: all else is left out. */
function* wrongValues(schema: z.core.$ZodType, at: (value: unknown) => unknown = (value) => value): Generator<unknown> {
  for (const wrong of WRONG) yield at(wrong);
  const def = schema._zod.def as unknown as {
    type: string;
    innerType?: z.core.$ZodType;
    in?: z.core.$ZodType;
    element?: z.core.$ZodType;
    options?: z.core.$ZodType[];
    shape?: Record<string, z.core.$ZodType>;
    valueType?: z.core.$ZodType;
  };
  if (def.innerType ?? def.in) yield* wrongValues((def.innerType ?? def.in)!, at);
  if (def.element) yield* wrongValues(def.element, (value) => at([value]));
  if (def.valueType) yield* wrongValues(def.valueType, (value) => at({ name: value }));
  for (const option of def.options ?? []) yield* wrongValues(option, at);
  for (const [name, member] of Object.entries(def.shape ?? {}))
    yield* wrongValues(member, (value) => at({ [name]: value }));
}

function problemsOf(schema: z.ZodType, value: unknown, where: "body" | "query" | "path"): ProblemPart[] {
  try {
    parse(schema, value, where);
    return [];
  } catch (error) {
    if (error instanceof Problem) return error.errors!;
    throw error;
  }
}

test("every validation error of every endpoint is in plain words", () => {
  const said = new Set<string>();
  for (const { name, params, query, body } of endpoints) {
    const schemas = [
      ["path", params],
      ["query", query],
      ["body", body],
    ] as const;
    for (const [where, schema] of schemas) {
      if (!schema) continue;
      for (const value of wrongValues(schema)) {
        for (const { path, message } of problemsOf(schema, value, where)) {
          said.add(message);
          expect(message, `${name} ${path}`).not.toMatch(OF_THE_LIBRARY);
          expect(message, `${name} ${path}`).toMatch(FOLLOWS_A_NAME);
        }
      }
    }
  }
  expect([...said]).toEqual(
    expect.arrayContaining(["is missing", "must be an object", "must be text", "must be true or false"]),
  );
  expect(said.size).toBeGreaterThan(30);
});

describe("the message for", () => {
  const words = (schema: z.ZodType, value: unknown) =>
    problemsOf(z.strictObject({ member: schema }), { member: value }, "body").map(({ message }) => message);

  test.each<[string, z.ZodType, unknown, string]>([
    ["what is missing", z.string(), undefined, "is missing"],
    ["a text", z.string(), 7, "must be text"],
    ["a whole number", z.int(), 1.5, "must be a whole number"],
    ["a number", z.number(), "7", "must be a number"],
    ["a number that is none", z.number(), Number.NaN, "must be a number"],
    ["a list", z.array(z.string()), "x", "must be a list"],
    ["a choice", z.enum(["email", "teams"]), "mail", "must be one of email, teams"],
    ["the one choice", z.literal(true), false, "must be true"],
    ["an empty text", z.string().min(1), "", "must not be empty"],
    ["a short text", z.string().min(12), "x", "must have at least 12 characters"],
    ["a long text", z.string().max(1), "xy", "must have at most 1 character"],
    ["a text of another length", z.string().length(3), "xy", "must have exactly 3 characters"],
    ["a short list", z.array(z.int()).min(2), [1], "must have at least 2 items"],
    ["a large number", z.int().max(9), 10, "must be at most 9"],
    ["a number at its limit", z.number().lt(9), 9, "must be less than 9"],
    ["a small number", z.number().gt(0), 0, "must be more than 0"],
    ["no multiple", z.int().multipleOf(5), 7, "must be a multiple of 5"],
    ["no address", z.email(), "x", "must be an e-mail address"],
    ["no instant", z.iso.datetime(), "x", "must be an instant such as 2026-11-21T10:00:00Z"],
    ["another form", z.string().regex(/^a/), "x", "is not written as it must be"],
    ["neither of two", z.union([z.int(), z.boolean()]), "x", "must be a number, or must be true or false"],
    [
      "neither of two shapes",
      z.union([z.object({ a: z.int() }), z.int()]),
      {},
      "has none of the forms that are taken here",
    ],
    [
      "members that neither of two shapes has",
      z.union([z.strictObject({ a: z.int().optional() }), z.strictObject({ two: z.int().optional() })]),
      { [`${"n".repeat(64)}, cut`]: 1, two: 2 },
      `has members that are not known: ${"n".repeat(64)}, two, or has members that are not known: ${"n".repeat(64)}`,
    ],
    ["a name in a record", z.record(z.string().max(1), z.int()), { ab: 1 }, "has a name that can't be used"],
    ["what only a condition refuses", z.string().refine(() => false), "x", "can't be used here"],
  ])("%s", (_, schema, value, message) => {
    expect(words(schema, value)).toEqual([message]);
  });

  test("messages of schemas", () => {
    expect(words(z.string({ error: "must be a colour" }), 7)).toEqual(["must be a colour"]);
  });
});
