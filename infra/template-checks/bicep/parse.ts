// Parses Bicep files into their declarations, with the tree-sitter grammar of Bicep.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Language, type Node, Parser } from "web-tree-sitter";
import type { Entry, Expression, Finding } from "../expression.ts";

/** A declaration with its symbolic name and line. */
export interface Declared {
  name: string;
  line: number;
}
export interface Parameter extends Declared {
  /** Type as written: `string`, `int`, `bool`, `object`, `string[]` … */
  type: string;
  defaultValue?: Expression;
  decorators: Expression[];
}
export interface Resource extends Declared {
  /** Resource type, such as `Microsoft.Storage/storageAccounts`. */
  type: string;
  version: string;
  existing: boolean;
  condition?: Expression;
  loop?: Loop;
  body: Expression;
}
export interface Module extends Declared {
  /** Path of the module's file, relative to the file that calls it. */
  path: string;
  condition?: Expression;
  loop?: Loop;
  body: Expression;
}
/** A loop: `for <variables> in <over>`. */
export interface Loop {
  variables: string[];
  over: Expression;
}
export interface Output extends Declared {
  type: string;
  value: Expression;
}

export interface BicepFile {
  path: string;
  /** Target scope: resourceGroup (the default), subscription, managementGroup or tenant. */
  scope: string;
  parameters: Parameter[];
  variables: (Declared & { value: Expression })[];
  resources: Resource[];
  modules: Module[];
  outputs: Output[];
  /** Syntax errors and unsupported syntax. */
  findings: Finding[];
}

let parser: Promise<Parser> | undefined;

async function bicepParser(): Promise<Parser> {
  await Parser.init();
  const require = createRequire(import.meta.url);
  const grammar = require.resolve("tree-sitter-bicep/tree-sitter-bicep.wasm");
  const newParser = new Parser();
  newParser.setLanguage(await Language.load(readFileSync(grammar)));
  return newParser;
}

/** Parses one Bicep file. Syntax errors and unsupported declarations become findings. */
export async function parseBicep(path: string, source: string): Promise<BicepFile> {
  parser ??= bicepParser();
  const tree = (await parser).parse(source);
  if (tree === null) throw new Error(`The Bicep parser returned no tree for ${path}.`);
  const file: BicepFile = {
    path,
    scope: "resourceGroup",
    parameters: [],
    variables: [],
    resources: [],
    modules: [],
    outputs: [],
    findings: syntaxErrors(path, tree.rootNode),
  };
  if (file.findings.length > 0) return file;
  let decorators: Expression[] = [];
  for (const node of namedChildren(tree.rootNode)) {
    if (node.type === "comment") continue;
    if (node.type === "decorators")
      decorators = namedChildren(node).map((decorator) => expression(namedChildren(decorator)[0]!));
    else {
      addDeclaration(file, node, decorators);
      decorators = [];
    }
  }
  return file;
}

/** Adds the declaration of a syntax node to the file. */
function addDeclaration(file: BicepFile, node: Node, decorators: Expression[]): void {
  const parts = namedChildren(node).filter(({ type }) => type !== "comment");
  const [first, second] = parts;
  const lastItem = parts.at(-1)!;
  const declared = { name: first?.text ?? "", line: line(node) };
  switch (node.type) {
    case "target_scope_assignment":
      file.scope = literalText(first!) ?? "";
      return;
    case "parameter_declaration": {
      const defaultValue = parts.length > 2 ? { defaultValue: expression(lastItem) } : {};
      file.parameters.push({ ...declared, type: second!.text, decorators, ...defaultValue });
      return;
    }
    case "variable_declaration":
      file.variables.push({ ...declared, value: expression(lastItem) });
      return;
    case "output_declaration":
      file.outputs.push({ ...declared, type: second!.text, value: expression(lastItem) });
      return;
    case "resource_declaration": {
      const [type = "", version = ""] = (literalText(second!) ?? "").split("@");
      const existing = node.children.some((child) => child?.type === "existing");
      file.resources.push({ ...declared, type, version, existing, ...bodyOf(lastItem) });
      return;
    }
    case "module_declaration":
      file.modules.push({ ...declared, path: literalText(second!) ?? "", ...bodyOf(lastItem) });
      return;
    default:
      file.findings.push({
        file: file.path,
        line: line(node),
        message: `${node.type} is syntax that the check does not support`,
      });
  }
}

/** Returns the body of a resource or module, with the condition and loop that precede it. */
function bodyOf(node: Node): { body: Expression; condition?: Expression; loop?: Loop } {
  if (node.type === "if_statement") {
    const [condition, body] = namedChildren(node);
    return { condition: expression(condition!), ...bodyOf(body!) };
  }
  if (node.type === "for_statement") {
    const { variables, over, body } = loopOf(node);
    return { loop: { variables, over: expression(over) }, ...bodyOf(body) };
  }
  return { body: expression(node) };
}

function loopOf(node: Node): { variables: string[]; over: Node; body: Node } {
  const [variables, over, body] = namedChildren(node).filter(({ type }) => type !== "comment");
  const names = variables!.type === "for_loop_parameters" ? namedChildren(variables!) : [variables!];
  return { variables: names.map(({ text }) => text), over: over!, body: body! };
}

function expression(node: Node): Expression {
  const position = { line: line(node) };
  const parts = namedChildren(node).filter(({ type }) => type !== "comment");
  switch (node.type) {
    case "string":
      return templateOf(node);
    case "number":
      return { ...position, kind: "literal", value: Number(node.text) };
    case "boolean":
      return { ...position, kind: "literal", value: node.text === "true" };
    case "null":
      return { ...position, kind: "literal", value: null };
    case "identifier":
    case "compatible_identifier":
      return { ...position, kind: "name", name: node.text };
    case "parenthesized_expression":
      return parts.length === 1
        ? expression(parts[0]!)
        : { ...position, kind: "operation", operator: "()", parts: parts.map(expression) };
    case "array":
      return { ...position, kind: "array", items: itemsOf(parts) };
    case "object":
      return {
        ...position,
        kind: "object",
        entries: parts.filter(({ type }) => type === "object_property").map(entryOf),
      };
    case "member_expression":
      return withSuffix(parts[0]!, (of) => ({ ...position, kind: "member", of, name: parts[1]!.text }));
    case "subscript_expression":
      return withSuffix(parts[0]!, (of) => ({ ...position, kind: "index", of, index: expression(parts[1]!) }));
    case "call_expression": {
      // A function with the same name as a declaration is called with its namespace.
      const name = parts[0]!.text.replace(/^(az|sys)\./, "");
      return { ...position, kind: "call", name, args: itemsOf(namedChildren(parts[1]!)) };
    }
    case "ternary_expression": {
      const [test, whenTrue, whenFalse] = parts.map(expression);
      return { ...position, kind: "conditional", test: test!, whenTrue: whenTrue!, whenFalse: whenFalse! };
    }
    case "for_statement": {
      const { variables, over, body } = loopOf(node);
      return { ...position, kind: "for", variables, over: expression(over), result: [expression(body)] };
    }
    default:
      return { ...position, kind: "operation", operator: operatorOf(node), parts: parts.map(expression) };
  }
}

/**
 * Adds a member or an index to an expression. The grammar parses `a ? b : c.d` as `(a ? b : c).d`, and operators in the same way.
 * Real parentheses are a node of their own.
 */
function withSuffix(node: Node, add: (of: Expression) => Expression): Expression {
  const of = expression(node);
  const { type } = node;
  const last = () =>
    namedChildren(node)
      .filter((part) => part.type !== "comment")
      .at(-1)!;
  if (of.kind === "conditional" && type !== "parenthesized_expression")
    return { ...of, whenFalse: type === "ternary_expression" ? withSuffix(last(), add) : add(of.whenFalse) };
  if (of.kind === "operation" && type === "binary_expression")
    return { ...of, parts: [...of.parts.slice(0, -1), withSuffix(last(), add)] };
  return add(of);
}

/** Returns the operator, such as `&&` or `-`. The grammar's name of the node if it has none. */
const operatorOf = (node: Node): string =>
  node.children.find((child) => child !== null && /^(&&|\|\||!|[=!<>]=|[<>+*/%-]|\?\?)$/.test(child.type))?.type ??
  node.type;

/**
 * Converts the items of an array. The grammar parses `f().x` in a single-line array as two items, `f` and `().x`. They are
 * joined.
 */
function itemsOf(nodes: Node[]): Expression[] {
  const items: Expression[] = [];
  for (const [index, node] of nodes.entries()) {
    if (node.type === "comment") continue;
    const previous = nodes[index - 1];
    const item = expression(node);
    if (previous?.type === "identifier" && previous.endIndex === node.startIndex) {
      items.pop();
      items.push(withCall(item, previous.text));
    } else items.push(item);
  }
  return items;
}

/** Puts the function name before the parentheses at the root of an expression such as `().x`. */
function withCall(item: Expression, name: string): Expression {
  if (item.kind === "member") return { ...item, of: withCall(item.of, name) };
  return { line: item.line, kind: "call", name, args: item.kind === "operation" ? item.parts : [item] };
}

function entryOf(node: Node): Entry {
  const [key, value] = namedChildren(node).filter(({ type }) => type !== "comment");
  const computed = key!.type === "string" && literalText(key!) === undefined;
  return {
    key: computed ? undefined : key!.type === "string" ? literalText(key!) : key!.text,
    ...(computed && { keyExpression: expression(key!) }),
    value: expression(value!),
    line: line(node),
  };
}

/** Converts a string: to a literal if it has no interpolation, otherwise to a template. */
function templateOf(node: Node): Expression {
  const position = { line: line(node) };
  const parts = namedChildren(node).map((part): Expression => {
    if (part.type === "interpolation") return expression(namedChildren(part)[0]!);
    return {
      line: line(part),
      kind: "literal",
      value: part.type === "escape_sequence" ? part.text.slice(1) : part.text,
    };
  });
  if (parts.every(({ kind }) => kind === "literal")) {
    return { ...position, kind: "literal", value: parts.map((part) => (part as { value: string }).value).join("") };
  }
  return { ...position, kind: "template", parts };
}

function literalText(node: Node): string | undefined {
  const template = templateOf(node);
  return template.kind === "literal" ? String(template.value) : undefined;
}

function syntaxErrors(path: string, node: Node): Finding[] {
  if (!node.hasError) return [];
  if (node.isError || node.isMissing) {
    return [{ file: path, line: line(node), message: `syntax error near "${node.text.slice(0, 40)}"` }];
  }
  return node.children.flatMap((child) => (child === null ? [] : syntaxErrors(path, child)));
}

const namedChildren = (node: Node): Node[] => node.namedChildren.filter((child) => child !== null);
const line = (node: Node): number => node.startPosition.row + 1;
