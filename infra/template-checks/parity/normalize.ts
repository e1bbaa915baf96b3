// Converts Bicep and Terraform values to a common text, so that they can be compared.

import path from "node:path";
import type { BicepFile, Module } from "../bicep/parse.ts";
import { dotted, type Expression, property, text } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";

/**
 * Converts values to a text that is the same for both languages: literals unchanged, parameters and variables as
 * `{snake_case}`, members of resources as `{resource.member}`, and names replaced by their definitions.
 */
export type Normalize = (expression: Expression) => string;

/** Names of the two languages for the same thing. */
const EQUIVALENT_NAMES: Record<string, string> = {
  "environment().name": "{azure_cloud}",
  "environment().suffixes.storage": "{storage_suffix}",
  "subscription().id": "/subscriptions/{subscription_id}",
  "subscription().tenantId": "{tenant_id}",
  "subscription().subscriptionId": "{subscription_id}",
  "data.azurerm_client_config.current.tenant_id": "{tenant_id}",
  "data.azurerm_client_config.current.subscription_id": "{subscription_id}",
};
const MEMBERS: Record<string, string> = {
  hostname: "host_name",
  primary_blob_endpoint: "primary_endpoints_blob",
  primary_queue_endpoint: "primary_endpoints_queue",
  primary_table_endpoint: "primary_endpoints_table",
  role_definition_resource_id: "id",
};
/** Names that are not replaced by their definitions, because the two languages define them differently. */
const OPAQUE = new Set(["suffix", "storage_suffix", "watched_subscription_ids", "scope", "scope_name"]);
const FUNCTION_NAMES: Record<string, string> = { toLower: "lower", loadTextContent: "file", union: "merge" };

export const snake = (name: string): string =>
  name.replace(/(?<=[a-z0-9])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();

/** Converts everything except names and members, which each language resolves differently. */
function normalizeCommon(expression: Expression, normal: Normalize): string {
  switch (expression.kind) {
    case "literal":
      return String(expression.value ?? "");
    case "template":
      return expression.parts.map(normal).join("");
    case "array":
      return `[${expression.items.map(normal).join(", ")}]`;
    case "object":
      return `{${expression.entries
        .map(({ key, keyExpression, value }) => `${key ?? normal(keyExpression!)}=${normal(value)}`)
        .sort()
        .join(", ")}}`;
    case "conditional": {
      const [then, otherwise] = [normal(expression.whenTrue), normal(expression.whenFalse)];
      const test = negated(expression.test, normal);
      return test.endsWith(" is given")
        ? simplifyCondition(test, otherwise, then)
        : simplifyCondition(normal(expression.test), then, otherwise);
    }
    case "call": {
      const args = expression.args.map(normal);
      const name = FUNCTION_NAMES[expression.name] ?? expression.name;
      // Terraform has the separator as the first argument.
      if (name === "jsonencode") return args[0]!;
      if (name === "join") return `join(${args.sort().join(", ")})`;
      return name === "file" ? `file(${path.posix.basename(args[0]!)})` : `${name}(${args.join(", ")})`;
    }
    case "for":
      return `each of ${normal(expression.over)}`;
    case "index":
      return expression.index.kind === "literal" || expression.index.kind === "name"
        ? normal(expression.of)
        : `${normal(expression.of)}[${normal(expression.index)}]`;
    default:
      return "…";
  }
}

/** Simplifies a condition to its value if both branches agree, or if it only tests whether the value is set. */
function simplifyCondition(test: string, then: string, otherwise: string): string {
  return then === otherwise || otherwise === "" ? then : `${test} ? ${then} : ${otherwise}`;
}

/** The calls of a file as a module, with the calling file. */
export function callsOf(files: ReadonlyMap<string, BicepFile>, target: string): { file: BicepFile; module: Module }[] {
  return [...files.values()].flatMap((file) =>
    file.modules
      .filter((module) => path.posix.join(path.posix.dirname(file.path), module.path) === target)
      .map((module) => ({ file, module })),
  );
}

/**
 * Replaces a name by its definition.
 * @param open names that are being replaced, to stop at a cycle
 */
export function bicepNormalizer(
  files: ReadonlyMap<string, BicepFile>,
  file: BicepFile,
  open: readonly string[] = [],
): Normalize {
  const inside = (name: string) => [...open, `${file.path} ${name}`];
  const leadsBack = (name: string) => open.includes(`${file.path} ${name}`);
  const normal: Normalize = (expression) => {
    if (expression.kind === "name") return name(expression.name);
    if (expression.kind === "member") return member(expression);
    return normalizeCommon(expression, normal);
  };

  function name(written: string): string {
    if (OPAQUE.has(snake(written)) || leadsBack(written)) return `{${snake(written)}}`;
    const variable = file.variables.find((one) => one.name === written);
    if (variable) return bicepNormalizer(files, file, inside(written))(variable.value);
    const [call] = callsOf(files, file.path);
    const given =
      file.parameters.some((one) => one.name === written) &&
      call &&
      property(property(call.module.body, "params"), written);
    return given ? bicepNormalizer(files, call.file, inside(written))(given) : `{${snake(written)}}`;
  }

  function member(expression: Extract<Expression, { kind: "member" }>): string {
    const { of } = expression;
    if (of.kind === "member" && of.name === "outputs") {
      const module = file.modules.find((one) => of.of.kind === "name" && one.name === of.of.name);
      const target = module && files.get(path.posix.join(path.posix.dirname(file.path), module.path));
      const output = target?.outputs.find((one) => one.name === expression.name);
      if (target && output && !leadsBack(expression.name))
        return bicepNormalizer(files, target, inside(expression.name))(output.value);
    }
    const names = dotted(expression);
    if (names === undefined) return EQUIVALENT_NAMES[written(expression)] ?? "…";
    const [resource, ...rest] = names.filter((one) => one !== "properties");
    return `{${snake(resource!)}.${rest.map(snake).join("_")}}`;
  }
  return normal;
}

/** Writes `f().a.b` unchanged, for calls without arguments. */
function written(expression: Expression): string {
  if (expression.kind === "member") return `${written(expression.of)}.${expression.name}`;
  return expression.kind === "call" ? `${expression.name}()` : "";
}

/**
 * Creates the converter of a Terraform module.
 * @param modules the modules among which the caller is searched, without the examples
 */
export function terraformNormalizer(
  module: TerraformModule,
  modules: readonly TerraformModule[],
  open: readonly string[] = [],
): Normalize {
  const inside = (name: string) => [...open, `${module.folder} ${name}`];
  const leadsBack = (name: string) => open.includes(`${module.folder} ${name}`);
  /** Returns the argument of the module's caller for a variable. */
  function given(name: string): string {
    for (const caller of modules.filter(({ folder }) => !folder.includes("/examples/"))) {
      for (const { block } of blocks(caller, "module")) {
        const source = text(block.attributes.get("source")?.value) ?? "";
        const value = block.attributes.get(name)?.value;
        if (value && path.posix.join(caller.folder, source) === module.folder)
          return terraformNormalizer(caller, modules, inside(name))(value);
      }
    }
    return `{${name}}`;
  }

  const normal: Normalize = (expression) => {
    const names = expression.kind === "member" ? dotted(expression) : undefined;
    if (!names) return expression.kind === "name" ? `{${expression.name}}` : normalizeCommon(expression, normal);
    const [root, name, ...rest] = names;
    const same = EQUIVALENT_NAMES[names.join(".")];
    if (same) return same;
    if (OPAQUE.has(name!) || leadsBack(name!)) return `{${name}}`;
    if (root === "var") return given(name!);
    if (root === "each") return `{each.${name}}`;
    if (root === "path") return "";
    if (root === "local") {
      const value = blocks(module, "locals")
        .find(({ block }) => block.attributes.has(name!))
        ?.block.attributes.get(name!);
      return value ? terraformNormalizer(module, modules, inside(name!))(value.value) : `{${name}}`;
    }
    const member = rest.join("_");
    return `{${name}.${MEMBERS[member] ?? member}}`;
  };
  return normal;
}

/**
 * Returns the entries of a map or list that is built from parts, some of them conditional: `union({…}, empty(x) ? {} : {…})`
 * and `merge({…}, var.x ? {…} : {})`.
 */
export function partsOf(expression: Expression, normal: Normalize): { part: Expression; condition: string }[] {
  if (expression.kind === "call" && ["union", "concat", "merge"].includes(expression.name)) {
    return expression.args.flatMap((argument) => partsOf(argument, normal));
  }
  if (expression.kind !== "conditional") return [{ part: expression, condition: "" }];
  const [test, filled] = isEmpty(expression.whenFalse)
    ? [normal(expression.test), expression.whenTrue]
    : [negated(expression.test, normal), expression.whenFalse];
  return [{ part: filled, condition: test }];
}

const isEmpty = (expression: Expression): boolean =>
  (expression.kind === "object" && expression.entries.length === 0) ||
  (expression.kind === "array" && expression.items.length === 0);

/** Evaluates `empty(x)`, `x == ""` and `length(x) == 0` as false, for the case that x is set. */
function negated(test: Expression, normal: Normalize): string {
  const subject = test.kind === "call" && test.name === "empty" ? test.args[0] : undefined;
  if (subject) return `${normal(subject)} is given`;
  const compared = test.kind === "operation" ? test.parts[0] : undefined;
  const inner = compared?.kind === "operation" ? compared.parts : test.kind === "operation" ? test.parts : [];
  const [left, right] = inner;
  if (left?.kind === "call" && left.name === "length" && right?.kind === "literal" && Number(right.value) === 0)
    return `${normal(left.args[0]!)} is given`;
  return left !== undefined && text(right) === "" ? `${normal(left)} is given` : `not ${normal(test)}`;
}
