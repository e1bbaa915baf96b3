// Parses Terraform files into blocks and expressions, with the tree-sitter grammar of Terraform.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Language, type Node, Parser } from "web-tree-sitter";
import type { Entry, Expression, Finding } from "../expression.ts";

/** A block, such as `resource "azurerm_x" "y" { … }`, or a block inside another. */
export interface Block {
  type: string;
  labels: string[];
  /** `source` is the expression as written. */
  attributes: Map<string, { value: Expression; line: number; source: string }>;
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

/**
 * Parses one Terraform file. Syntax errors become findings. Syntax without an own kind becomes an expression of kind
 * `operation`.
 */
export async function parseTerraform(path: string, source: string): Promise<TerraformFile> {
  sharedParser ??= createTerraformParser();
  const tree = (await sharedParser).parse(source);
  if (tree === null) throw new Error(`The Terraform parser returned no tree for ${path}.`);
  const findings = syntaxErrors(path, tree.rootNode);
  const body = namedChildren(tree.rootNode).find(({ type }) => type === "body");
  return { path, findings, blocks: findings.length > 0 || !body ? [] : blocksOf(body).blocks };
}

function blocksOf(body: Node): Pick<Block, "attributes" | "blocks"> {
  const attributes: Block["attributes"] = new Map();
  const blocks: Block[] = [];
  for (const node of namedChildren(body)) {
    const parts = namedChildren(node);
    if (node.type === "attribute")
      attributes.set(parts[0]!.text, { value: expression(parts[1]!), line: line(node), source: parts[1]!.text });
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

/** Converts a syntax node. The first group of node types only wraps a name or value and its suffixes. */
function expression(node: Node): Expression {
  const position = { line: line(node) };
  const parts = namedChildren(node).filter(({ type }) => !PUNCTUATION.has(type));
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
      return { ...position, kind: "literal", value: unquoted(node.text) };
    case "template_literal":
      return { ...position, kind: "literal", value: node.text };
    case "numeric_lit":
      return { ...position, kind: "literal", value: Number(node.text) };
    case "bool_lit":
      return { ...position, kind: "literal", value: node.text === "true" };
    case "null_lit":
      return { ...position, kind: "literal", value: null };
    case "variable_expr":
    case "identifier":
      return { ...position, kind: "name", name: node.text };
    case "quoted_template":
      return { ...position, kind: "template", parts: parts.map(expression) };
    case "template_interpolation":
      return parseTraversal(parts);
    case "tuple":
      return { ...position, kind: "array", items: parts.map(expression) };
    case "object":
      return { ...position, kind: "object", entries: parts.map(entryOf) };
    case "function_call":
      return {
        ...position,
        kind: "call",
        name: parts[0]!.text,
        args: parts[1] ? namedChildren(parts[1]).map(expression) : [],
      };
    case "conditional": {
      const [test, whenTrue, whenFalse] = parts.map(expression);
      return { ...position, kind: "conditional", test: test!, whenTrue: whenTrue!, whenFalse: whenFalse! };
    }
    case "for_tuple_expr":
    case "for_object_expr":
      return loopOf(node, parts);
    default:
      return { ...position, kind: "operation", operator: operatorOf(node), parts: operands(parts).map(parseTraversal) };
  }
}

/** Returns the operator, such as `&&` or `-`. The grammar's name of the node if it has none. */
const operatorOf = (node: Node): string =>
  node.children.find((child) => child !== null && /^(&&|\|\||!|[=!<>]=|[<>+*/%-])$/.test(child.type))?.type ??
  node.type;

/** Groups the nodes of an operation such as `a.b > c.d` by operand: the grammar lists names and their suffixes in one list. */
function operands(parts: Node[]): Node[][] {
  const result: Node[][] = [];
  for (const part of parts) {
    if (["get_attr", "index", "splat"].includes(part.type)) result.at(-1)?.push(part);
    else result.push([part]);
  }
  return result;
}

/** Parses `a.b[0].c`: a name and its suffixes. */
function parseTraversal(parts: Node[]): Expression {
  let result = expression(parts[0]!);
  for (const part of parts.slice(1)) {
    const inner = namedChildren(part);
    if (part.type === "get_attr") result = { line: line(part), kind: "member", of: result, name: inner[0]!.text };
    else if (part.type === "index")
      result = { line: line(part), kind: "index", of: result, index: expression(inner[0]!) };
    else result = { line: line(part), kind: "operation", operator: part.type, parts: [result] };
  }
  return result;
}

/** Converts a `for` loop. `intro` is `for <variables> in <over>`. The other nodes are the result and the condition. */
function loopOf(node: Node, parts: Node[]): Expression {
  const [intro, ...rest] = parts;
  const inner = namedChildren(intro!);
  return {
    line: line(node),
    kind: "for",
    variables: inner.filter(({ type }) => type === "identifier").map(({ text }) => text),
    over: expression(inner.at(-1)!),
    result: rest.map(expression),
  };
}

function entryOf(node: Node): Entry {
  const [key, value] = namedChildren(node);
  const keyExpression = expression(key!);
  const literal =
    keyExpression.kind === "name"
      ? keyExpression.name
      : keyExpression.kind === "literal"
        ? String(keyExpression.value)
        : undefined;
  return {
    key: literal,
    ...(literal === undefined && { keyExpression }),
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
const namedChildren = (node: Node): Node[] =>
  node.namedChildren.filter((child) => child !== null && child.type !== "comment") as Node[];
const line = (node: Node): number => node.startPosition.row + 1;
const unquoted = (written: string): string => written.slice(1, -1);
