// The conditions under which the templates create resources. The parity check (parity/) finds a condition that differs between
// Bicep and Terraform. This table finds a condition that is wrong in both.

import type { Finding } from "./expression.ts";
import { type BicepResource, findingAt } from "./parity/declared-resources.ts";
import { snake } from "./parity/normalize.ts";
import { NETWORK_CREATED } from "./parity/resource-kinds.ts";

const OWN_ZONES = "{private_dns_zones_enabled} and not {private_dns_zone_resource_ids} is given";
const APP_ENDPOINT = "{network_enabled} and {app_private_endpoint_enabled}";
const LOGGED = "{diagnostic_settings_enabled}";

/**
 * Names of resources in snake_case, by their condition. Conditions are in the normalized form to which both languages are
 * converted (parity/normalize.ts): `{name}` is a parameter.
 */
const CONDITIONS: Record<string, readonly string[]> = {
  "{events_enabled}": ["events_group", "topic", "event_subscription"],
  "not {resource_group_name} is given": ["resource_group"],
  "{app_configuration_enabled}": ["app_configuration", "app_configuration_role"],
  "{mail_enabled}": ["email_service", "email_domain", "communication_service", "mail_role"],
  "{lock} is given": ["storage_lock", "vault_lock"],
  "not {log_analytics_workspace_resource_id} is given": ["log_analytics_workspace"],
  [LOGGED]: ["app_diagnostics", "blob_diagnostics", "queue_diagnostics", "table_diagnostics"],
  [`${LOGGED} and {app_configuration_enabled}`]: ["app_configuration_diagnostics"],
  [`${LOGGED} and {mail_enabled}`]: ["communication_diagnostics"],
  [`${LOGGED} and not {log_analytics_workspace_resource_id} is given`]: ["workspace_diagnostics"],
  [`${LOGGED} and ${NETWORK_CREATED}`]: ["network_security_group_diagnostics"],
  [NETWORK_CREATED]: ["virtual_network", "network_security_group", "function_subnet", "private_endpoint_subnet"],
  [`${NETWORK_CREATED} and {nat_gateway_enabled}`]: ["public_ip_address", "nat_gateway"],
  "{network_enabled}": ["private_endpoint"],
  [`${OWN_ZONES} and {network_enabled}`]: ["private_dns_zone", "virtual_network_link"],
  [`${OWN_ZONES} or contains({private_dns_zone_resource_ids}, {endpoint.group_id}) and {network_enabled}`]: [
    "private_dns_zone_group",
  ],
  [APP_ENDPOINT]: ["app_private_endpoint"],
  [`${OWN_ZONES} and ${APP_ENDPOINT}`]: ["app_private_dns_zone", "app_virtual_network_link"],
  [`${OWN_ZONES} or contains({private_dns_zone_resource_ids}, sites) and ${APP_ENDPOINT}`]: [
    "app_private_dns_zone_group",
  ],
  // Two conditions each: the service deploys the files of watch/ for subscriptions if watch_roles_enabled is true. A person deploys
  // them for a management group, then without a condition.
  "{watch_roles_enabled}": ["key_vault_reader_role", "inventory_reader_role", "dependency_reader_role"],
  "": ["key_vault_reader_role", "inventory_reader_role", "dependency_reader_role"],
  ...Object.fromEntries(
    ["inventory_reader", "dependency_reader"].flatMap((role) => {
      const isCreated = `not {${role}_role_definition_id} is given`;
      return [isCreated, `${isCreated} and {watch_roles_enabled}`].map((condition) => [
        condition,
        [`${role}_definition`],
      ]);
    }),
  ),
  "not {rotation_operator_role_definition_id} is given": ["rotation_operator_definition"],
  "not {literal_scanner_role_definition_id} is given": ["literal_scanner_definition"],
};

/** Checks the condition of each resource. A resource that is in no list must always be created. */
export function checkConditions(resources: readonly BicepResource[]): Finding[] {
  return resources.flatMap((one) => {
    const name = snake(one.resource.name);
    const expected = Object.entries(CONDITIONS).flatMap(([condition, names]) =>
      names.includes(name) ? [condition] : [],
    );
    const isExpected = expected.length === 0 ? one.condition === "" : expected.includes(one.condition);
    return isExpected
      ? []
      : [
          findingAt(
            one,
            `${name} must be created ${expected.length > 0 ? `under the condition ${expected.join(" or ")}` : "always"}, but is under "${one.condition}"`,
          ),
        ];
  });
}
