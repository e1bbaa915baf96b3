/**
 * An expression of Bicep or Terraform in a common form, so that the same code checks both. `line` is the line in the file, from
 * 1.
 */
export type Expression = { line: number } & (
  | { kind: "literal"; value: string | number | boolean | null }
  /** A string with interpolations. */
  | { kind: "template"; parts: Expression[] }
  | { kind: "object"; entries: Entry[] }
  | { kind: "array"; items: Expression[] }
  | { kind: "name"; name: string }
  | { kind: "member"; of: Expression; name: string }
  | { kind: "index"; of: Expression; index: Expression }
  | { kind: "call"; name: string; args: Expression[] }
  | { kind: "conditional"; test: Expression; whenTrue: Expression; whenFalse: Expression }
  /** A loop. `result` is one expression, or key and value if the loop creates a map in Terraform. */
  | { kind: "for"; variables: string[]; over: Expression; result: Expression[] }
  /** An operator, or another node that only combines its parts. */
  | { kind: "operation"; operator: string; parts: Expression[] }
);

/** A member of an object. */
export interface Entry {
  /** Undefined if the key is computed. */
  key: string | undefined;
  keyExpression?: Expression;
  value: Expression;
  line: number;
}

/** A problem in a template file. */
export interface Finding {
  file: string;
  /** Line number, starting at 1. */
  line: number;
  message: string;
}

/** Returns the direct subexpressions. */
export function children(expression: Expression): Expression[] {
  switch (expression.kind) {
    case "template":
    case "operation":
      return expression.parts;
    case "object":
      return expression.entries.flatMap(({ keyExpression, value }) =>
        keyExpression ? [keyExpression, value] : [value],
      );
    case "array":
      return expression.items;
    case "member":
      return [expression.of];
    case "index":
      return [expression.of, expression.index];
    case "call":
      return expression.args;
    case "conditional":
      return [expression.test, expression.whenTrue, expression.whenFalse];
    case "for":
      return [expression.over, ...expression.result];
    default:
      return [];
  }
}

/** Returns the value of a nested member of an object. Undefined if a key on the path is missing. */
export function property(expression: Expression | undefined, ...path: string[]): Expression | undefined {
  let current = expression;
  for (const key of path) {
    current = current?.kind === "object" ? current.entries.find((entry) => entry.key === key)?.value : undefined;
  }
  return current;
}

/** Returns the text of a string literal. */
export function text(expression: Expression | undefined): string | undefined {
  return expression?.kind === "literal" && typeof expression.value === "string" ? expression.value : undefined;
}

/** Returns `a.b.c` as `["a", "b", "c"]`, without indexes. Undefined if the expression does not start with a name. */
export function dotted(expression: Expression): string[] | undefined {
  if (expression.kind === "name") return [expression.name];
  if (expression.kind === "index") return dotted(expression.of);
  if (expression.kind !== "member") return undefined;
  const of = dotted(expression.of);
  return of && [...of, expression.name];
}
