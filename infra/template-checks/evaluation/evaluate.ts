// Evaluates expressions of Bicep and Terraform with sample values. Each language resolves its own names and functions.

import type { Expression } from "../expression.ts";

/**
 * A value of a template. A value that only Azure knows, such as a resource ID, is a placeholder like `<vault.id>`, with the name
 * of the resource and the member.
 */
export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };

/** An expression has no value: it calls `fail`, refers to something that is not deployed, or is not supported. */
export class EvaluationError extends Error {}

/** Resolves the names and functions of one file in one language, at one place: inside of a loop, also the loop's variables. */
export interface Names {
  /** Returns the value of a name, member or index expression. Undefined if the expression refers to no declaration. */
  reference(expression: Expression): Value | undefined;
  /** Returns the result of a function. */
  call(expression: Extract<Expression, { kind: "call" }>, names: Names): Value;
  /** Returns the same names, and the variables of one iteration of a loop. */
  bind(variables: readonly string[], key: string | number, value: Value): Names;
}

/**
 * Returns the value of an expression.
 *
 * @throws `EvaluationError` if the expression has no value.
 */
export function evaluate(expression: Expression, names: Names): Value {
  switch (expression.kind) {
    case "literal":
      return expression.value;
    case "template":
      return expression.parts.map((part) => textOf(evaluate(part, names))).join("");
    case "array":
      return expression.items.map((item) => evaluate(item, names));
    case "object":
      return Object.fromEntries(
        expression.entries.map(({ key, keyExpression, value }) => [
          key ?? textOf(evaluate(keyExpression!, names)),
          evaluate(value, names),
        ]),
      );
    case "conditional":
      return evaluate(evaluate(expression.test, names) === true ? expression.whenTrue : expression.whenFalse, names);
    case "call":
      return expression.name === "can" ? hasValue(expression.args[0]!, names) : names.call(expression, names);
    case "for":
      return evaluateLoop(expression, names);
    case "name":
    case "member":
    case "index": {
      const value = names.reference(expression);
      if (value !== undefined || expression.kind === "name") return value ?? null;
      const key = expression.kind === "member" ? expression.name : textOf(evaluate(expression.index, names));
      return memberOf(evaluate(expression.of, names), key);
    }
    default:
      return evaluateOperation(expression, names);
  }
}

/** Returns whether an expression can be evaluated, as Terraform's function `can` does. */
function hasValue(expression: Expression, names: Names): boolean {
  try {
    evaluate(expression, names);
    return true;
  } catch (error) {
    if (error instanceof EvaluationError) return false;
    throw error;
  }
}

/** Returns a member of an object or an item of a list. Null if there is none, as the templates read optional members. */
function memberOf(of: Value, name: string): Value {
  if (Array.isArray(of)) return of[Number(name)] ?? null;
  return typeof of === "object" && of !== null ? (of[name] ?? null) : null;
}

/** Returns the pairs that a loop runs over: index and item of a list, or key and value of an object. */
export const entriesOf = (over: Value): [key: string | number, value: Value][] =>
  Array.isArray(over) ? over.map((item, index) => [index, item]) : Object.entries(over ?? {});

function evaluateLoop(loop: Extract<Expression, { kind: "for" }>, names: Names): Value {
  const isCondition = (part: Expression) => part.kind === "operation" && part.operator === "for_cond";
  const condition = loop.result.find(isCondition);
  // A loop with two results creates an object: the first is the key, the second the value.
  const [first, second] = loop.result.filter((part) => !isCondition(part));
  const iterations = entriesOf(evaluate(loop.over, names))
    .map(([key, value]) => names.bind(loop.variables, key, value))
    .filter((inner) => condition?.kind !== "operation" || evaluate(condition.parts[0]!, inner) === true);
  return second
    ? Object.fromEntries(iterations.map((inner) => [textOf(evaluate(first!, inner)), evaluate(second, inner)]))
    : iterations.map((inner) => evaluate(first!, inner));
}

function evaluateOperation({ operator, parts }: Extract<Expression, { kind: "operation" }>, names: Names): Value {
  const [left, right] = parts;
  // `resource[*].name`: only an output of the module `watch` has it, and no check reads that output.
  if (operator === "splat") return [];
  if (parts.length === 1) {
    const value = evaluate(left!, names);
    if (operator === "!") return value !== true;
    return operator === "-" ? -Number(value) : value;
  }
  if (operator === "&&") return evaluate(left!, names) === true && evaluate(right!, names) === true;
  if (operator === "||") return evaluate(left!, names) === true || evaluate(right!, names) === true;
  const [one, two] = [evaluate(left!, names), evaluate(right!, names)];
  const result = BINARY[operator]?.(one, two);
  if (result === undefined) throw new EvaluationError(`the operator ${operator} is not supported`);
  return result;
}

const isEqual = (one: Value, two: Value): boolean => JSON.stringify(one) === JSON.stringify(two);

/** Operators with two operands. */
const BINARY: Record<string, (one: Value, two: Value) => Value> = {
  "==": isEqual,
  "!=": (one, two) => !isEqual(one, two),
  "??": (one, two) => one ?? two,
  "<": (one, two) => Number(one) < Number(two),
  "<=": (one, two) => Number(one) <= Number(two),
  ">": (one, two) => Number(one) > Number(two),
  ">=": (one, two) => Number(one) >= Number(two),
  "+": (one, two) => Number(one) + Number(two),
  "-": (one, two) => Number(one) - Number(two),
  "*": (one, two) => Number(one) * Number(two),
  "/": (one, two) => Number(one) / Number(two),
  "%": (one, two) => Number(one) % Number(two),
};

/** Returns a value as text, as both languages convert it. */
export const textOf = (value: Value): string => (typeof value === "object" ? JSON.stringify(value) : String(value));
