// Checks the Terraform modules: names, arguments, values, variables and outputs. The arguments of resources come from
// azurerm.json, an excerpt of the schema of the azurerm provider.

import path from "node:path";
import { children, dotted, type Expression, type Finding, property, text } from "../expression.ts";
import providerSchema from "./azurerm.json" with { type: "json" };
import { FUNCTIONS } from "./functions.ts";
import type { Block, TerraformFile } from "./parse.ts";

/** An argument of a resource: a value, or a block with arguments. */
export interface Argument {
  required?: boolean;
  /** `string`, `number`, `bool`, `list` or `map`. Undefined for a block. */
  type?: string;
  /** Value that the provider sends if an optional boolean is not set. */
  default?: boolean;
  /** The allowed values of a text. */
  values?: string[];
  block?: Arguments;
}
export type Arguments = Record<string, Argument>;

/**
 * Resource of Terraform itself, which keeps a value in the state:
 * https://developer.hashicorp.com/terraform/language/resources/terraform-data
 */
export const STATE_ONLY = "terraform_data";

const RESOURCES = {
  ...providerSchema.resources,
  [STATE_ONLY]: { arguments: { input: { type: "string" } }, attributes: ["id", "output"] },
} as Record<string, { arguments: Arguments; attributes: string[] }>;

/** Arguments that Terraform itself defines, not the provider. */
export const META_ARGUMENTS = new Set(["count", "for_each", "depends_on", "lifecycle", "provider"]);
const MODULE_META_ARGUMENTS = new Set([...META_ARGUMENTS, "source", "version", "providers"]);

/** Data sources that the module reads, with their attributes. */
const DATA_SOURCES: Record<string, string[]> = {
  azurerm_client_config: ["tenant_id", "subscription_id", "client_id", "object_id"],
};

/** A Terraform module: the files of a folder, which share variables, locals and resources. */
export interface TerraformModule {
  folder: string;
  files: TerraformFile[];
}

/** Groups files into modules by folder. */
export function modulesOf(files: readonly TerraformFile[]): TerraformModule[] {
  const folders = [...new Set(files.map((file) => path.posix.dirname(file.path)))];
  return folders.map((folder) => ({ folder, files: files.filter((file) => path.posix.dirname(file.path) === folder) }));
}

/** Returns the top-level blocks of a type, such as `resource`, with the file of each. */
export function blocks(module: TerraformModule, type: string): { block: Block; file: string }[] {
  return module.files.flatMap((file) =>
    file.blocks.filter((block) => block.type === type).map((block) => ({ block, file: file.path })),
  );
}

/** Returns the provider's defaults of the optional booleans of a resource type that a resource does not set. */
export const defaultsOf = ({ labels: [type], attributes }: Block): { name: string; value: boolean }[] =>
  Object.entries(RESOURCES[type!]?.arguments ?? {}).flatMap(([name, { default: value }]) =>
    value === undefined || attributes.has(name) ? [] : [{ name, value }],
  );

/** Checks the names, arguments, values, variables and outputs of every module. */
export function checkTerraform(files: readonly TerraformFile[], exists: (file: string) => boolean): Finding[] {
  const modules = modulesOf(files);
  return [
    ...files.flatMap((file) => file.findings),
    ...modules.flatMap((module) => new ModuleCheck(module, modules, exists).findings()),
  ];
}

/** Checks one module. Each method adds to `#findings`. */
class ModuleCheck {
  readonly #module: TerraformModule;
  readonly #modules: TerraformModule[];
  readonly #exists: (file: string) => boolean;
  readonly #findings: Finding[] = [];
  /** References such as `var.name` and `local.name` that expressions use, to find unused declarations. */
  readonly #used = new Set<string>();

  constructor(module: TerraformModule, all: TerraformModule[], exists: (file: string) => boolean) {
    this.#module = module;
    this.#modules = all;
    this.#exists = exists;
  }

  findings(): Finding[] {
    this.#checkDeclarations();
    for (const { block, file } of this.#blocks("resource")) {
      const resourceType = RESOURCES[block.labels[0]!];
      if (!resourceType) this.#add(file, block.line, `${block.labels[0]} is not described in azurerm.json`);
      else this.#checkArguments(block, resourceType.arguments, file, true);
      if (block.labels[0] === STATE_ONLY) this.#checkKeptValue(block, file);
    }
    for (const { block, file } of this.#blocks("data")) {
      if (!DATA_SOURCES[block.labels[0]!])
        this.#add(file, block.line, `${block.labels[0]} is a data source that the check does not support`);
    }
    for (const { block, file } of this.#blocks("module")) this.#checkModuleCall(block, file);
    for (const { block, file } of this.#blocks("variable")) this.#checkVariable(block, file);
    for (const { block, file } of this.#blocks("check")) {
      const isCompleteAssert = ({ type, attributes }: Block) =>
        type === "assert" && [...attributes.keys()].sort().join() === "condition,error_message";
      if (block.attributes.size > 0 || !block.blocks.every(isCompleteAssert) || block.blocks.length === 0)
        this.#add(file, block.line, "a check has asserts, each with only a condition and an error_message");
    }
    for (const { block, file } of this.#blocks("output")) {
      if (!block.attributes.has("value")) this.#add(file, block.line, `output ${block.labels[0]} has no value`);
    }
    for (const file of this.#module.files)
      for (const block of file.blocks) this.#checkExpressions(block, file.path, new Set());
    for (const { block, file } of this.#blocks("variable")) {
      if (!this.#used.has(`var.${block.labels[0]}`))
        this.#add(file, block.line, `var.${block.labels[0]} is never used`);
    }
    for (const { block, file } of this.#blocks("locals")) {
      for (const [name, { line }] of block.attributes) {
        if (!this.#used.has(`local.${name}`)) this.#add(file, line, `local.${name} is never used`);
      }
    }
    return this.#findings;
  }

  #add(file: string, line: number, message: string): void {
    this.#findings.push({ file, line, message });
  }

  #blocks(type: string): { block: Block; file: string }[] {
    return blocks(this.#module, type);
  }

  /** Checks that the kinds of blocks exist and no name is declared twice. */
  #checkDeclarations(): void {
    const declaredNames = new Set<string>();
    for (const file of this.#module.files) {
      for (const { type, labels, line, attributes } of file.blocks) {
        if (!KNOWN_BLOCKS.has(type)) this.#add(file.path, line, `there is no block ${type}`);
        if (labels.length === 0) continue;
        const alias = text(attributes.get("alias")?.value) ?? "";
        const name = [type, ...labels, alias].join(".");
        if (declaredNames.has(name)) this.#add(file.path, line, `${name} is declared twice`);
        declaredNames.add(name);
      }
    }
  }

  /** Checks the arguments of a block, and of the blocks in it, against the schema. */
  #checkArguments(block: Block, resourceType: Arguments, file: string, isResource = false): void {
    const setNames = new Set<string>();
    for (const [name, { value, line }] of block.attributes) {
      if (isResource && META_ARGUMENTS.has(name)) continue;
      setNames.add(name);
      const argument = resourceType[name];
      if (!argument || argument.block)
        this.#add(file, line, `${block.labels[0] ?? block.type} has no argument ${name}`);
      else this.#checkValue(name, value, argument, file, line);
    }
    for (const inner of block.blocks) {
      const dynamic = inner.type === "dynamic";
      const name = dynamic ? inner.labels[0]! : inner.type;
      if (isResource && META_ARGUMENTS.has(name)) continue;
      setNames.add(name);
      const body = dynamic ? inner.blocks.find(({ type }) => type === "content") : inner;
      const argument = resourceType[name]?.block;
      if (!argument || !body) this.#add(file, inner.line, `${block.labels[0] ?? block.type} has no block ${name}`);
      else this.#checkArguments(body, argument, file);
    }
    for (const [name, { required }] of Object.entries(resourceType)) {
      if (required && !setNames.has(name))
        this.#add(file, block.line, `${block.labels[0] ?? block.type} needs ${name}`);
    }
  }

  /** Checks that the state keeps the first value: that is what the resource is for. */
  #checkKeptValue(block: Block, file: string): void {
    const ignored = argumentOf(block, "lifecycle.ignore_changes");
    const names = ignored?.kind === "array" ? ignored.items.flatMap((item) => dotted(item) ?? []) : [];
    if (!names.includes("input")) this.#add(file, block.line, `${block.labels.join(".")} must ignore changes of input`);
  }

  #checkValue(name: string, value: Expression, { type, values }: Argument, file: string, line: number): void {
    if (value.kind === "conditional") {
      for (const branch of [value.whenTrue, value.whenFalse])
        this.#checkValue(name, branch, { ...(type && { type }), ...(values && { values }) }, file, line);
      return;
    }
    const valueKind = this.#kind(value);
    if (valueKind !== undefined && valueKind !== type)
      this.#add(file, line, `${name} must be ${type}, but is ${valueKind}`);
    const literal = text(value);
    if (values && literal !== undefined && !values.includes(literal)) {
      this.#add(file, line, `${name} is "${literal}", not one of ${values.join(", ")}`);
    }
  }

  /** Returns the kind of an expression: string, number, bool, list or map. Undefined if it is unknown. */
  #kind(value: Expression): string | undefined {
    if (value.kind === "literal") return LITERAL_KINDS[typeof value.value];
    if (value.kind === "template") return "string";
    if (value.kind === "array") return "list";
    if (value.kind === "object") return "map";
    if (value.kind === "call") return FUNCTIONS[value.name];
    const [root, name, ...rest] = dotted(value) ?? [];
    if (root === "var" && value.kind === "member" && rest.length === 0) {
      const declared = this.#blocks("variable").find(({ block }) => block.labels[0] === name)?.block;
      return declared && kindOf(declared);
    }
    return undefined;
  }

  #checkVariable(block: Block, file: string): void {
    const kind = kindOf(block);
    if (kind === undefined)
      this.#add(file, block.line, `var.${block.labels[0]} has a type that the check does not support`);
    if (!block.attributes.has("description")) this.#add(file, block.line, `var.${block.labels[0]} has no description`);
    const description = block.attributes.get("description");
    if (description) this.#checkValue("description", description.value, { type: "string" }, file, description.line);
    const value = block.attributes.get("default")?.value;
    const defaultKind = value && this.#kind(value);
    if (defaultKind !== undefined && defaultKind !== kind)
      this.#add(file, block.line, `the default of var.${block.labels[0]} must be ${kind}, but is ${defaultKind}`);
    for (const inner of block.blocks) {
      const message = inner.attributes.get("error_message");
      if (message) this.#checkValue("error_message", message.value, { type: "string" }, file, message.line);
      const complete = inner.attributes.has("condition") && inner.attributes.has("error_message");
      if (inner.type !== "validation" || !complete)
        this.#add(file, inner.line, `a validation has a condition and an error_message`);
    }
  }

  #checkModuleCall(block: Block, file: string): void {
    const source = text(block.attributes.get("source")?.value) ?? "";
    const target = this.#modules.find(({ folder }) => folder === path.posix.join(this.#module.folder, source));
    if (!target) {
      this.#add(file, block.line, `there is no module ${source}`);
      return;
    }
    // Terraform reads the data sources of such a module only during apply, and replaces the resources that use them.
    if (block.attributes.has("depends_on") && blocks(target, "data").length > 0)
      this.#add(file, block.line, `module ${block.labels[0]} must not have depends_on, because it reads a data source`);
    const variables = blocks(target, "variable").map((one) => one.block);
    for (const [name, { value, line }] of block.attributes) {
      if (MODULE_META_ARGUMENTS.has(name)) continue;
      const variable = variables.find(({ labels }) => labels[0] === name);
      if (!variable) this.#add(file, line, `${source} has no variable ${name}`);
      else this.#checkValue(name, value, { type: kindOf(variable) ?? "" }, file, line);
    }
    for (const { labels, attributes } of variables) {
      if (!attributes.has("default") && !block.attributes.has(labels[0]!)) {
        this.#add(file, block.line, `module ${block.labels[0]} does not set ${labels[0]}`);
      }
    }
  }

  /**
   * Checks the names in the expressions of a block and of the blocks in it.
   * @param local Names that are valid only in the block, such as `each`.
   */
  #checkExpressions(block: Block, file: string, local: ReadonlySet<string>): void {
    // The names of `moved` are addresses (addresses.ts).
    if (block.type === "moved") return;
    const ownNames = block.type === "dynamic" ? [block.labels[0]!] : block.attributes.has("for_each") ? ["each"] : [];
    const inner = new Set([...local, ...ownNames]);
    for (const [name, { value }] of block.attributes) {
      const isType = block.type === "variable" && name === "type";
      if (block.type === "module" && name === "providers") this.#checkProviders(value, file);
      else if (!isType && block.type !== "terraform" && block.type !== "required_providers")
        this.#checkNames(value, file, inner);
    }
    // `ignore_changes` of `lifecycle` names arguments of the resource.
    const argumentNames = new Set(Object.keys(RESOURCES[block.labels[0] ?? ""]?.arguments ?? {}));
    for (const child of block.blocks)
      this.#checkExpressions(child, file, child.type === "lifecycle" ? argumentNames : inner);
  }

  /** Checks that the providers that a module call passes are declared, as in `{ azurerm = azurerm.other }`. */
  #checkProviders(value: Expression, file: string): void {
    for (const argument of children(value)) {
      const [type, alias] = dotted(argument) ?? [];
      const declared = this.#blocks("provider").some(
        ({ block }) => block.labels[0] === type && text(block.attributes.get("alias")?.value) === alias,
      );
      if (!declared) this.#add(file, argument.line, `the provider ${type}.${alias} is not declared`);
    }
  }

  #checkNames(expression: Expression, file: string, local: ReadonlySet<string>): void {
    if (expression.kind === "call") {
      if (!(expression.name in FUNCTIONS))
        this.#add(
          file,
          expression.line,
          `the function ${expression.name} is not known to this check: add it to terraform/functions.ts`,
        );
      if (expression.name === "file") this.#checkFileExists(expression.args[0], file, expression.line);
    }
    const reference = expression.kind === "member" || expression.kind === "name" ? dotted(expression) : undefined;
    if (reference) {
      this.#checkReference(reference, file, expression.line, local);
      this.#checkIndexes(expression, file, local);
      return;
    }
    const inner = expression.kind === "for" ? new Set([...local, ...expression.variables]) : local;
    for (const child of children(expression)) this.#checkNames(child, file, inner);
  }

  /** Checks the names in the brackets of `a[…].b`. */
  #checkIndexes(expression: Expression, file: string, local: ReadonlySet<string>): void {
    if (expression.kind === "index") this.#checkNames(expression.index, file, local);
    if (expression.kind === "index" || expression.kind === "member") this.#checkIndexes(expression.of, file, local);
  }

  /** Checks that a reference such as `var.name` or `azurerm_storage_account.main.id` exists. */
  #checkReference([root, name, ...rest]: string[], file: string, line: number, local: ReadonlySet<string>): void {
    if (local.has(root!) || root === "path") return;
    if (root === "each") {
      this.#add(file, line, `each.${name} is used without for_each`);
      return;
    }
    const declared = (type: string, labels: string[]) =>
      this.#blocks(type).some(({ block }) => labels.every((label, at) => block.labels[at] === label));
    const missing = (what: string) => this.#add(file, line, `${what} is not declared`);
    if (root === "var" || root === "local") this.#used.add(`${root}.${name}`);
    if (root === "var") {
      if (!declared("variable", [name!])) missing(`var.${name}`);
    } else if (root === "local") {
      if (!this.#blocks("locals").some(({ block }) => block.attributes.has(name!))) missing(`local.${name}`);
    } else if (root === "data") {
      if (!declared("data", [name!, rest[0]!])) missing(`data.${name}.${rest[0]}`);
      else if (!DATA_SOURCES[name!]?.includes(rest[1]!)) this.#add(file, line, `data.${name} has no ${rest[1]}`);
    } else if (root === "module") this.#checkOutput(name!, rest[0], file, line);
    else if (!declared("resource", [root!, name!])) missing(`${root}.${name}`);
    else {
      const resourceType = RESOURCES[root!];
      if (resourceType && rest[0] && !resourceType.attributes.includes(rest[0]) && !resourceType.arguments[rest[0]]) {
        this.#add(file, line, `${root} has no attribute ${rest[0]}`);
      }
    }
  }

  #checkOutput(name: string, output: string | undefined, file: string, line: number): void {
    const call = this.#blocks("module").find(({ block }) => block.labels[0] === name)?.block;
    if (!call) {
      this.#add(file, line, `module.${name} is not declared`);
      return;
    }
    const source = text(call.attributes.get("source")?.value) ?? "";
    const target = this.#modules.find(({ folder }) => folder === path.posix.join(this.#module.folder, source));
    // Only `depends_on` can refer to a whole module.
    if (target && output && !blocks(target, "output").some(({ block }) => block.labels[0] === output)) {
      this.#add(file, line, `${source} has no output ${output}`);
    }
  }

  /** Checks that the file of `file("${path.module}/name")` exists. */
  #checkFileExists(argument: Expression | undefined, file: string, line: number): void {
    if (argument?.kind !== "template") return;
    // `path.module` is the folder of the file, so it is replaced by ".".
    const relativePath = argument.parts.map((part) => (part.kind === "literal" ? String(part.value) : ".")).join("");
    const target = path.posix.join(path.posix.dirname(file), relativePath);
    if (!this.#exists(target)) this.#add(file, line, `there is no file ${target}`);
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
  "moved",
]);

/** Returns the kind of a variable's declared type. Undefined if the check does not support the type. */
function kindOf(variable: Block): string | undefined {
  const type = variable.attributes.get("type")?.value;
  if (type?.kind === "name") return ["string", "number", "bool"].includes(type.name) ? type.name : undefined;
  return type?.kind === "call" ? { list: "list", set: "list", map: "map", object: "map" }[type.name] : undefined;
}

/**
 * Returns the value of an argument of a resource by its path, such as `site_config.minimum_tls_version`. A `dynamic` block
 * counts as the block that it creates. Its list has the path `name.for_each`.
 */
export function argumentOf(block: Block, argumentPath: string): Expression | undefined {
  const [name, ...rest] = argumentPath.split(".");
  if (rest.length === 0) return block.attributes.get(name!)?.value;
  const inner = block.blocks.find(({ type, labels }) => type === name || (type === "dynamic" && labels[0] === name));
  if (inner?.type === "dynamic" && rest[0] === "for_each") return inner.attributes.get("for_each")?.value;
  const body = inner?.type === "dynamic" ? inner.blocks.find(({ type }) => type === "content") : inner;
  if (body) return argumentOf(body, rest.join("."));
  return property(block.attributes.get(name!)?.value, ...rest);
}
