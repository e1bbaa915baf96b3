// Checks that calls of modules pass the right values: the name of a passed value must end like the name of the parameter. No type
// check finds two values of the same type that are swapped.

import path from "node:path";
import type { BicepFile } from "./bicep/parse.ts";
import { providerAlias } from "./deployed-parts.ts";
import { dotted, type Expression, type Finding, property, text } from "./expression.ts";
import { snake } from "./parity/normalize.ts";
import { variablesIn } from "./refusals.ts";
import { blocks, type TerraformModule } from "./terraform/check.ts";

/** Passed values whose names differ from the parameter's, each with the reason. */
const RENAMED: Record<string, string> = {
  "scope_name = var.management_group_name": "the module's scope can also be a subscription",
  "kinds = group.value": "the kinds are the values of an object with a member for each resource group",
  "scope = var.resource_group_id": "the module's permissions are in this resource group",
};

/** Options that each example turns on or off, as its README.md says, by its folder. Other values are variables. */
const EXAMPLE_OPTIONS: Record<string, Record<string, string>> = {
  "bring-your-own": {
    network_enabled: "true",
    private_dns_zones_enabled: "false",
    app_private_endpoint_enabled: "true",
    app_public_network_access_enabled: "false",
    diagnostic_settings_enabled: "true",
    app_configuration_enabled: "true",
    zone_redundant: "true",
    kind: '"CanNotDelete"',
  },
  "existing-network": { network_enabled: "true", private_dns_zones_enabled: "false" },
  "management-group": { watched_subscription_ids: "[]" },
  minimal: {},
  "private-network": { network_enabled: "true", app_configuration_enabled: "true" },
  "several-subscriptions": { events_enabled: "true" },
};

/** Checks the calls in all Bicep files, in all Terraform modules and in the examples. */
export function checkWiring(bicep: ReadonlyMap<string, BicepFile>, modules: readonly TerraformModule[]): Finding[] {
  return [
    ...[...bicep.values()].flatMap((file) =>
      file.modules.flatMap(({ body }) => {
        const params = property(body, "params");
        return params?.kind === "object"
          ? params.entries.flatMap(({ key, value }) => checkValue(file.path, snake(key ?? ""), value, bicepName(value)))
          : [];
      }),
    ),
    ...modules.flatMap((module) => [
      ...blocks(module, "module").flatMap(({ block, file }) =>
        [...block.attributes].flatMap(([name, { value }]) => checkArgument(file, name, value)),
      ),
      ...(module.folder.includes("/examples/")
        ? [...checkExampleOutputs(module), ...checkExampleOptions(module), ...checkSubscriptions(module)]
        : []),
    ]),
  ];
}

/** Checks an argument of a module call, and each member if it is an object. */
function checkArgument(file: string, name: string, value: Expression): Finding[] {
  if (name === "providers" || name === "for_each") return [];
  if (value.kind === "object")
    return value.entries.flatMap(({ key, value: inner }) => checkArgument(file, snake(key ?? ""), inner));
  return checkValue(file, name, value, terraformName(value));
}

/** Checks a passed value. Values other than references are checked by parity and by evaluation. */
function checkValue(file: string, parameter: string, value: Expression, name: string | undefined): Finding[] {
  if (name === undefined || parameter === "") return [];
  const isAlike = endsLike(name, parameter) || endsLike(parameter, name);
  const written = `${parameter} = ${dotted(value)?.join(".")}`;
  return isAlike || written in RENAMED
    ? []
    : [
        {
          file,
          line: value.line,
          message: `${parameter} gets ${dotted(value)?.join(".")}, which is another value by its name`,
        },
      ];
}

/** Returns whether one name ends with the other one, by whole words. */
const endsLike = (longer: string, shorter: string): boolean => `_${longer}`.endsWith(`_${shorter}`);

/** Returns the name of a reference in Bicep: of a parameter or variable, or of an output of a module. */
function bicepName(value: Expression): string | undefined {
  const names = dotted(value);
  return names && snake(names.at(-1)!);
}

/** Returns the name of a reference in Terraform. An attribute of a resource has the name of the resource before it. */
function terraformName(value: Expression): string | undefined {
  const names = dotted(value);
  if (!names || names[0] === "each" || names[0] === "local") return undefined;
  return names[0]!.startsWith("azurerm_") ? names.slice(1).join("_") : names.at(-1)!;
}

/** Checks that an output of an example is the output of a module with the same name. */
function checkExampleOutputs(module: TerraformModule): Finding[] {
  return blocks(module, "output").flatMap(({ block, file }) => {
    const value = block.attributes.get("value")?.value;
    const names = (value && dotted(value)) ?? [];
    const name = block.labels[0]!;
    return names[0] === "module" && names.at(-1) === name
      ? []
      : [{ file, line: block.line, message: `the output ${name} must be the module's output of this name` }];
  });
}

/** Checks the options of an example: each literal of its module calls. */
function checkExampleOptions(module: TerraformModule): Finding[] {
  const calls = blocks(module, "module");
  const expected = EXAMPLE_OPTIONS[path.posix.basename(module.folder)] ?? {};
  const actual = new Map(
    calls.flatMap(({ block }) => [...block.attributes].flatMap(([name, { value }]) => optionsIn(name, value))),
  );
  const place = { file: calls[0]?.file ?? module.folder, line: calls[0]?.block.line ?? 1 };
  return [...new Set([...actual.keys(), ...Object.keys(expected)])]
    .filter((name) => actual.get(name) !== expected[name])
    .map((name) => ({
      ...place,
      message: `${name} must be ${expected[name] ?? "a variable"}, but is ${actual.get(name) ?? "not set"}`,
    }));
}

/** Returns the literals of an argument by their names. */
function optionsIn(name: string, value: Expression): [name: string, value: string][] {
  if (name === "source") return [];
  if (value.kind === "object") return value.entries.flatMap((entry) => optionsIn(entry.key ?? "", entry.value));
  if (value.kind === "array") return value.items.length === 0 ? [[name, "[]"]] : [];
  return value.kind === "literal" ? [[name, JSON.stringify(value.value)]] : [];
}

/**
 * Checks that each provider of an example, and the scope of each call that uses it, has the subscription of the provider's alias:
 * the provider `other` has `var.other_subscription_id`.
 */
function checkSubscriptions(module: TerraformModule): Finding[] {
  const subscriptionOf = (alias: string) => (alias === "" ? "subscription_id" : `${alias}_subscription_id`);
  const providers = blocks(module, "provider").map((one) => ({
    ...one,
    alias: text(one.block.attributes.get("alias")?.value) ?? "",
    values: [one.block.attributes.get("subscription_id")?.value],
  }));
  const calls = blocks(module, "module")
    .filter(({ block }) => block.attributes.has("providers"))
    .map((one) => ({
      ...one,
      alias: providerAlias(one.block.attributes.get("providers")?.value),
      values: [one.block.attributes.get("scope")?.value],
    }));
  return [...providers, ...calls].flatMap(({ block, file, alias, values }) =>
    values
      .flatMap((value) => (value ? variablesIn(value) : []))
      .filter((name) => name !== subscriptionOf(alias))
      .map((name) => ({ file, line: block.line, message: `has var.${name}, not var.${subscriptionOf(alias)}` })),
  );
}
