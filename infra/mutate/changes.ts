/**
 * Lists the changes that the mutation tests can make to a file. A mutant is the code with one such change; if no test fails
 * with it, the tests do not check that place.
 */
import { parseSync, visitorKeys } from "oxc-parser";

/** A change of one place in a file. */
export interface Change {
  /** Path from the root. */
  file: string;
  line: number;
  /** Start and end of the replaced text in UTF-16 units. */
  start: number;
  end: number;
  /** Kind of the change, for example "condition negated". */
  operator: string;
  replacement: string;
}

/** All possible changes of one syntax node. The random sample (sample.ts) contains at most one of them. */
export type Place = Change[];

interface Node {
  type: string;
  start: number;
  end: number;
  [member: string]: unknown;
}

const OPERATOR_REPLACEMENTS: Record<string, string[]> = {
  "===": ["!=="],
  "!==": ["==="],
  "<": ["<=", ">="],
  "<=": ["<", ">"],
  ">": [">=", "<="],
  ">=": [">", "<"],
  "+": ["-"],
  "-": ["+"],
  "*": ["/"],
  "/": ["*"],
  "%": ["*"],
  "&&": ["||"],
  "||": ["&&"],
};
const METHOD_REPLACEMENTS: Record<string, string> = {
  some: "every",
  every: "some",
  min: "max",
  max: "min",
  floor: "ceil",
  ceil: "floor",
  startsWith: "endsWith",
  endsWith: "startsWith",
};
/** Matches the callee of calls that write to a log or to the output of a command, for example `deps.log?.info`. */
const LOG_CALL = /^(?:\w+\.)*(?:log|logger|console|context)\??\.(?:trace|debug|info|warn|error|log)$/;
/** Matches the names of object properties that contain text for people. */
const TEXT_MEMBER = /^(?:summary|description|title|detail|message|remedy|tag|tags|example|examples|reason|text|help)$/;

/**
 * Returns all possible changes of a file. Comments, types, imports, log lines, the arguments of created errors, and texts for
 * people (`TEXT_MEMBER`) are not changed.
 */
export function placesIn(file: string, text: string): Place[] {
  const { program } = parseSync(file, text);
  const lineStarts = [0, ...[...text.matchAll(/\n/g)].map((found) => found.index + 1)];
  const lineOf = (offset: number) => lineStarts.findLastIndex((start) => start <= offset) + 1;
  const source = (node: Node) => text.slice(node.start, node.end);
  const places: Place[] = [];

  // `isReturned`: the value of the node is what its function returns.
  const visit = (node: Node, parent: Node | undefined, inTry: boolean, isReturned: boolean): void => {
    if (isExcluded(node, source)) return;
    // The caller awaits a returned promise anyway. In `try`, `await` decides where an error is caught.
    const isRedundantAwait = node.type === "AwaitExpression" && isReturned && !inTry;
    const edits = isRedundantAwait ? [] : changesOf(node, parent, text);
    const changes = edits.map(([operator, start, end, replacement]) => {
      return { file, line: lineOf(start), start, end, operator, replacement };
    });
    if (changes.length > 0) places.push(changes);
    const childrenInTry = node.type === "TryStatement" || (inTry && !isFunction(node));
    for (const key of visitorKeys[node.type] ?? []) {
      const child = node[key] as Node | (Node | null)[] | null;
      for (const one of Array.isArray(child) ? child : [child])
        if (one) visit(one, node, childrenInTry, returnsValueOf(node, key, isReturned));
    }
  };
  visit(program as unknown as Node, undefined, false, false);
  return places;
}

/** Returns whether neither a node nor its children are changed: types, imports, re-exports, default exports, logs and texts. */
function isExcluded(node: Node, source: (node: Node) => string): boolean {
  // `as`, `!` and `satisfies` contain a value.
  if (/^TS(?!As|NonNull|Satisfies)/.test(node.type)) return true;
  if (/^(?:Import|Export(?:All|Default))Declaration$/.test(node.type)) return true;
  if (node.type === "ImportExpression" || (node.type === "ExportNamedDeclaration" && node.source)) return true;
  if (node.type === "CallExpression") return LOG_CALL.test(source(node.callee as Node));
  if (node.type === "Property") return TEXT_MEMBER.test(source(node.key as Node).replaceAll('"', ""));
  return node.type === "NewExpression" && /Error$/.test(source(node.callee as Node));
}

const isFunction = ({ type }: Node): boolean => /^(?:Arrow)?Function/.test(type);

/** Returns whether a function returns the value of this member of a node. `isReturned`: it returns the value of the node. */
function returnsValueOf({ type }: Node, member: string, isReturned: boolean): boolean {
  if (type === "ReturnStatement") return true;
  if (type === "ArrowFunctionExpression") return member === "body";
  if (type === "LogicalExpression") return isReturned && member === "right";
  if (type === "ConditionalExpression") return isReturned && member !== "test";
  return isReturned && type === "ParenthesizedExpression";
}

type Edit = [operator: string, start: number, end: number, replacement: string];

function changesOf(node: Node, parent: Node | undefined, text: string): Edit[] {
  const source = (one: Node) => text.slice(one.start, one.end);
  const replaceWith = (operator: string, replacement: string): Edit => [operator, node.start, node.end, replacement];
  const child = (name: string) => node[name] as Node;
  switch (node.type) {
    case "BinaryExpression":
    case "LogicalExpression": {
      const [left, right] = [child("left"), child("right")];
      const operator = node.operator as string;
      if (operator === "??") {
        return [
          replaceWith("without the default", `(${source(left)})!`),
          replaceWith("always the default", `(${source(right)})`),
        ];
      }
      const operatorStart = left.end + text.slice(left.end, right.start).indexOf(operator);
      return (OPERATOR_REPLACEMENTS[operator] ?? []).map((other) => [
        "another operator",
        operatorStart,
        operatorStart + operator.length,
        other,
      ]);
    }
    case "Literal":
      return changesOfLiteral(node, parent, text);
    case "ExpressionStatement":
      return isLogStatement(node, source) || ("directive" in node && node.directive)
        ? []
        : [replaceWith("without the statement", ";")];
    case "ThrowStatement":
      return [replaceWith("without the throw", ";")];
    case "IfStatement":
      return [
        ["condition negated", child("test").start, child("test").end, `!(${source(child("test"))})`],
        ...(node.alternate ? [] : [replaceWith("without the if", ";")]),
      ];
    case "ConditionalExpression":
      return [["condition negated", child("test").start, child("test").end, `!(${source(child("test"))})`]];
    case "AwaitExpression":
      return [replaceWith("not awaited", source(child("argument")))];
    case "UnaryExpression":
      return node.operator === "!" ? [replaceWith("not negated", `(${source(child("argument"))})`)] : [];
    // `undefined!` has the type `never`, which fits every return type.
    case "ReturnStatement":
      return node.argument && source(child("argument")) !== "undefined"
        ? [replaceWith("returns nothing", "return undefined!;")]
        : [];
    case "FunctionDeclaration":
    case "FunctionExpression":
    case "ArrowFunctionExpression": {
      const body = node.body as Node | null;
      // A function with a result would not compile.
      if (body?.type !== "BlockStatement" || source(body).includes("return ")) return [];
      // `Math` is always true, but the compiler does not know that, so it does not reject the rest as unreachable.
      return [["returns at once", body.start, body.start + 1, "{ if (Math) return;"]];
    }
    case "ArrayExpression":
      return withoutEach(node.elements as (Node | null)[], text, "without the element");
    case "ObjectExpression":
      return withoutEach(node.properties as Node[], text, "without the member");
    case "MemberExpression": {
      const property = child("property");
      const other = METHOD_REPLACEMENTS[source(property)];
      const isCalled = parent?.type === "CallExpression" && parent.callee === node;
      return other && isCalled && !node.computed ? [["another method", property.start, property.end, other]] : [];
    }
    default:
      return [];
  }
}

function changesOfLiteral(node: Node, parent: Node | undefined, text: string): Edit[] {
  const replaceWith = (operator: string, replacement: string): Edit => [operator, node.start, node.end, replacement];
  const { value } = node;
  if (typeof value === "boolean") return [replaceWith("true and false swapped", String(!value))];
  // The parentheses keep `--1` from becoming a decrement: `x - 0` becomes `x - (-1)`.
  if (typeof value === "number")
    return [replaceWith("one more", String(value + 1)), replaceWith("one less", `(${value - 1})`)];
  if (typeof value !== "string" || value === "" || /\s/.test(value)) return [];
  // The literal is the name of a property, not a value.
  if (parent?.type === "Property" && parent.key === node) return [];
  return text.slice(node.start, node.end).length > 2 ? [replaceWith("empty text", '""')] : [];
}

const isLogStatement = (node: Node, source: (node: Node) => string): boolean => {
  const call = node.expression as Node;
  return call.type === "CallExpression" && LOG_CALL.test(source(call.callee as Node));
};

/** Returns one edit for each member of a list, which removes the member and the comma after it. */
function withoutEach(members: (Node | null)[], text: string, operator: string): Edit[] {
  return members.flatMap((member): Edit[] => {
    if (!member || (member.type === "Property" && TEXT_MEMBER.test(text.slice(...rangeOf(member.key as Node)))))
      return [];
    const comma = /^\s*,/.exec(text.slice(member.end))?.[0].length ?? 0;
    return [[operator, member.start, member.end + comma, ""]];
  });
}

const rangeOf = (node: Node): [number, number] => [node.start, node.end];
