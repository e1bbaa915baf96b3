// Evaluates the condition (`if`) of an Azure Policy rule for a planned resource, in three values: true, false, and undefined if
// the result depends on a function or value that is not known before the deployment.
// https://learn.microsoft.com/azure/governance/policy/concepts/definition-structure-policy-rule#conditions

import type { PlannedResource } from "../plan.ts";
import { isObject, memberOf, sameValue, UNKNOWN, type Value } from "../values.ts";
import { type Functions, resolve } from "./expressions.ts";
import { fieldValues } from "./fields.ts";

/** The result of a condition. Undefined: it can't be known before the deployment. */
export type Truth = boolean | undefined;

/** Inputs of an evaluation. */
export interface Evaluation {
  resource: PlannedResource;
  functions: Functions;
}

export function evaluateCondition(condition: Value, evaluation: Evaluation): Truth {
  if (!isObject(condition)) return undefined;
  const inner = (value: Value): Truth[] => {
    const conditions: Value[] = Array.isArray(value) ? value : [value];
    return conditions.map((one) => evaluateCondition(one, evaluation));
  };
  const allOf = memberOf(condition, "allOf");
  if (allOf !== undefined) return every(inner(allOf));
  const anyOf = memberOf(condition, "anyOf");
  if (anyOf !== undefined) return some(inner(anyOf));
  const not = memberOf(condition, "not");
  if (not !== undefined) return negate(evaluateCondition(not, evaluation));
  const [operator, operand] = Object.entries(condition).find(([name]) => name.toLowerCase() in OPERATORS) ?? [];
  const values = valuesOf(condition, evaluation);
  if (operator === undefined || values === undefined) return undefined;
  const expected = resolve(operand, evaluation.functions);
  if (expected === UNKNOWN) return undefined;
  // A condition on the elements of a list must be true for each element.
  return every(
    values.map((value) => (value === UNKNOWN ? undefined : OPERATORS[operator.toLowerCase()]!(value, expected))),
  );
}

/** Returns the values that a condition compares. Undefined if they are not known. */
function valuesOf(condition: Value, evaluation: Evaluation): Value[] | undefined {
  const field = memberOf(condition, "field");
  if (field !== undefined) {
    const name = resolve(field, evaluation.functions);
    return typeof name === "string" ? fieldValues(evaluation.resource, name) : undefined;
  }
  const count = memberOf(condition, "count");
  if (count !== undefined) return countOf(count, evaluation);
  const value = memberOf(condition, "value");
  return value === undefined ? undefined : [resolve(value, evaluation.functions)];
}

/** Counts the elements of a list for which the inner condition is true. */
function countOf(count: Value, { resource, functions }: Evaluation): Value[] | undefined {
  const [field, where, name] = ["field", "where", "name"].map((member) => memberOf(count, member));
  const list = memberOf(count, "value");
  if (typeof field === "string") {
    const elements = fieldValues(resource, field);
    // Fields inside of the elements are not supported. An empty list needs none.
    if (elements.length === 0) return [0];
    return where === undefined && !elements.includes(UNKNOWN) ? [elements.length] : undefined;
  }
  const elements = resolve(list, functions);
  if (!Array.isArray(elements)) return undefined;
  const truths = elements.map((element) => {
    const current = (args: Value[]) => (args.length === 0 || args[0] === name ? element : UNKNOWN);
    return where === undefined ? true : evaluateCondition(where, { resource, functions: { ...functions, current } });
  });
  return truths.includes(undefined) ? undefined : [truths.filter(Boolean).length];
}

const every = (truths: Truth[]): Truth =>
  truths.includes(false) ? false : truths.includes(undefined) ? undefined : true;
const some = (truths: Truth[]): Truth =>
  truths.includes(true) ? true : truths.includes(undefined) ? undefined : false;
const negate = (truth: Truth): Truth => (truth === undefined ? undefined : !truth);

type Operator = (value: Value, expected: Value) => Truth;

const isIn: Operator = (value, list) => (Array.isArray(list) ? list.some((one) => sameValue(value, one)) : undefined);
const isContained: Operator = (value, part) => {
  if (Array.isArray(value)) return value.some((one) => sameValue(one, part));
  return value !== undefined && value !== null && String(value).toLowerCase().includes(String(part).toLowerCase());
};
const hasKey: Operator = (value, key) => memberOf(value, String(key)) !== undefined;
/** `*` stands for any characters. */
const isLike: Operator = (value, pattern) => matchesPattern(value, String(pattern), { "*": ".*" });
/** `#` stands for a digit, `?` for a letter, and `.` for any character. */
const matches: Operator = (value, pattern) =>
  matchesPattern(value, String(pattern), { "#": "\\d", "?": "[A-Za-z]", ".": "." });
/** Compares numbers if the expected value is one, else texts. `test` gets -1, 0 or 1. */
const compare =
  (test: (value: number) => boolean): Operator =>
  (value, expected) => {
    if (value === undefined || value === null) return false;
    const [left, right] = typeof expected === "number" ? [Number(value), expected] : [String(value), String(expected)];
    return test(left < right ? -1 : left > right ? 1 : 0);
  };
const not =
  (operator: Operator): Operator =>
  (value, expected) =>
    negate(operator(value, expected));

function matchesPattern(value: Value, pattern: string, wildcards: Record<string, string>): boolean {
  if (value === undefined || value === null) return false;
  const expression = [...pattern]
    .map((sign) => wildcards[sign] ?? sign.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .join("");
  return new RegExp(`^${expression}$`, "i").test(String(value));
}

const OPERATORS: Readonly<Record<string, Operator>> = {
  equals: sameValue,
  notequals: not(sameValue),
  in: isIn,
  notin: not(isIn),
  contains: isContained,
  notcontains: not(isContained),
  containskey: hasKey,
  notcontainskey: not(hasKey),
  like: isLike,
  notlike: not(isLike),
  match: matches,
  notmatch: not(matches),
  matchinsensitively: matches,
  notmatchinsensitively: not(matches),
  exists: (value, expected) => (value !== undefined && value !== null) === sameValue(expected, true),
  less: compare((order) => order < 0),
  lessorequals: compare((order) => order <= 0),
  greater: compare((order) => order > 0),
  greaterorequals: compare((order) => order >= 0),
};
