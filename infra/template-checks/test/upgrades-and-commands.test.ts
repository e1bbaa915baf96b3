// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are parts of templates in other languages.

import { readFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import type { TypeLibrary } from "../bicep/library.ts";
import { loadTypes } from "../bicep/types.ts";
import { checkInfra, parseTemplates, type Templates, typesIn } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import type { Change } from "./mistakes-by-kind.ts";

// Tests the checks of `npm run check:infra` that find: Terraform addresses and parameter defaults whose change would delete resources of
// an existing deployment or change its price, wrong provider configurations, and wrong commands in the documentation. Each test
// changes texts of the real templates and documents in memory. A correct change must have no finding.

const files = readInfraFiles();
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: object };
let templates: Templates;
let types: TypeLibrary;

beforeAll(async () => {
  templates = await parseTemplates(files);
  types = await loadTypes(typesIn(templates));
});

/** Returns the messages of the findings after the changes. Every occurrence of a text is replaced. */
async function messagesAfter(changes: readonly Change[]): Promise<string[]> {
  const text = new Map(files.text);
  for (const [file, original, replacement] of changes) {
    expect(text.get(file)).toContain(original);
    text.set(
      file,
      text.get(file)!.replaceAll(original, () => replacement),
    );
  }
  const changed = await parseTemplates({ ...files, text }, templates);
  return checkInfra({ templates: changed, types, scripts: Object.keys(scripts) }).findings.map(
    ({ message }) => message,
  );
}

const BICEP = "infra/azure";
const TERRAFORM = "infra/terraform";
const OTHER = `${TERRAFORM}/examples/several-subscriptions`;
const VARIABLES = `${TERRAFORM}/variables.tf`;
const DEPLOY = "docs/deploy.md";
const OPTIONS = "docs/deploy-options.md";

/** Renames the plan in Terraform. */
const RENAMED_PLAN: Change[] = [
  [`${TERRAFORM}/app.tf`, '"azurerm_service_plan" "plan" {', '"azurerm_service_plan" "app_plan" {'],
  [`${TERRAFORM}/app.tf`, "azurerm_service_plan.plan.id", "azurerm_service_plan.app_plan.id"],
];
const moved = (from: string, to: string): string => `moved {\n  from = ${from}\n  to   = ${to}\n}\n\n`;
const FUNCTION_APP = 'resource "azurerm_function_app_flex_consumption" "function_app" {';
const beforeFunctionApp = (text: string): Change => [`${TERRAFORM}/app.tf`, FUNCTION_APP, `${text}${FUNCTION_APP}`];
const RENAMED_MODULE: Change[] = [[`${TERRAFORM}/main.tf`, 'module "rotation" {', 'module "rotated_groups" {']];
const PARAMETERS = `${BICEP}/main.parameters.json`;

/**
 * Changes a default in Bicep, for azd and in the table of a documentation page. `bicep` has the type and default in Bicep, before and
 * after, and `row` the page, and the default in its table, before and after.
 */
const newDefault = (name: string, snake: string, bicep: [string, string], row: [string, string, string]): Change[] => [
  [`${BICEP}/main.bicep`, `param ${name} ${bicep[0]}`, `param ${name} ${bicep[1]}`],
  [`${BICEP}/service.bicep`, `param ${name} ${bicep[0]}`, `param ${name} ${bicep[1]}`],
  [PARAMETERS, `${snake.toUpperCase()}=${row[1]}`, `${snake.toUpperCase()}=${row[2]}`],
  [row[0], `\`${snake}\` | ${row[1]} |`, `\`${snake}\` | ${row[2]} |`],
];

test.each<[what: string, changes: Change[]]>([
  [
    "a resource with another name and a moved block",
    [...RENAMED_PLAN, beforeFunctionApp(moved("azurerm_service_plan.plan", "azurerm_service_plan.app_plan"))],
  ],
  [
    "a resource that was moved twice",
    [
      ...RENAMED_PLAN,
      beforeFunctionApp(
        moved("azurerm_service_plan.plan", "azurerm_service_plan.flex_plan") +
          moved("azurerm_service_plan.flex_plan", "azurerm_service_plan.app_plan"),
      ),
    ],
  ],
  [
    "a module call with another name and a moved block",
    [...RENAMED_MODULE, beforeFunctionApp(moved("module.rotation", "module.rotated_groups"))],
  ],
  [
    "a moved block of an older version",
    [beforeFunctionApp(moved("azurerm_service_plan.first", "azurerm_service_plan.plan"))],
  ],
  [
    "another condition of a loop with the same keys",
    [[`${TERRAFORM}/main.tf`, "id => id if var.watch_roles_enabled", "id => id if var.watch_roles_enabled == true"]],
  ],
  [
    "the suffix of vaults from Bicep's own function",
    [
      [`${BICEP}/modules/storage.bicep`, ".${cloud.vaultDomain}'", "${environment().suffixes.keyvaultDns}'"],
      [
        `${BICEP}/modules/storage.bicep`,
        "// Domains and zones of each cloud.\nvar cloud = loadJsonContent('../clouds.json')[environment().name]\n\n",
        "",
      ],
    ],
  ],
  [
    "a command after a command that sets its variable",
    [
      [
        DEPLOY,
        "npm run make-secrets                                                                          #",
        "FIRST=1 && echo $FIRST && npm run make-secrets  #",
      ],
    ],
  ],
  ["a name of another environment", [[OPTIONS, "--policy-assignment evt-lifecycle", "--policy-assignment evt-NAME"]]],
])("correct code has no finding: %s", async (_, changes) => {
  // The changed condition of a loop differs from the condition in Bicep. Another check reports that difference, so its findings are
  // left out here.
  const found = await messagesAfter(changes);
  expect(found.filter((message) => !message.includes("created under the condition"))).toEqual([]);
});

test.each<[what: string, changes: Change[], message: RegExp]>([
  ["a renamed module call", RENAMED_MODULE, /^module.rotation is now module.rotated_groups: Terraform would delete/],
  [
    "a renamed plan",
    RENAMED_PLAN,
    /^azurerm_service_plan.plan is now azurerm_service_plan.app_plan: Terraform would delete/,
  ],
  [
    "another version of the provider in an example",
    [[`${TERRAFORM}/examples/minimal/versions.tf`, "~> 5.2", "~> 5.0"]],
    /azurerm must have the version "~> 5.2" of infra\/terraform, but has "~> 5.0"/,
  ],
  ["no version of the provider", [[`${TERRAFORM}/logs/versions.tf`, '"~> 5.2"', '""']], /but has ""/],
  [
    "account keys in an example",
    [[`${TERRAFORM}/examples/minimal/versions.tf`, "storage_use_azuread = true", "storage_use_azuread = false"]],
    /needs storage_use_azuread = true/,
  ],
  [
    "no subscription for a second provider",
    [[`${OTHER}/main.tf`, "  subscription_id                = var.other_subscription_id\n", ""]],
    /the provider needs subscription_id/,
  ],
  [
    "keys by position",
    [
      [
        `${TERRAFORM}/main.tf`,
        "for_each = toset(var.literal_scan_subscription_ids)",
        "for_each = { for index, id in var.literal_scan_subscription_ids : index => id }",
      ],
    ],
    /module.literal_scan has the keys .*Terraform would delete each instance whose key changes/,
  ],
])("exactly one finding: %s", async (_, changes, message) => {
  expect(await messagesAfter(changes)).toEqual([expect.stringMatching(message)]);
});

test.each<[what: string, changes: Change[], message: RegExp]>([
  [
    "a deleted resource",
    [[`${TERRAFORM}/app.tf`, 'resource "terraform_data" "deployer" {', 'resource "terraform_data" "first" {']],
    /terraform_data.deployer is now terraform_data.first/,
  ],
  [
    "a resource that no release has",
    [beforeFunctionApp('resource "terraform_data" "second" {\n  input = 1\n}\n\n')],
    /terraform_data.second is not in .*addresses.json/,
  ],
  [
    "a moved block to a resource that is not declared",
    [beforeFunctionApp(moved("azurerm_service_plan.old", "azurerm_service_plan.new"))],
    /leads to azurerm_service_plan.new, which is not declared/,
  ],
  [
    "a moved block from a resource that is still declared",
    [beforeFunctionApp(moved("azurerm_key_vault.vault", "azurerm_service_plan.plan"))],
    /leads from azurerm_key_vault.vault, which is still declared/,
  ],
  [
    "a renamed resource under its old name",
    [RENAMED_PLAN[0]!, beforeFunctionApp(moved("azurerm_service_plan.plan", "azurerm_service_plan.app_plan"))],
    /azurerm_service_plan.plan is not declared/,
  ],
  [
    "count instead of one instance",
    [
      [
        `${TERRAFORM}/vault.tf`,
        'resource "azurerm_key_vault" "vault" {',
        'resource "azurerm_key_vault" "vault" {\n  count = 1\n',
      ],
    ],
    /azurerm_key_vault.vault has the keys "count", before ""/,
  ],
  [
    "tags that change with the person who runs terraform apply",
    [
      [
        `${TERRAFORM}/main.tf`,
        "tags                     = merge(var.tags,",
        "tags                     = merge(var.tags, { by = data.azurerm_client_config.current.object_id },",
      ],
    ],
    /^local reads who applies/,
  ],
  [
    "the policy in the subscription of the service",
    [
      [
        `${OTHER}/main.tf`,
        '"../../events-policy/subscription"\n  providers = { azurerm = azurerm.other }',
        '"../../events-policy/subscription"',
      ],
    ],
    /module events_policy must have providers = { azurerm = azurerm.other }/,
  ],
  [
    "a gateway by default",
    newDefault("natGatewayEnabled", "nat_gateway_enabled", ["bool = false", "bool = true"], [DEPLOY, "false", "true"]),
    /the default of natGatewayEnabled must be false, but is true: a gateway has a price/,
  ],
  [
    "a larger instance",
    newDefault("instanceMemoryMb", "instance_memory_mb", ["int = 512", "int = 2048"], [DEPLOY, "512", "2048"]),
    /the default of instanceMemoryMb must be 512, but is 2048: the price/,
  ],
  [
    "an optional parameter with a default that is not empty",
    [
      [
        VARIABLES,
        'contains the license. Empty: no license."\n  type        = string\n  default     = ""',
        'contains the license. Empty: no license."\n  type        = string\n  default     = "license"',
      ],
    ],
    /license_secret_name has the default license: .* add it to DEFAULTS/,
  ],
  [
    "a function that the check does not know",
    [
      [
        `${TERRAFORM}/main.tf`,
        "toset(var.rotation_resource_group_ids)",
        "toset(sort(var.rotation_resource_group_ids))",
      ],
    ],
    /the function sort is not known to this check/,
  ],
  [
    "a member that the check does not know",
    [[`${BICEP}/modules/storage.bicep`, "[environment().name]", "[environment().title]"]],
    /the member title of environment\(\) is not known to this check/,
  ],
  [
    "a folder above the repository",
    [[DEPLOY, "cd ../../../.. &&", "cd ../../../../.. &&"]],
    /cd ..\/..\/..\/..\/.. leads out of the repository/,
  ],
  [
    "a folder that does not exist",
    [[DEPLOY, "cd infra/terraform/examples/minimal ", "cd infra/terraform/examples/small "]],
    /examples\/small, which does not exist/,
  ],
  [
    "a script that does not exist",
    [[DEPLOY, "&& npm run make-secrets  ", "&& npm run make-secret  "]],
    /package.json has no script make-secret/,
  ],
  [
    "an output that the example does not have",
    [
      [
        DEPLOY,
        "service_url service_key_vault_id service_function_app_id",
        "service_url service_vault_id service_function_app_id",
      ],
    ],
    /examples\/minimal has no output service_vault_id/,
  ],
  [
    "an output that the loop does not export",
    [[DEPLOY, "service_url service_key_vault_id service_function_app_id", "service_url service_key_vault_id"]],
    /nothing before this command sets SERVICE_FUNCTION_APP_ID/,
  ],
  [
    "a variable with another name",
    [["docs/remove.md", 'list --scope "$QUEUE"', 'list --scope "$QUEUE_ID"']],
    /nothing before this command sets QUEUE_ID/,
  ],
  [
    "a template of a subscription in a resource group",
    [
      [
        OPTIONS,
        "az deployment sub create --subscription SUBSCRIPTION",
        "az deployment group create --resource-group GROUP",
      ],
    ],
    /target scope subscription, not that of az deployment group/,
  ],
  [
    "the name of an assignment that does not exist",
    [
      [
        "docs/remove.md",
        "az policy assignment delete --name evt-NAME",
        "az policy assignment delete --name vault-events-NAME",
      ],
    ],
    /no Microsoft.Authorization\/policyAssignments of the templates has the name vault-events-NAME/,
  ],
  [
    "a resource group that does not exist",
    [["docs/remove.md", "az group delete --name rg-NAME-events", "az group delete --name rg-events-NAME"]],
    /no Microsoft.Resources\/resourceGroups of the templates/,
  ],
  [
    "a queue that does not exist",
    [["docs/remove.md", "queues/vault-events", "queues/events"]],
    /has the name events: they are vault-events/,
  ],
  [
    "an output that does not exist",
    [[OPTIONS, "SERVICE_IP_ADDRESS", "SERVICE_ADDRESS"]],
    /SERVICE_ADDRESS is neither an output of main.bicep nor a setting/,
  ],
  [
    "an output that both languages lost",
    [
      [`${BICEP}/main.bicep`, "output SERVICE_STORAGE_ACCOUNT_ID string = service.outputs.storageAccountId\n", ""],
      [`${TERRAFORM}/outputs.tf`, 'output "service_storage_account_id" {', 'output "service_account_id" {'],
    ],
    /no language has the output service_storage_account_id any more/,
  ],
])("a mistake is found: %s", async (_, changes, message) => {
  expect(await messagesAfter(changes)).toContainEqual(expect.stringMatching(message));
});
