// Parses Terraform files into blocks and expressions.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Language, type Node, Parser } from "web-tree-sitter";
import type { Entry, Expression, Finding } from "../expression.ts";

/** A block, such as `resource "azurerm_x" "y" { … }`, or a block inside another. */
export interface Block {
  type: string;
  labels: string[];
  attributes: Map<string, { value: Expression; line: number }>;
  blocks: Block[];
  line: number;
}

export interface TerraformFile {
  path: string;
  blocks: Block[];
  findings: Finding[];
}

let sharedParser: Promise<Parser> | undefined;

async function createTerraformParser(): Promise<Parser> {
  await Parser.init();
  const require = createRequire(import.meta.url);
  const grammar = require.resolve("@tree-sitter-grammars/tree-sitter-hcl/tree-sitter-terraform.wasm");
  const parser = new Parser();
  parser.setLanguage(await Language.load(readFileSync(grammar)));
  return parser;
}

/** Parses one Terraform file. Syntax errors become findings. Unknown kinds of nodes become expressions of kind `operation`. */
export async function parseTerraform(path: string, source: string): Promise<TerraformFile> {
  sharedParser ??= createTerraformParser();
  const tree = (await sharedParser).parse(source);
  if (tree === null) throw new Error(`The parser gave nothing for ${path}.`);
  const findings = syntaxErrors(path, tree.rootNode);
  const body = named(tree.rootNode).find(({ type }) => type === "body");
  return { path, findings, blocks: findings.length > 0 || !body ? [] : blocksOf(body).blocks };
}

function blocksOf(body: Node): Pick<Block, "attributes" | "blocks"> {
  const attributes: Block["attributes"] = new Map();
  const blocks: Block[] = [];
  for (const node of named(body)) {
    const parts = named(node);
    if (node.type === "attribute") attributes.set(parts[0]!.text, { value: expression(parts[1]!), line: line(node) });
    if (node.type !== "block") continue;
    const inner = parts.find(({ type }) => type === "body");
    blocks.push({
      type: parts[0]!.text,
      labels: parts.filter(({ type }) => type === "string_lit").map(({ text }) => text.slice(1, -1)),
      ...(inner ? blocksOf(inner) : { attributes: new Map(), blocks: [] }),
      line: line(node),
    });
  }
  return { attributes, blocks };
}

function expression(node: Node): Expression {
  const at = { line: line(node) };
  const parts = named(node).filter(({ type }) => !PUNCTUATION.has(type));
  switch (node.type) {
    case "expression":
    case "literal_value":
    case "template_expr":
    case "collection_value":
    case "operation":
    case "for_expr":
    case "new_index":
      return parseTraversal(parts);
    case "string_lit":
      return { ...at, kind: "literal", value: unquoted(node.text) };
    case "template_literal":
      return { ...at, kind: "literal", value: node.text };
    case "numeric_lit":
      return { ...at, kind: "literal", value: Number(node.text) };
    case "bool_lit":
      return { ...at, kind: "literal", value: node.text === "true" };
    case "null_lit":
      return { ...at, kind: "literal", value: null };
    case "variable_expr":
    case "identifier":
      return { ...at, kind: "name", name: node.text };
    case "quoted_template":
      return { ...at, kind: "template", parts: parts.map(expression) };
    case "template_interpolation":
      return parseTraversal(parts);
    case "tuple":
      return { ...at, kind: "array", items: parts.map(expression) };
    case "object":
      return { ...at, kind: "object", entries: parts.map(entryOf) };
    case "function_call":
      return { ...at, kind: "call", name: parts[0]!.text, args: parts[1] ? named(parts[1]).map(expression) : [] };
    case "conditional": {
      const [test, whenTrue, whenFalse] = parts.map(expression);
      return { ...at, kind: "conditional", test: test!, whenTrue: whenTrue!, whenFalse: whenFalse! };
    }
    case "for_tuple_expr":
    case "for_object_expr":
      return loopOf(node, parts);
    default:
      return { ...at, kind: "operation", operator: node.type, parts: operands(parts).map(parseTraversal) };
  }
}

/** Parses `a.b > c.d`. The grammar lists names and their suffixes one after the other. */
function operands(parts: Node[]): Node[][] {
  const found: Node[][] = [];
  for (const part of parts) {
    if (["get_attr", "index", "splat"].includes(part.type)) found.at(-1)?.push(part);
    else found.push([part]);
  }
  return found;
}

/** Parses `a.b[0].c`: a name and its suffixes. */
function parseTraversal(parts: Node[]): Expression {
  let found = expression(parts[0]!);
  for (const part of parts.slice(1)) {
    const inner = named(part);
    if (part.type === "get_attr") found = { line: line(part), kind: "member", of: found, name: inner[0]!.text };
    else if (part.type === "index")
      found = { line: line(part), kind: "index", of: found, index: expression(inner[0]!) };
    else found = { line: line(part), kind: "operation", operator: part.type, parts: [found] };
  }
  return found;
}

function loopOf(node: Node, parts: Node[]): Expression {
  const [intro, ...rest] = parts;
  const inner = named(intro!);
  return {
    line: line(node),
    kind: "for",
    variables: inner.filter(({ type }) => type === "identifier").map(({ text }) => text),
    over: expression(inner.at(-1)!),
    result: rest.map(expression),
  };
}

function entryOf(node: Node): Entry {
  const [key, value] = named(node);
  const read = expression(key!);
  const literal = read.kind === "name" ? read.name : read.kind === "literal" ? String(read.value) : undefined;
  return {
    key: literal,
    ...(literal === undefined && { keyExpression: read }),
    value: expression(value!),
    line: line(node),
  };
}

function syntaxErrors(path: string, node: Node): Finding[] {
  if (!node.hasError) return [];
  if (node.isError || node.isMissing) {
    return [{ file: path, line: line(node), message: `syntax error near "${node.text.slice(0, 40)}"` }];
  }
  return node.children.flatMap((child) => (child === null ? [] : syntaxErrors(path, child)));
}

const PUNCTUATION = new Set([
  "comment",
  "object_end",
  "object_start",
  "quoted_template_end",
  "quoted_template_start",
  "template_interpolation_end",
  "template_interpolation_start",
  "tuple_end",
  "tuple_start",
]);
const named = (node: Node): Node[] =>
  node.namedChildren.filter((child) => child !== null && child.type !== "comment") as Node[];
const line = (node: Node): number => node.startPosition.row + 1;
const unquoted = (written: string): string => written.slice(1, -1);
