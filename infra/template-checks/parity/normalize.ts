// Converts Bicep and Terraform expressions to a common text. Two expressions with the same meaning get the same text, so that
// the parity check (parity.ts) can compare them.

import path from "node:path";
import type { BicepFile, Loop, Module } from "../bicep/parse.ts";
import { dotted, type Expression, property, text } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";

/**
 * Converts an expression to the common text. Literals are unchanged, parameters become `{snake_case}`, members of resources
 * become `{resource.member}`, and names of variables are replaced by their definitions.
 */
export type Normalize = (expression: Expression) => string;

/** Common text of expressions that the two languages write differently. */
const EQUIVALENT_NAMES: Record<string, string> = {
  "deployer().objectId": "{own_object_id}",
  "environment().name": "{azure_cloud}",
  // This suffix starts with a dot: https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions-deployment#environment
  "environment().suffixes.keyvaultDns": ".{cloud.vault_domain}",
  "environment().suffixes.storage": "{cloud.storage_domain}",
  "subscription().id": "/subscriptions/{subscription_id}",
  "subscription().tenantId": "{tenant_id}",
  "subscription().subscriptionId": "{subscription_id}",
  "data.azurerm_client_config.current.tenant_id": "{tenant_id}",
  "data.azurerm_client_config.current.object_id": "{own_object_id}",
  // The person who applied first, whom Bicep can't remember.
  "terraform_data.deployer.output": "{own_object_id}",
  "data.azurerm_client_config.current.subscription_id": "{subscription_id}",
};
/** Member names in Terraform with the common member name. */
export const COMMON_MEMBER_NAMES: Record<string, string> = {
  hostname: "host_name",
  primary_blob_endpoint: "primary_endpoints_blob",
  primary_queue_endpoint: "primary_endpoints_queue",
  primary_table_endpoint: "primary_endpoints_table",
  role_definition_resource_id: "id",
};
/** Names that are not replaced by their definitions, because the two languages define them differently. */
const NOT_REPLACED = new Set(["cloud", "suffix", "watched_subscription_ids", "scope", "scope_name"]);
/** Bicep functions with the Terraform function that does the same. */
const FUNCTION_NAMES: Record<string, string> = { toLower: "lower", loadTextContent: "file", union: "merge" };

/** Converts `camelCase` to `snake_case`. */
export const snake = (name: string): string =>
  name.replace(/(?<=[a-z0-9])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();

/**
 * Converts an expression that is not a name or member. Names and members are resolved per language.
 * @param normalize Converts the parts of the expression.
 */
function normalizeCommon(expression: Expression, normalize: Normalize): string {
  switch (expression.kind) {
    case "literal":
      return String(expression.value ?? "");
    case "template":
      return expression.parts.map(normalize).join("");
    case "array":
      return `[${expression.items.map(normalize).join(", ")}]`;
    case "object":
      return `{${expression.entries
        .map(({ key, keyExpression, value }) => `${key ?? normalize(keyExpression!)}=${normalize(value)}`)
        .sort()
        .join(", ")}}`;
    case "conditional": {
      // `fail` stops the deployment, so only the other value is used.
      if (isFail(expression.whenTrue)) return normalize(expression.whenFalse);
      const [valueIfTrue, valueIfFalse] = [normalize(expression.whenTrue), normalize(expression.whenFalse)];
      // `empty(x) ? a : b` becomes `x is given ? b : a`.
      const test = negated(expression.test, normalize);
      return test.endsWith(" is given")
        ? simplifyCondition(test, valueIfFalse, valueIfTrue)
        : simplifyCondition(normalize(expression.test), valueIfTrue, valueIfFalse);
    }
    case "call": {
      const args = expression.args.map(normalize);
      const name = FUNCTION_NAMES[expression.name] ?? expression.name;
      // Bicep loops over the items of an object, Terraform over the map itself.
      if (name === "items") return args[0]!;
      // Bicep has no function for the distinct items of a list. The union with an empty list has each item once.
      if (expression.name === "union" && args[1] === "[]") return `distinct(${args[0]})`;
      if (name === "jsonencode") return args[0]!;
      // The separator is the first argument in Terraform and the second in Bicep, so the arguments are sorted.
      if (name === "join" || name === "split") return `${name}(${args.sort().join(", ")})`;
      if (name === "empty") return `not ${args[0]} is given`;
      return name === "file" ? `file(${path.posix.basename(args[0]!)})` : `${name}(${args.join(", ")})`;
    }
    case "for":
      return `each of ${normalize(expression.over)}`;
    case "index": {
      const of = normalize(expression.of);
      // The index of a resource says whether it is created. The index of a split text selects a part.
      const isOfResource =
        expression.index.kind === "literal" ? !of.startsWith("split(") : expression.index.kind === "name";
      return isOfResource ? of : `${of}[${normalize(expression.index)}]`;
    }
    case "operation": {
      const word = { "&&": " and ", "||": " or " }[expression.operator];
      if (word) return expression.parts.map(normalize).join(word);
      const [left, right] = expression.parts;
      if (expression.operator === "==" && isEmptyValue(right)) return `not ${normalize(left!)} is given`;
      if (expression.operator === "!=" && isEmptyValue(right)) return `${normalize(left!)} is given`;
      if (expression.operator === "??") return `coalesce(${expression.parts.map(normalize).join(", ")})`;
      // `!empty(x)` means that x is given.
      if (expression.operator === "!") return `not ${normalize(left!)}`.replace(/^not not /, "");
      return right ? `${normalize(left!)} ${expression.operator} ${normalize(right)}` : "…";
    }
    // Other expressions all have the same text and are not compared.
    default:
      return "…";
  }
}

const isFail = ({ kind, ...call }: Expression): boolean => kind === "call" && "name" in call && call.name === "fail";

/** Returns whether an expression is `""` or `null`, with which Terraform compares what is not given. */
const isEmptyValue = (expression: Expression | undefined): boolean =>
  text(expression) === "" || (expression?.kind === "literal" && expression.value === null);

/** Writes a conditional expression, or only `valueIfTrue` if both values are equal or `valueIfFalse` is empty. */
function simplifyCondition(test: string, valueIfTrue: string, valueIfFalse: string): string {
  return valueIfTrue === valueIfFalse || valueIfFalse === ""
    ? valueIfTrue
    : `${test} ? ${valueIfTrue} : ${valueIfFalse}`;
}

/** Returns the module calls of a Bicep file, with the calling files. */
export function callsOf(files: ReadonlyMap<string, BicepFile>, target: string): { file: BicepFile; module: Module }[] {
  return [...files.values()].flatMap((file) =>
    file.modules
      .filter((module) => path.posix.join(path.posix.dirname(file.path), module.path) === target)
      .map((module) => ({ file, module })),
  );
}

/**
 * Returns the converter for the expressions of a Bicep file. It replaces a variable by its value, a parameter by the value that
 * the first caller passes, and a module output by its value.
 * @param replacedNames Names that are being replaced, each with its file, to stop at a cycle.
 */
export function bicepNormalizer(
  files: ReadonlyMap<string, BicepFile>,
  file: BicepFile,
  replacedNames: readonly string[] = [],
): Normalize {
  const withReplaced = (name: string) => [...replacedNames, `${file.path} ${name}`];
  const isBeingReplaced = (name: string) => replacedNames.includes(`${file.path} ${name}`);
  const normalize: Normalize = (expression) => {
    if (expression.kind === "name") return nameText(expression.name);
    if (expression.kind === "member") return memberText(expression);
    return normalizeCommon(expression, normalize);
  };

  function nameText(name: string): string {
    if (NOT_REPLACED.has(snake(name)) || isBeingReplaced(name)) return `{${snake(name)}}`;
    const variable = file.variables.find((one) => one.name === name);
    if (variable) return bicepNormalizer(files, file, withReplaced(name))(variable.value);
    const [call] = callsOf(files, file.path);
    const argument =
      file.parameters.some((one) => one.name === name) && call && property(property(call.module.body, "params"), name);
    return argument ? bicepNormalizer(files, call.file, withReplaced(name))(argument) : `{${snake(name)}}`;
  }

  function memberText(expression: Extract<Expression, { kind: "member" }>): string {
    const { of } = expression;
    if (of.kind === "member" && of.name === "outputs") {
      const module = file.modules.find((one) => of.of.kind === "name" && one.name === of.of.name);
      const target = module && files.get(path.posix.join(path.posix.dirname(file.path), module.path));
      const output = target?.outputs.find((one) => one.name === expression.name);
      if (target && output && !isBeingReplaced(expression.name))
        return bicepNormalizer(files, target, withReplaced(expression.name))(output.value);
    }
    const names = dotted(expression);
    const call = callPath(expression);
    if (names === undefined) return EQUIVALENT_NAMES[call] ?? (call === "" ? "…" : `{${call}}`);
    const [resource, ...rest] = names.filter((one) => one !== "properties");
    if (file.modules.some(({ loop }) => loop && isItem(resource!, loop))) return `{each.${rest.join("_")}}`;
    return `{${snake(resource!)}.${rest.map(snake).join("_")}}`;
  }
  return normalize;
}

/** Returns whether a name is the variable of a loop over the items of an object, which have a key and a value. */
const isItem = (name: string, { variables, over }: Loop): boolean =>
  variables[0] === name && over.kind === "call" && over.name === "items";

/** Writes an expression such as `subscription().id`: members of a call without arguments. Empty for other expressions. */
function callPath(expression: Expression): string {
  if (expression.kind === "member") {
    const target = callPath(expression.of);
    return target && `${target}.${expression.name}`;
  }
  return expression.kind === "call" && expression.args.length === 0 ? `${expression.name}()` : "";
}

/**
 * Returns the converter for the expressions of a Terraform module. It replaces a local by its value, and a variable by the
 * value that the calling module passes.
 * @param modules Modules that can call this module. Examples among them are ignored.
 * @param replacedNames Names that are being replaced, to stop at a cycle.
 */
export function terraformNormalizer(
  module: TerraformModule,
  modules: readonly TerraformModule[],
  replacedNames: readonly string[] = [],
): Normalize {
  const withReplaced = (name: string) => [...replacedNames, `${module.folder} ${name}`];
  const isBeingReplaced = (name: string) => replacedNames.includes(`${module.folder} ${name}`);
  /** Returns the value that the calling module passes for a variable. Without a caller, the name of the variable. */
  function variableText(name: string): string {
    for (const caller of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
      for (const { block } of blocks(caller, "module")) {
        const source = text(block.attributes.get("source")?.value) ?? "";
        const value = block.attributes.get(name)?.value;
        if (value && path.posix.join(caller.folder, source) === module.folder)
          return terraformNormalizer(caller, modules, withReplaced(name))(value);
      }
    }
    return `{${name}}`;
  }

  const normalize: Normalize = (expression) => {
    const names = expression.kind === "member" ? dotted(expression) : undefined;
    if (!names) return expression.kind === "name" ? `{${expression.name}}` : normalizeCommon(expression, normalize);
    const [root, name, ...rest] = names;
    const equivalent = EQUIVALENT_NAMES[names.join(".")];
    if (equivalent) return equivalent;
    if (NOT_REPLACED.has(name!) || isBeingReplaced(name!)) return `{${[name!, ...rest].map(snake).join(".")}}`;
    if (root === "var") return rest.length > 0 ? `{${name}.${rest.join("_")}}` : variableText(name!);
    if (root === "each") return `{each.${name}}`;
    if (root === "path") return "";
    if (root === "local") {
      const value = blocks(module, "locals")
        .find(({ block }) => block.attributes.has(name!))
        ?.block.attributes.get(name!);
      return value ? terraformNormalizer(module, modules, withReplaced(name!))(value.value) : `{${name}}`;
    }
    const member = rest.join("_");
    return `{${name}.${COMMON_MEMBER_NAMES[member] ?? member}}`;
  };
  return normalize;
}

/**
 * Splits a map or list into the parts that it is built from. A part can have a condition: `union({…}, empty(x) ? {} : {…})` in
 * Bicep and `merge({…}, var.x ? {…} : {})` in Terraform have two parts, the second one conditional.
 */
export function partsOf(expression: Expression, normalize: Normalize): { part: Expression; condition: string }[] {
  if (expression.kind === "call" && ["union", "concat", "merge"].includes(expression.name)) {
    return expression.args.flatMap((argument) => partsOf(argument, normalize));
  }
  if (expression.kind !== "conditional") return [{ part: expression, condition: "" }];
  const [condition, part] = isEmpty(expression.whenFalse)
    ? [normalize(expression.test), expression.whenTrue]
    : [negated(expression.test, normalize), expression.whenFalse];
  return [{ part, condition }];
}

const isEmpty = (expression: Expression): boolean =>
  (expression.kind === "object" && expression.entries.length === 0) ||
  (expression.kind === "array" && expression.items.length === 0);

/** Returns the text of the opposite condition. The opposite of `empty(x)`, `x == ""` and `length(x) == 0` is `x is given`. */
function negated(test: Expression, normalize: Normalize): string {
  const subject = test.kind === "call" && test.name === "empty" ? test.args[0] : undefined;
  if (subject) return `${normalize(subject)} is given`;
  // An operator can be nested in a node that only wraps it.
  const firstPart = test.kind === "operation" ? test.parts[0] : undefined;
  const operands = firstPart?.kind === "operation" ? firstPart.parts : test.kind === "operation" ? test.parts : [];
  const [left, right] = operands;
  if (left?.kind === "call" && left.name === "length" && right?.kind === "literal" && Number(right.value) === 0)
    return `${normalize(left.args[0]!)} is given`;
  if (left !== undefined && text(right) === "") return `${normalize(left)} is given`;
  const condition = normalize(test);
  return / (and|or) /.test(condition) ? `not (${condition})` : `not ${condition}`;
}
