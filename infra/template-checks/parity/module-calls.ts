// Checks the calls of the modules that grant permissions: where each is deployed, for which list, and with which values.

import path from "node:path";
import type { BicepFile, Module } from "../bicep/parse.ts";
import { children, type Expression, type Finding, property } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import { bicepNormalizer, snake, terraformNormalizer } from "./normalize.ts";

const MAIN_TEMPLATE = "infra/azure/main.bicep";
const MAIN_MODULE = "infra/terraform";

/**
 * Checks the scope of each module call, and compares the calls of main.bicep with the calls of the Terraform module that have
 * the same name.
 */
export function checkModuleCalls(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
  return [
    ...[...files.values()].flatMap((file) => file.modules.flatMap((call) => checkBicepScope(files, file, call))),
    ...compareCalls(files, modules),
  ];
}

/**
 * Checks that a call's scope is of the kind that the called file needs. Also checks that a call in a loop is deployed to each
 * item, because a call without a scope is deployed to the scope of its own file.
 */
function checkBicepScope(files: ReadonlyMap<string, BicepFile>, file: BicepFile, call: Module): Finding[] {
  const finding = (message: string): Finding => ({
    file: file.path,
    line: call.line,
    message: `${call.name}: ${message}`,
  });
  const target = files.get(path.posix.join(path.posix.dirname(file.path), call.path));
  const scope = property(call.body, "scope");
  const kind = scope ? scopeKind(scope, file) : file.scope;
  return [
    ...(target && kind !== undefined && kind !== target.scope
      ? [finding(`its scope is a ${kind}, but ${call.path} is for a ${target.scope}`)]
      : []),
    ...(call.loop && !(scope && mentions(scope, call.loop.variables))
      ? [finding(`its scope must depend on ${call.loop.variables.join(" or ")}, or each call is deployed to one scope`)]
      : []),
  ];
}

/** Returns `subscription` for `subscription(id)`, and `resourceGroup` for a resource group's name. */
function scopeKind(scope: Expression, file: BicepFile): string | undefined {
  if (scope.kind === "call") return scope.name.split(".").at(-1);
  if (scope.kind !== "name") return undefined;
  const type = file.resources.find(({ name }) => name === scope.name)?.type;
  return type === "Microsoft.Resources/resourceGroups" ? "resourceGroup" : undefined;
}

const mentions = (expression: Expression, names: readonly string[]): boolean =>
  (expression.kind === "name" && names.includes(expression.name)) ||
  children(expression).some((child) => mentions(child, names));

/** Compares the list of a loop and the passed values. Checks that Terraform's `scope` is the item of the loop, or its key. */
function compareCalls(files: ReadonlyMap<string, BicepFile>, modules: readonly TerraformModule[]): Finding[] {
  const main = files.get(MAIN_TEMPLATE);
  const module = modules.find(({ folder }) => folder === MAIN_MODULE);
  if (!main || !module) return [];
  const [fromBicep, fromTerraform] = [bicepNormalizer(files, main), terraformNormalizer(module, modules)];
  return blocks(module, "module").flatMap(({ block, file }): Finding[] => {
    const call = main.modules.find(({ name }) => snake(name) === block.labels[0]);
    const finding = (message: string): Finding => ({
      file,
      line: block.line,
      message: `${block.labels[0]}: ${message}`,
    });
    if (!call) return [finding("main.bicep has no such module")];
    const each = block.attributes.get("for_each")?.value;
    // `toset(list)`: only the list is compared.
    const list = each?.kind === "call" ? each.args[0] : each;
    // A module for one resource is called with its id.
    const scope = ["scope", "zone_id", "vault_id"].map((name) => block.attributes.get(name)?.value).find(Boolean);
    const isItem = scope !== undefined && /^(\/subscriptions\/)?\{each\.(key|value)\}$/.test(fromTerraform(scope));
    const bicepList = call.loop && fromBicep(call.loop.over);
    // A filter of the list is the condition of the call (declared-resources.ts).
    const terraformList = list && fromTerraform(list).replace(/^each of /, "");
    const params = property(call.body, "params");
    const entries = params?.kind === "object" ? params.entries : [];
    return [
      ...(each && !isItem ? [finding("its scope must be each.value or each.key")] : []),
      ...(each && bicepList !== terraformList
        ? [finding(`it is called for ${terraformList}, in Bicep for ${bicepList ?? "one scope"}`)]
        : []),
      ...entries.flatMap(({ key, value }) => {
        const other = block.attributes.get(snake(key ?? ""))?.value;
        const [left, right] = [fromBicep(value), other && fromTerraform(other)];
        return right === undefined || left === right ? [] : [finding(`${key} is ${right}, in Bicep ${left}`)];
      }),
    ];
  });
}
