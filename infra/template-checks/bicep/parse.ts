// Parses Bicep files.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Language, type Node, Parser } from "web-tree-sitter";
import type { Entry, Expression, Finding } from "../expression.ts";

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
  path: string;
  condition?: Expression;
  loop?: Loop;
  body: Expression;
}
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
  scope: string;
  parameters: Parameter[];
  variables: (Declared & { value: Expression })[];
  resources: Resource[];
  modules: Module[];
  outputs: Output[];
  /** Lines that the parser could not read. */
  findings: Finding[];
}

let parser: Promise<Parser> | undefined;

async function bicepParser(): Promise<Parser> {
  await Parser.init();
  const require = createRequire(import.meta.url);
  const grammar = require.resolve("tree-sitter-bicep/tree-sitter-bicep.wasm");
  const made = new Parser();
  made.setLanguage(await Language.load(readFileSync(grammar)));
  return made;
}

/** Parses one Bicep file. Unsupported syntax is a finding and is never skipped silently. */
export async function parseBicep(path: string, source: string): Promise<BicepFile> {
  parser ??= bicepParser();
  const tree = (await parser).parse(source);
  if (tree === null) throw new Error(`The parser gave nothing for ${path}.`);
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
  for (const node of named(tree.rootNode)) {
    if (node.type === "comment") continue;
    if (node.type === "decorators") decorators = named(node).map((decorator) => expression(named(decorator)[0]!));
    else {
      declaration(file, node, decorators);
      decorators = [];
    }
  }
  return file;
}

function declaration(file: BicepFile, node: Node, decorators: Expression[]): void {
  const parts = named(node).filter(({ type }) => type !== "comment");
  const [first, second] = parts;
  const last = parts.at(-1)!;
  const declared = { name: first?.text ?? "", line: line(node) };
  switch (node.type) {
    case "target_scope_assignment":
      file.scope = literalText(first!) ?? "";
      return;
    case "parameter_declaration": {
      const defaultValue = parts.length > 2 ? { defaultValue: expression(last) } : {};
      file.parameters.push({ ...declared, type: second!.text, decorators, ...defaultValue });
      return;
    }
    case "variable_declaration":
      file.variables.push({ ...declared, value: expression(last) });
      return;
    case "output_declaration":
      file.outputs.push({ ...declared, type: second!.text, value: expression(last) });
      return;
    case "resource_declaration": {
      const [type = "", version = ""] = (literalText(second!) ?? "").split("@");
      const existing = node.children.some((child) => child?.type === "existing");
      file.resources.push({ ...declared, type, version, existing, ...bodyOf(last) });
      return;
    }
    case "module_declaration":
      file.modules.push({ ...declared, path: literalText(second!) ?? "", ...bodyOf(last) });
      return;
    default:
      file.findings.push({
        file: file.path,
        line: line(node),
        message: `${node.type} is syntax that the check does not support`,
      });
  }
}

/** Returns the object of a resource or module, below `if` and `for`. */
function bodyOf(node: Node): { body: Expression; condition?: Expression; loop?: Loop } {
  if (node.type === "if_statement") {
    const [condition, body] = named(node);
    return { condition: expression(condition!), ...bodyOf(body!) };
  }
  if (node.type === "for_statement") {
    const { variables, over, body } = loopOf(node);
    return { loop: { variables, over: expression(over) }, ...bodyOf(body) };
  }
  return { body: expression(node) };
}

function loopOf(node: Node): { variables: string[]; over: Node; body: Node } {
  const [variables, over, body] = named(node).filter(({ type }) => type !== "comment");
  const names = variables!.type === "for_loop_parameters" ? named(variables!) : [variables!];
  return { variables: names.map(({ text }) => text), over: over!, body: body! };
}

function expression(node: Node): Expression {
  const at = { line: line(node) };
  const parts = named(node).filter(({ type }) => type !== "comment");
  switch (node.type) {
    case "string":
      return templateOf(node);
    case "number":
      return { ...at, kind: "literal", value: Number(node.text) };
    case "boolean":
      return { ...at, kind: "literal", value: node.text === "true" };
    case "null":
      return { ...at, kind: "literal", value: null };
    case "identifier":
    case "compatible_identifier":
      return { ...at, kind: "name", name: node.text };
    case "parenthesized_expression":
      return parts.length === 1
        ? expression(parts[0]!)
        : { ...at, kind: "operation", operator: "()", parts: parts.map(expression) };
    case "array":
      return { ...at, kind: "array", items: itemsOf(parts) };
    case "object":
      return { ...at, kind: "object", entries: parts.filter(({ type }) => type === "object_property").map(entryOf) };
    case "member_expression":
      return { ...at, kind: "member", of: expression(parts[0]!), name: parts[1]!.text };
    case "subscript_expression":
      return { ...at, kind: "index", of: expression(parts[0]!), index: expression(parts[1]!) };
    case "call_expression": {
      // A function with the same name as a declaration is called with its namespace.
      const name = parts[0]!.text.replace(/^(az|sys)\./, "");
      return { ...at, kind: "call", name, args: itemsOf(named(parts[1]!)) };
    }
    case "ternary_expression": {
      const [test, whenTrue, whenFalse] = parts.map(expression);
      return { ...at, kind: "conditional", test: test!, whenTrue: whenTrue!, whenFalse: whenFalse! };
    }
    case "for_statement": {
      const { variables, over, body } = loopOf(node);
      return { ...at, kind: "for", variables, over: expression(over), result: [expression(body)] };
    }
    default:
      return { ...at, kind: "operation", operator: node.type, parts: parts.map(expression) };
  }
}

/** The grammar parses `f().x` in a single-line array as two items, `f` and `().x`. Joins them. */
function itemsOf(nodes: Node[]): Expression[] {
  const items: Expression[] = [];
  for (const [index, node] of nodes.entries()) {
    if (node.type === "comment") continue;
    const before = nodes[index - 1];
    const item = expression(node);
    if (before?.type === "identifier" && before.endIndex === node.startIndex) {
      items.pop();
      items.push(withCall(item, before.text));
    } else items.push(item);
  }
  // An array with one `for` is a loop.
  return items;
}

function withCall(item: Expression, name: string): Expression {
  if (item.kind === "member") return { ...item, of: withCall(item.of, name) };
  return { line: item.line, kind: "call", name, args: item.kind === "operation" ? item.parts : [item] };
}

function entryOf(node: Node): Entry {
  const [key, value] = named(node).filter(({ type }) => type !== "comment");
  const computed = key!.type === "string" && literalText(key!) === undefined;
  return {
    key: computed ? undefined : key!.type === "string" ? literalText(key!) : key!.text,
    ...(computed && { keyExpression: expression(key!) }),
    value: expression(value!),
    line: line(node),
  };
}

function templateOf(node: Node): Expression {
  const at = { line: line(node) };
  const parts = named(node).map((part): Expression => {
    if (part.type === "interpolation") return expression(named(part)[0]!);
    return {
      line: line(part),
      kind: "literal",
      value: part.type === "escape_sequence" ? part.text.slice(1) : part.text,
    };
  });
  if (parts.every(({ kind }) => kind === "literal")) {
    return { ...at, kind: "literal", value: parts.map((part) => (part as { value: string }).value).join("") };
  }
  return { ...at, kind: "template", parts };
}

function literalText(node: Node): string | undefined {
  const read = templateOf(node);
  return read.kind === "literal" ? String(read.value) : undefined;
}

function syntaxErrors(path: string, node: Node): Finding[] {
  if (!node.hasError) return [];
  if (node.isError || node.isMissing) {
    return [{ file: path, line: line(node), message: `syntax error near "${node.text.slice(0, 40)}"` }];
  }
  return node.children.flatMap((child) => (child === null ? [] : syntaxErrors(path, child)));
}

const named = (node: Node): Node[] => node.namedChildren.filter((child) => child !== null);
const line = (node: Node): number => node.startPosition.row + 1;
