// Checks that each argument of a Terraform resource gets the right member of another resource. All members are text, so neither
// the provider nor the comparison with Bicep finds a wrong one. Example: the `id` of a role definition is `<resource ID>|<scope>`,
// which no role assignment accepts. The arguments are evaluated, which resolves locals, loops, variables and outputs of modules.

import type { Finding } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import type { Value } from "./evaluate.ts";
import { SAMPLES } from "./samples.ts";
import { deployTerraform } from "./terraform.ts";

/** The `id` of any resource, except of a role definition, which is no resource ID. */
const ANY_ID = "*.id";
const IDENTITY = "azurerm_user_assigned_identity.id";

/**
 * The members that an argument accepts, as `type.member`. An argument that is not here and ends with `_id` or `_ids` accepts the
 * `id` of the type in its name: `subnet_id` accepts `azurerm_subnet.id`.
 */
const ACCEPTED: Record<string, readonly string[]> = {
  scope: [ANY_ID],
  scopes: [ANY_ID],
  target_resource_id: [ANY_ID],
  private_connection_resource_id: [ANY_ID],
  role_definition_id: ["azurerm_role_definition.role_definition_resource_id"],
  principal_id: ["*.principal_id", "*.identity_principal_id"],
  identity_ids: [IDENTITY],
  user_assigned_identity: [IDENTITY],
  storage_user_assigned_identity_id: [IDENTITY],
  workspace_id: ["azurerm_log_analytics_workspace.id"],
  data_collection_endpoint_id: ["azurerm_monitor_data_collection_endpoint.id"],
  source_id: ["azurerm_application_insights.id"],
  email_service_id: ["azurerm_email_communication_service.id"],
  email_service_domain_id: ["azurerm_email_communication_service_domain.id"],
  virtual_network_subnet_id: ["azurerm_subnet.id"],
  public_ip_address_id: ["azurerm_public_ip.id"],
  policy_assignment_id: ["azurerm_subscription_policy_assignment.id"],
  action_groups: ["azurerm_monitor_action_group.id"],
  application_insights_connection_string: ["azurerm_application_insights.connection_string"],
  storage_container_endpoint: ["azurerm_storage_account.primary_blob_endpoint"],
  // The name of the workbook, which must not change while its resource exists.
  name: ["azurerm_application_insights.id"],
};

/** Arguments that end with `_id` and are no resource ID: a tenant, an application, and the URL of a key. */
const OTHER_IDS = new Set(["tenant_id", "identity_client_id", "key_vault_key_id"]);

/** The app settings are texts of many kinds, which the comparison with Bicep and the samples check. */
const APP_SETTINGS = "app_settings";

/** Checks every argument of every resource that the samples deploy. */
export function checkReferences(modules: readonly TerraformModule[], read: (file: string) => string): Finding[] {
  const types = new Set(modules.flatMap((module) => blocks(module, "resource").map(({ block }) => block.labels[0]!)));
  const findings = SAMPLES.flatMap((sample) =>
    deployTerraform({ ...sample, modules, read, folder: sample.terraform, isQualified: true }).resources.flatMap(
      ({ file, line, symbol, body }) =>
        textsIn(body)
          .flatMap(({ name, value }) => problemsOf(name, value, types))
          .map((problem) => ({ file, line, message: `${symbol}: ${problem}` })),
    ),
  );
  return [...new Map(findings.map((one) => [JSON.stringify(one), one])).values()];
}

function problemsOf(name: string, value: string, types: ReadonlySet<string>): string[] {
  // The `type.member` of each placeholder in the text.
  const references = [...value.matchAll(/<(azurerm_\w+)\.[^<>]+\.(\w+)>/g)].map(
    ([, type, member]) => `${type}.${member}`,
  );
  const type = `azurerm_${name.replace(/_ids?$/, "")}`;
  const isId = /_ids?$/.test(name) && !OTHER_IDS.has(name);
  const accepted = ACCEPTED[name] ?? (isId && types.has(type) ? [`${type}.id`] : []);
  const wrong = references
    .filter((reference) => !accepted.some((one) => accepts(one, reference)))
    .map(
      (reference) =>
        `${name} gets ${reference}, but accepts ${accepted.join(" or ") || "no reference"} (ACCEPTED in evaluation/references.ts)`,
    );
  // A name, or an ID without its path.
  return isId && !/^[/<]/.test(value) ? [...wrong, `${name} must be a resource ID, but is "${value}"`] : wrong;
}

const accepts = (pattern: string, reference: string): boolean =>
  pattern === reference ||
  (pattern.startsWith("*.") && reference.endsWith(pattern.slice(1)) && reference !== "azurerm_role_definition.id");

/** Returns the texts in the body of a resource, each with the name of its argument. */
function textsIn(value: Value, name = ""): { name: string; value: string }[] {
  if (typeof value === "string") return [{ name, value }];
  if (Array.isArray(value)) return value.flatMap((item) => textsIn(item, name));
  return Object.entries(value ?? {}).flatMap(([key, item]) => (key === APP_SETTINGS ? [] : textsIn(item, key)));
}
