// Checks the Terraform module against the schema of the azurerm provider.

import path from "node:path";
import { children, dotted, type Expression, type Finding, property, text } from "../expression.ts";
import described from "./azurerm.json" with { type: "json" };
import { FUNCTIONS } from "./functions.ts";
import type { Block, TerraformFile } from "./parse.ts";

/** An argument of a resource: a value, or a block with arguments. */
interface Argument {
  required?: boolean;
  type?: string;
  values?: string[];
  block?: Arguments;
}
type Arguments = Record<string, Argument>;

const RESOURCES = described.resources as Record<string, { arguments: Arguments; attributes: string[] }>;

/** Arguments that Terraform itself defines. */
const META = new Set(["count", "for_each", "depends_on", "lifecycle", "provider"]);
const MODULE_META = new Set([...META, "source", "version", "providers"]);

/** Data sources that the module reads, with their attributes. */
const DATA: Record<string, string[]> = {
  azurerm_client_config: ["tenant_id", "subscription_id", "client_id", "object_id"],
};

/** A folder with its files, which share variables, locals and resources. */
export interface TerraformModule {
  folder: string;
  files: TerraformFile[];
}

export function modulesOf(files: readonly TerraformFile[]): TerraformModule[] {
  const folders = [...new Set(files.map((file) => path.posix.dirname(file.path)))];
  return folders.map((folder) => ({ folder, files: files.filter((file) => path.posix.dirname(file.path) === folder) }));
}

/** Returns the blocks of a type, with the file of each. */
export function blocks(module: TerraformModule, type: string): { block: Block; file: string }[] {
  return module.files.flatMap((file) =>
    file.blocks.filter((block) => block.type === type).map((block) => ({ block, file: file.path })),
  );
}

/** Checks the names, arguments, values, variables and outputs of every module. */
export function checkTerraform(files: readonly TerraformFile[], exists: (file: string) => boolean): Finding[] {
  const modules = modulesOf(files);
  return [
    ...files.flatMap((file) => file.findings),
    ...modules.flatMap((module) => new ModuleCheck(module, modules, exists).findings()),
  ];
}

class ModuleCheck {
  readonly #module: TerraformModule;
  readonly #all: TerraformModule[];
  readonly #exists: (file: string) => boolean;
  readonly #findings: Finding[] = [];
  readonly #used = new Set<string>();

  constructor(module: TerraformModule, all: TerraformModule[], exists: (file: string) => boolean) {
    this.#module = module;
    this.#all = all;
    this.#exists = exists;
  }

  findings(): Finding[] {
    this.#twice();
    for (const { block, file } of this.#of("resource")) {
      const known = RESOURCES[block.labels[0]!];
      if (!known) this.#add(file, block.line, `${block.labels[0]} is not described in azurerm.json`);
      else this.#arguments(block, known.arguments, file, true);
    }
    for (const { block, file } of this.#of("data")) {
      if (!DATA[block.labels[0]!])
        this.#add(file, block.line, `${block.labels[0]} is a data source that the check does not support`);
    }
    for (const { block, file } of this.#of("module")) this.#call(block, file);
    for (const { block, file } of this.#of("variable")) this.#variable(block, file);
    for (const { block, file } of this.#of("check")) {
      const isWhole = ({ type, attributes }: Block) =>
        type === "assert" && [...attributes.keys()].sort().join() === "condition,error_message";
      if (block.attributes.size > 0 || !block.blocks.every(isWhole) || block.blocks.length === 0)
        this.#add(file, block.line, "a check has asserts, each with only a condition and an error_message");
    }
    for (const { block, file } of this.#of("output")) {
      if (!block.attributes.has("value")) this.#add(file, block.line, `output ${block.labels[0]} has no value`);
    }
    for (const file of this.#module.files)
      for (const block of file.blocks) this.#expressions(block, file.path, new Set());
    for (const { block, file } of this.#of("variable")) {
      if (!this.#used.has(`var.${block.labels[0]}`))
        this.#add(file, block.line, `var.${block.labels[0]} is never used`);
    }
    for (const { block, file } of this.#of("locals")) {
      for (const [name, { line }] of block.attributes) {
        if (!this.#used.has(`local.${name}`)) this.#add(file, line, `local.${name} is never used`);
      }
    }
    return this.#findings;
  }

  #add(file: string, line: number, message: string): void {
    this.#findings.push({ file, line, message });
  }

  #of(type: string): { block: Block; file: string }[] {
    return blocks(this.#module, type);
  }

  #twice(): void {
    const seen = new Set<string>();
    for (const file of this.#module.files) {
      for (const { type, labels, line, attributes } of file.blocks) {
        if (!KNOWN_BLOCKS.has(type)) this.#add(file.path, line, `there is no block ${type}`);
        if (labels.length === 0) continue;
        const alias = text(attributes.get("alias")?.value) ?? "";
        const name = [type, ...labels, alias].join(".");
        if (seen.has(name)) this.#add(file.path, line, `${name} is declared twice`);
        seen.add(name);
      }
    }
  }

  #arguments(block: Block, known: Arguments, file: string, isResource = false): void {
    const given = new Set<string>();
    for (const [name, { value, line }] of block.attributes) {
      if (isResource && META.has(name)) continue;
      given.add(name);
      const argument = known[name];
      if (!argument || argument.block)
        this.#add(file, line, `${block.labels[0] ?? block.type} has no argument ${name}`);
      else this.#value(name, value, argument, file, line);
    }
    for (const inner of block.blocks) {
      const dynamic = inner.type === "dynamic";
      const name = dynamic ? inner.labels[0]! : inner.type;
      if (isResource && META.has(name)) continue;
      given.add(name);
      const body = dynamic ? inner.blocks.find(({ type }) => type === "content") : inner;
      const argument = known[name]?.block;
      if (!argument || !body) this.#add(file, inner.line, `${block.labels[0] ?? block.type} has no block ${name}`);
      else this.#arguments(body, argument, file);
    }
    for (const [name, { required }] of Object.entries(known)) {
      if (required && !given.has(name)) this.#add(file, block.line, `${block.labels[0] ?? block.type} needs ${name}`);
    }
  }

  #value(name: string, value: Expression, { type, values }: Argument, file: string, line: number): void {
    if (value.kind === "conditional") {
      for (const branch of [value.whenTrue, value.whenFalse])
        this.#value(name, branch, { ...(type && { type }), ...(values && { values }) }, file, line);
      return;
    }
    const found = this.#kind(value);
    if (found !== undefined && found !== type) this.#add(file, line, `${name} must be ${type}, but is ${found}`);
    const written = text(value);
    if (values && written !== undefined && !values.includes(written)) {
      this.#add(file, line, `${name} is "${written}", not one of ${values.join(", ")}`);
    }
  }

  #kind(value: Expression): string | undefined {
    if (value.kind === "literal") return LITERAL_KINDS[typeof value.value];
    if (value.kind === "template") return "string";
    if (value.kind === "array") return "list";
    if (value.kind === "object") return "map";
    if (value.kind === "call") return FUNCTIONS[value.name];
    const [root, name] = dotted(value) ?? [];
    if (root === "var" && value.kind === "member") {
      const declared = this.#of("variable").find(({ block }) => block.labels[0] === name)?.block;
      return declared && kindOf(declared);
    }
    return undefined;
  }

  #variable(block: Block, file: string): void {
    const kind = kindOf(block);
    if (kind === undefined)
      this.#add(file, block.line, `var.${block.labels[0]} has a type that the check does not support`);
    if (!block.attributes.has("description")) this.#add(file, block.line, `var.${block.labels[0]} has no description`);
    const description = block.attributes.get("description");
    if (description) this.#value("description", description.value, { type: "string" }, file, description.line);
    const value = block.attributes.get("default")?.value;
    const found = value && this.#kind(value);
    if (found !== undefined && found !== kind)
      this.#add(file, block.line, `the default of var.${block.labels[0]} must be ${kind}, but is ${found}`);
    for (const inner of block.blocks) {
      const message = inner.attributes.get("error_message");
      if (message) this.#value("error_message", message.value, { type: "string" }, file, message.line);
      const complete = inner.attributes.has("condition") && inner.attributes.has("error_message");
      if (inner.type !== "validation" || !complete)
        this.#add(file, inner.line, `a validation has a condition and an error_message`);
    }
  }

  #call(block: Block, file: string): void {
    const source = text(block.attributes.get("source")?.value) ?? "";
    const target = this.#all.find(({ folder }) => folder === path.posix.join(this.#module.folder, source));
    if (!target) {
      this.#add(file, block.line, `there is no module ${source}`);
      return;
    }
    const variables = blocks(target, "variable").map((one) => one.block);
    for (const [name, { value, line }] of block.attributes) {
      if (MODULE_META.has(name)) continue;
      const variable = variables.find(({ labels }) => labels[0] === name);
      if (!variable) this.#add(file, line, `${source} has no variable ${name}`);
      else this.#value(name, value, { type: kindOf(variable) ?? "" }, file, line);
    }
    for (const { labels, attributes } of variables) {
      if (!attributes.has("default") && !block.attributes.has(labels[0]!)) {
        this.#add(file, block.line, `module ${block.labels[0]} does not set ${labels[0]}`);
      }
    }
  }

  #expressions(block: Block, file: string, local: ReadonlySet<string>): void {
    const own = block.type === "dynamic" ? [block.labels[0]!] : block.attributes.has("for_each") ? ["each"] : [];
    const inner = new Set([...local, ...own]);
    for (const [name, { value }] of block.attributes) {
      const isType = block.type === "variable" && name === "type";
      if (block.type === "module" && name === "providers") this.#providers(value, file);
      else if (!isType && block.type !== "terraform" && block.type !== "required_providers")
        this.#names(value, file, inner);
    }
    for (const child of block.blocks) this.#expressions(child, file, inner);
  }

  /** Returns the providers that a module call passes, as in `{ azurerm = azurerm.other }`. */
  #providers(value: Expression, file: string): void {
    for (const given of children(value)) {
      const [type, alias] = dotted(given) ?? [];
      const declared = this.#of("provider").some(
        ({ block }) => block.labels[0] === type && text(block.attributes.get("alias")?.value) === alias,
      );
      if (!declared) this.#add(file, given.line, `the provider ${type}.${alias} is not declared`);
    }
  }

  #names(expression: Expression, file: string, local: ReadonlySet<string>): void {
    if (expression.kind === "call") {
      if (!(expression.name in FUNCTIONS))
        this.#add(file, expression.line, `there is no function ${expression.name} (or the check does not know it)`);
      if (expression.name === "file") this.#file(expression.args[0], file, expression.line);
    }
    const reference = expression.kind === "member" || expression.kind === "name" ? dotted(expression) : undefined;
    if (reference) {
      this.#reference(reference, file, expression.line, local);
      this.#indexes(expression, file, local);
      return;
    }
    const inner = expression.kind === "for" ? new Set([...local, ...expression.variables]) : local;
    for (const child of children(expression)) this.#names(child, file, inner);
  }

  /** Returns the expression in the brackets of `a[…].b`. */
  #indexes(expression: Expression, file: string, local: ReadonlySet<string>): void {
    if (expression.kind === "index") this.#names(expression.index, file, local);
    if (expression.kind === "index" || expression.kind === "member") this.#indexes(expression.of, file, local);
  }

  #reference([root, name, ...rest]: string[], file: string, line: number, local: ReadonlySet<string>): void {
    if (local.has(root!) || root === "path") return;
    if (root === "each") {
      this.#add(file, line, `each.${name} is used without for_each`);
      return;
    }
    const declared = (type: string, labels: string[]) =>
      this.#of(type).some(({ block }) => labels.every((label, at) => block.labels[at] === label));
    const missing = (what: string) => this.#add(file, line, `${what} is not declared`);
    if (root === "var" || root === "local") this.#used.add(`${root}.${name}`);
    if (root === "var") {
      if (!declared("variable", [name!])) missing(`var.${name}`);
    } else if (root === "local") {
      if (!this.#of("locals").some(({ block }) => block.attributes.has(name!))) missing(`local.${name}`);
    } else if (root === "data") {
      if (!declared("data", [name!, rest[0]!])) missing(`data.${name}.${rest[0]}`);
      else if (!DATA[name!]?.includes(rest[1]!)) this.#add(file, line, `data.${name} has no ${rest[1]}`);
    } else if (root === "module") this.#output(name!, rest[0], file, line);
    else if (!declared("resource", [root!, name!])) missing(`${root}.${name}`);
    else {
      const known = RESOURCES[root!];
      if (known && rest[0] && !known.attributes.includes(rest[0]) && !known.arguments[rest[0]]) {
        this.#add(file, line, `${root} has no attribute ${rest[0]}`);
      }
    }
  }

  #output(name: string, output: string | undefined, file: string, line: number): void {
    const call = this.#of("module").find(({ block }) => block.labels[0] === name)?.block;
    if (!call) {
      this.#add(file, line, `module.${name} is not declared`);
      return;
    }
    const source = text(call.attributes.get("source")?.value) ?? "";
    const target = this.#all.find(({ folder }) => folder === path.posix.join(this.#module.folder, source));
    // Only `depends_on` can refer to a whole module.
    if (target && output && !blocks(target, "output").some(({ block }) => block.labels[0] === output)) {
      this.#add(file, line, `${source} has no output ${output}`);
    }
  }

  #file(argument: Expression | undefined, file: string, line: number): void {
    if (argument?.kind !== "template") return;
    const written = argument.parts.map((part) => (part.kind === "literal" ? String(part.value) : ".")).join("");
    const found = path.posix.join(path.posix.dirname(file), written);
    if (!this.#exists(found)) this.#add(file, line, `there is no file ${found}`);
  }
}

const LITERAL_KINDS: Record<string, string> = { string: "string", number: "number", boolean: "bool" };
const KNOWN_BLOCKS = new Set([
  "terraform",
  "provider",
  "variable",
  "locals",
  "data",
  "resource",
  "module",
  "output",
  "check",
]);

function kindOf(variable: Block): string | undefined {
  const type = variable.attributes.get("type")?.value;
  if (type?.kind === "name") return ["string", "number", "bool"].includes(type.name) ? type.name : undefined;
  return type?.kind === "call" ? { list: "list", set: "list", map: "map" }[type.name] : undefined;
}

/** Returns the value of a resource's argument for the parity check, by a path such as `site_config.minimum_tls_version`. */
export function argumentOf(block: Block, at: string): Expression | undefined {
  const [name, ...rest] = at.split(".");
  if (rest.length === 0) return block.attributes.get(name!)?.value;
  const inner = block.blocks.find(({ type, labels }) => type === name || (type === "dynamic" && labels[0] === name));
  const body = inner?.type === "dynamic" ? inner.blocks.find(({ type }) => type === "content") : inner;
  if (body) return argumentOf(body, rest.join("."));
  return property(block.attributes.get(name!)?.value, ...rest);
}
