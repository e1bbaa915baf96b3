// Checks that docs/deploy.md and the Terraform examples register the Azure resource providers that a deployment needs. A
// subscription can only create resources of registered providers.

import path from "node:path";
import type { BicepFile } from "./bicep/parse.ts";
import { bicepDelegations, bicepTypes, providerAlias, terraformDelegations, terraformTypes } from "./deployed-parts.ts";
import { children, dotted, type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { cellsOf, sectionOf } from "./markdown-sections.ts";
import { blocks, STATE_ONLY, type TerraformModule } from "./terraform/check.ts";
import type { Block } from "./terraform/parse.ts";

const PAGE = "docs/deploy.md";
const HEADING = "### Resource providers";

/**
 * Resource providers that every subscription has registered:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/azure-services-resource-providers
 */
const ALWAYS_REGISTERED = new Set(["Microsoft.Authorization", "Microsoft.Resources"]);

/**
 * Names of resource providers as Azure Resource Manager lists them, if they differ from the type names. The Terraform provider
 * compares names exactly and skips a name that is not listed: internal/resourceproviders/requiring_registration.go of azurerm
 * 5.2.0.
 */
const LISTED_NAMES: Record<string, string> = { "Microsoft.Insights": "microsoft.insights" };

/** Returns the resource providers of resource types, sorted, without the ones that every subscription has registered. */
export const namespacesOf = (types: readonly string[]): string[] =>
  [...new Set(types.map((type) => type.split("/")[0]!))]
    .filter((namespace) => !ALWAYS_REGISTERED.has(namespace))
    .map((namespace) => LISTED_NAMES[namespace] ?? namespace)
    .sort((a, b) => a.toLowerCase().localeCompare(b.toLowerCase()));

/**
 * Checks that the page and the examples register exactly the resource providers that the deployment needs. The Terraform
 * provider registers none by default, and nothing else registers the provider that a subnet is delegated to.
 */
export function checkProviders(input: {
  files: InfraFiles;
  bicep: ReadonlyMap<string, BicepFile>;
  modules: readonly TerraformModule[];
  /** Templates that the policy deploys next to each vault. */
  policy: ReadonlyMap<string, BicepFile>;
}): Finding[] {
  const { files, bicep, modules } = input;
  const fromPolicy = bicepTypes(input.policy.values());
  const needed = namespacesOf([...bicepTypes(bicep.values()), ...bicepDelegations(bicep.values()), ...fromPolicy]);
  const examples = modules.filter(({ folder }) => folder.includes("/examples/"));
  return [
    ...checkPage(files.text.get(PAGE) ?? "", needed),
    ...examples.flatMap((example) => checkExample(example, modules, fromPolicy)),
  ];
}

/** Checks the section about resource providers: the table and the shell command must name exactly the needed ones. */
function checkPage(page: string, needed: readonly string[]): Finding[] {
  const section = sectionOf(page, HEADING);
  const lines = section.map((one) => one.text);
  const inTable = lines.flatMap((line) => /^`([\w.]+)`$/.exec(cellsOf(line)[0] ?? "")?.[1] ?? []);
  // The text between the fence that opens the shell code and the one that closes it.
  const command = lines.slice(lines.indexOf("```sh"), lines.indexOf("```")).join("\n");
  const inCommand = command.match(/\bmicrosoft\.\w+/gi) ?? [];
  const line = section[0]?.line ?? 1;
  return [
    ...differences(inTable, needed).map((message) => ({
      file: PAGE,
      line,
      message: `the table of resource providers ${message}`,
    })),
    ...differences(inCommand, needed).map((message) => ({
      file: PAGE,
      line,
      message: `the command that registers ${message}`,
    })),
  ];
}

/** Checks an example: each `provider` block must register the resource providers that the modules with this block need. */
function checkExample(
  example: TerraformModule,
  modules: readonly TerraformModule[],
  fromPolicy: readonly string[],
): Finding[] {
  return blocks(example, "provider").flatMap(({ block, file }) => {
    const alias = text(block.attributes.get("alias")?.value) ?? "";
    const calls = blocks(example, "module").filter(
      (call) => providerAlias(call.block.attributes.get("providers")?.value) === alias,
    );
    const types = calls.flatMap((call) =>
      typesBelow(example, call.block.attributes.get("source")?.value, modules, fromPolicy),
    );
    return differences(texts(block.attributes.get("resource_providers_to_register")?.value), namespacesOf(types)).map(
      (message) => ({ file, line: block.line, message: `resource_providers_to_register ${message}` }),
    );
  });
}

/** Arguments that every `provider` block of an example needs, with the reason. */
const PROVIDER_ARGUMENTS: Record<string, [isRight: (value: Expression | undefined) => boolean, reason: string]> = {
  subscription_id: [
    (value) => value !== undefined,
    "version 5 of the provider reads no subscription from the Azure CLI",
  ],
  storage_use_azuread: [
    (value) => value?.kind === "literal" && value.value === true,
    "the storage account accepts no account keys, with which the provider would call it",
  ],
};

/**
 * Checks the configuration of the provider: one version in all modules, the arguments that each example needs, and the provider
 * of each module call. Also checks that no resource depends on the identity that runs `terraform apply`.
 */
export function checkProviderSettings(modules: readonly TerraformModule[]): Finding[] {
  const expected = versionOf(modules.find(({ folder }) => folder === "infra/terraform"));
  return modules.flatMap((module) => {
    const version = versionOf(module);
    return [
      ...(version === expected
        ? []
        : [
            {
              file: `${module.folder}/versions.tf`,
              line: 1,
              message: `azurerm must have the version "${expected}" of infra/terraform, but has "${version}"`,
            },
          ]),
      ...(module.folder.includes("/examples/") ? checkProviderBlocks(module) : checkApplier(module)),
    ];
  });
}

/** Returns the constraint of the provider's version. Empty if there is none. */
function versionOf(module: TerraformModule | undefined): string {
  const required = module ? blocks(module, "terraform").flatMap(({ block }) => block.blocks) : [];
  const azurerm = required.find(({ type }) => type === "required_providers")?.attributes.get("azurerm")?.value;
  return text(property(azurerm, "version")) ?? "";
}

/**
 * Checks the arguments of the `provider` blocks of an example. A provider with an alias is for another subscription. Each module
 * call except that of the service, which covers its own subscription, must then name its provider.
 */
function checkProviderBlocks(example: TerraformModule): Finding[] {
  const providers = blocks(example, "provider");
  const aliases = providers.flatMap(({ block }) => text(block.attributes.get("alias")?.value) ?? []);
  const calls = blocks(example, "module").filter(
    ({ block }) => text(block.attributes.get("source")?.value) !== SERVICE_MODULE,
  );
  return [
    ...providers.flatMap(({ block, file }) =>
      Object.entries(PROVIDER_ARGUMENTS)
        .filter(([name, [isRight]]) => !isRight(block.attributes.get(name)?.value))
        .map(([name, [, reason]]) => ({
          file,
          line: block.line,
          message: `the provider needs ${name}${name === "storage_use_azuread" ? " = true" : ""}, since ${reason}`,
        })),
    ),
    ...calls
      .filter(({ block }) => aliases.length > 0 && providerAlias(block.attributes.get("providers")?.value) === "")
      .map(({ block, file }) => ({
        file,
        line: block.line,
        message: `module ${block.labels[0]} must have providers = { azurerm = azurerm.${aliases[0]} }: without it, the module creates its resources in the subscription of the service`,
      })),
  ];
}

/** The source of the main module in an example. */
const SERVICE_MODULE = "../..";

/** Checks that no resource has a value that depends on who runs `terraform apply`. `terraform_data` keeps the first value. */
function checkApplier(module: TerraformModule): Finding[] {
  return [...blocks(module, "resource"), ...blocks(module, "module"), ...blocks(module, "locals")]
    .filter(({ block }) => block.labels[0] !== STATE_ONLY)
    .flatMap(({ block, file }) =>
      [...expressionsOf(block)]
        .filter((one) => /^data\.azurerm_client_config\.\w+\.(object_id|client_id)$/.test(dotted(one)?.join(".") ?? ""))
        .map(({ line }) => ({
          file,
          line,
          message: `${block.labels.join(".") || "local"} reads who applies, so that each apply of another person changes it: read ${STATE_ONLY}.deployer.output, which keeps the first one`,
        })),
    );
}

/** Returns all expressions of a block. */
function expressionsOf(block: Block): Expression[] {
  const withSubexpressions = (expression: Expression): Expression[] => [
    expression,
    ...children(expression).flatMap(withSubexpressions),
  ];
  return [
    ...[...block.attributes.values()].flatMap(({ value }) => withSubexpressions(value)),
    ...block.blocks.flatMap(expressionsOf),
  ];
}

/**
 * Returns the resource types and delegations of the module at `source`, and of the modules that it calls.
 * @param callingFolders Folders of the calling modules: a module that calls itself ends the search.
 */
function typesBelow(
  caller: TerraformModule,
  source: Expression | undefined,
  modules: readonly TerraformModule[],
  fromPolicy: readonly string[],
  callingFolders: readonly string[] = [],
): string[] {
  const folder = path.posix.join(caller.folder, text(source) ?? "");
  const module = modules.find((one) => one.folder === folder);
  if (!module || callingFolders.includes(folder)) return [];
  return [
    ...terraformTypes(module),
    ...terraformDelegations(module),
    // Terraform deploys the templates of the policy as JSON, so their types are not among its resources.
    ...(folder.includes("/events-policy/") ? fromPolicy : []),
    ...blocks(module, "module").flatMap(({ block }) =>
      typesBelow(module, block.attributes.get("source")?.value, modules, fromPolicy, [...callingFolders, folder]),
    ),
  ];
}

/** Describes the differences between the listed and the needed names. Empty if there are none. */
function differences(listed: readonly string[], needed: readonly string[]): string[] {
  const missing = needed.filter((one) => !listed.includes(one)).join(", ");
  const unneeded = listed.filter((one) => !needed.includes(one)).join(", ");
  return [...(missing ? [`lacks ${missing}`] : []), ...(unneeded ? [`names ${unneeded}, which nothing needs`] : [])];
}

const texts = (list: Expression | undefined): string[] =>
  list?.kind === "array" ? list.items.flatMap((item) => text(item) ?? []) : [];
