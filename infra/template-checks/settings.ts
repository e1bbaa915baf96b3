// Checks the app settings that the templates set on the function app against the settings that the service reads.

import { ConfigError, loadConfig, SETTING_NAMES } from "../../shared/platform/config/config.ts";
import type { BicepFile } from "./bicep/parse.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { NETWORK_CREATED } from "./parity/resource-kinds.ts";
import { bicepSettings, type Setting, terraformSettings } from "./parity/settings.ts";
import type { TerraformModule } from "./terraform/check.ts";

/**
 * Settings that the platform or a library reads, and the service does not:
 * https://learn.microsoft.com/azure/azure-functions/functions-app-settings
 */
const PLATFORM_SETTINGS = new Set([
  "AzureWebJobsStorage__blobServiceUri",
  "AzureWebJobsStorage__credential",
  "APPLICATIONINSIGHTS_CONNECTION_STRING",
  "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
  // The C library reads this setting: https://man7.org/linux/man-pages/man3/mallopt.3.html
  "MALLOC_ARENA_MAX",
  "MALLOC_TRIM_THRESHOLD_",
  // OpenTelemetry's library reads this setting.
  "OTEL_EXPORTER_OTLP_HEADERS",
]);

/** Settings that no deployment sets, because a deployment uses the managed identity and the cloud's default endpoints. */
const LOCAL_SETTINGS = new Set([
  "AzureWebJobsStorage",
  "AzureWebJobsStorage__accountName",
  "AZURE_AUTHORITY_HOST",
  "AZURE_RESOURCE_MANAGER_ENDPOINT",
  "AZURE_GRAPH_ENDPOINT",
  "LOG_ANALYTICS_ENDPOINT",
  "AZURE_KEY_VAULT_SUFFIX",
  "AZURE_APP_CONFIGURATION_SUFFIX",
  "AZURE_RESOURCE_DOMAINS",
  "AZURE_MAPS_ENDPOINT",
  "AZURE_CLIENT_SECRET",
  "COMMUNICATION_CONNECTION_STRING",
  "APP_CONFIGURATION_CONNECTION_STRING",
]);

/**
 * Sample values for values that are known only after a deployment. The patterns match the normalized form of an expression
 * (parity/normalize.ts), for example `{identity.client_id}`. The first matching pattern applies.
 */
const SAMPLES: [placeholder: RegExp, sample: string][] = [
  [
    /acme_dns_zone_ids/,
    "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-dns/providers/Microsoft.Network/dnsZones/sample.example",
  ],
  [
    /^\{(identity\.client_id|tenant_id|watched_subscription_ids|entra_api_client_id|deployer_object_id\} is given \?.*)\}$/,
    "00000000-0000-4000-8000-000000000000",
  ],
  [/^join\(.*\)$/, "00000000-0000-4000-8000-000000000000"],
  [/ is given \? (false : true|true : false)$/, "false"],
  [/^\{azure_cloud\}$/, "AzureCloud"],
  [/^\{mail_per_(minute|hour)\}$/, "20"],
  [/^\{alert_owner_domains\}$/, "sample.example"],
  [/^\{private_target_hosts\}$/, "login.sample.example:443"],
  [/^\{handover_key_vault_url\}$/, "https://sample.vault.azure.net"],
  [/^\{bootstrap_admin_username\}$/, "admin"],
  [/^\{public_ip_address\.ip_address\}$/, "203.0.113.7"],
  [
    /\{function_subnet\.id\}/,
    "/subscriptions/sample/resourceGroups/sample/providers/Microsoft.Network/virtualNetworks/sample/subnets/sample",
  ],
  [/^\{vault\.id\}$/, "/subscriptions/sample/resourceGroups/sample/providers/Microsoft.KeyVault/vaults/sample"],
  [/secrets\/(jwt|audit)-signing-keys\)$/, `sample:${Buffer.alloc(32, 7).toString("base64")}`],
  [/^@Microsoft\.KeyVault\(/, "a-sample-of-a-secret"],
  [
    /^\{(vault\.vault_uri|app_configuration\.endpoint|storage_account\.primary_endpoints_\w+)\}$/,
    "https://sample.example",
  ],
  [/^\{(public_base_url\} is given \?|telemetry_endpoint\}$)/, "https://sample.example"],
  [/^https:\/\//, "https://sample.example"],
  [/@/, "sample@sample.example"],
];

const secret = (name: string) => `@Microsoft.KeyVault(SecretUri={vault.vault_uri}secrets/${name})`;

/** Settings that must always be set, with their values in the common text of both languages (parity/normalize.ts). */
const REQUIRED_SETTINGS: Record<string, string> = {
  ...Object.fromEntries(
    ["blob", "queue", "table"].map((service) => [
      `AzureWebJobsStorage__${service}ServiceUri`,
      `{storage_account.primary_endpoints_${service}}`,
    ]),
  ),
  APPLICATIONINSIGHTS_CONNECTION_STRING: "{application_insights.connection_string}",
  PUBLIC_BASE_URL:
    "{public_base_url} is given ? {public_base_url} : https://func-{environment_name}-{suffix}.{cloud.app_domain}",
  BOOTSTRAP_ADMIN_USERNAME: "{bootstrap_admin_username}",
  MALLOC_ARENA_MAX: "2",
  MALLOC_TRIM_THRESHOLD_: "131072",
  AzureWebJobsStorage__credential: "managedidentity",
  AzureWebJobsStorage__clientId: "{identity.client_id}",
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: "ClientId={identity.client_id};Authorization=AAD",
  AZURE_CLIENT_ID: "{identity.client_id}",
  AZURE_TENANT_ID: "{tenant_id}",
  AZURE_CLOUD: "{azure_cloud}",
  AZURE_SUBSCRIPTION_IDS: "join(,, {watched_subscription_ids})",
  WATCH_ALL: "join(,, {watched_subscription_ids}) is given ? false : true",
  SERVICE_KEY_VAULT_URL: "{vault.vault_uri}",
  SERVICE_KEY_VAULT_ID: "{vault.id}",
  OPERATOR_ADDRESSES_SET: "{operator_email_addresses} is given ? true : false",
  DEPLOYER_OBJECT_ID: "{deployer_object_id} is given ? {deployer_object_id} : {own_object_id}",
  // The names are those of infra/azure/scripts/make-secrets.ts.
  JWT_SIGNING_KEYS: secret("jwt-signing-keys"),
  AUDIT_SIGNING_KEYS: secret("audit-signing-keys"),
  BOOTSTRAP_ADMIN_PASSWORD: secret("bootstrap-admin-password"),
};

/** Settings that are set on a condition: the value and the condition, in the same text. */
const CONDITIONAL_SETTINGS: Record<string, [value: string, condition: string]> = {
  COMMUNICATION_ENDPOINT: ["https://{communication_service.host_name}", "{mail_enabled}"],
  ALERT_SENDER_ADDRESS: ["DoNotReply@{email_domain.mail_from_sender_domain}", "{mail_enabled}"],
  ...Object.fromEntries(
    [
      "ALERT_OWNER_DOMAINS",
      "MAIL_PER_MINUTE",
      "MAIL_PER_HOUR",
      "ENTRA_API_CLIENT_ID",
      "ENTRA_API_SCOPE",
      "PRIVATE_TARGET_HOSTS",
      "HANDOVER_KEY_VAULT_URL",
    ].map((name): [string, [string, string]] => [
      name,
      [`{${name.toLowerCase()}}`, `{${name.toLowerCase()}} is given`],
    ]),
  ),
  APP_CONFIGURATION_ENDPOINT: ["{app_configuration.endpoint}", "{app_configuration_enabled}"],
  LICENSE_KEY: [secret("{license_secret_name}"), "{license_secret_name} is given"],
  ENTRA_TENANT_IDS: ["join(,, concat([{tenant_id}], {further_entra_tenant_ids}))", "{entra_api_client_id} is given"],
  LOG_ANALYTICS_WORKSPACE_IDS: ["join(,, {log_analytics_workspace_ids})", "{log_analytics_workspace_ids} is given"],
  OTEL_EXPORTER_OTLP_ENDPOINT: ["{telemetry_endpoint}", "{telemetry_endpoint} is given"],
  OTEL_EXPORTER_OTLP_HEADERS: [secret("{telemetry_headers_secret_name}"), "{telemetry_headers_secret_name} is given"],
  OUTBOUND_IP_ADDRESS: [
    "{public_ip_address.ip_address}",
    "{network_enabled} and not {function_subnet_resource_id} is given and {nat_gateway_enabled}",
  ],
  OUTBOUND_SUBNET_ID: [
    `${NETWORK_CREATED} ? {function_subnet.id} : {function_subnet_resource_id}`,
    // The common text has no parentheses: everything after the first `and not` is negated.
    "{network_enabled} and not {network_enabled} and not {function_subnet_resource_id} is given and {nat_gateway_enabled}",
  ],
  ACME_DNS_ZONE_IDS: ["join(,, {acme_dns_zone_ids})", "{acme_dns_zone_ids} is given"],
  DEPENDENCY_LITERAL_SCAN: ["true", "{literal_scan_subscription_ids} is given"],
};

/**
 * Checks that the service or the platform reads every setting that the templates set, and that both languages set the values in
 * the tables. Also checks that the service accepts the settings, both with all of them and without the conditional ones.
 */
export function checkSettings(bicep: ReadonlyMap<string, BicepFile>, modules: readonly TerraformModule[]): Finding[] {
  const settings = bicepSettings(bicep);
  const readSettings = new Set([...SETTING_NAMES, ...PLATFORM_SETTINGS]);
  const findings = settings
    .filter(({ name }) => !readSettings.has(name))
    .map(({ name, file, line }) => ({
      file,
      line,
      message: `neither the service nor the platform reads the setting ${name}`,
    }));
  const expected = new Map<string, readonly [value: string, condition: string]>(Object.entries(CONDITIONAL_SETTINGS));
  for (const [name, value] of Object.entries(REQUIRED_SETTINGS)) expected.set(name, [value, ""]);
  findings.push(
    ...compareWithTables(expected, settings, "infra/azure/modules/app.bicep"),
    ...compareWithTables(expected, terraformSettings(modules), "infra/terraform/app.tf"),
  );
  findings.push(
    ...settings
      .filter(({ name }) => !expected.has(name))
      .map(({ name, file, line }) => ({
        file,
        line,
        message: `${name} is not in the table of settings (settings.ts)`,
      })),
  );
  for (const variant of [settings, settings.filter(({ condition }) => condition === "")]) {
    const environment = Object.fromEntries(variant.map(({ name, value }) => [name, sampleOf(value)]));
    try {
      loadConfig(environment);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      // The first line is a heading. Each other line is one problem.
      const problems = error.message.split("\n").slice(1);
      findings.push(
        ...problems.map((problem) => ({
          file: "infra/azure/modules/app.bicep",
          line: 1,
          message: `the settings of the templates are not valid:${problem}`,
        })),
      );
    }
  }
  const keyOf = ({ file, message }: Finding) => `${file} ${message}`;
  return [...new Map(findings.map((one) => [keyOf(one), one])).values()];
}

/** Compares the settings of one language with the tables. A setting that is missing is reported in `file`. */
function compareWithTables(
  expected: ReadonlyMap<string, readonly [value: string, condition: string]>,
  settings: readonly Setting[],
  file: string,
): Finding[] {
  return [...expected].flatMap(([name, [value, condition]]) => {
    const setting = settings.find((one) => one.name === name && one.condition === condition);
    if (setting?.value === value) return [];
    const place = settings.find((one) => one.name === name) ?? { file, line: 1 };
    const actual = settings.filter((one) => one.name === name).map((one) => `"${one.value}" if "${one.condition}"`);
    const message = `${name} must be "${value}"${condition && ` if "${condition}"`}, but is ${setting ? `"${setting.value}"` : (actual[0] ?? "not set")}`;
    return [{ file: place.file, line: place.line, message }];
  });
}

/**
 * Checks that each setting that the templates do not set is mentioned on a documentation page, so that operators find it. The
 * complete list in docs/settings.md does not count.
 */
export function checkSettingsPages(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const setByTemplates = bicepSettings(bicep).map(({ name }) => name);
  const pages = [...files.text]
    .filter(([file]) => file.startsWith("docs/") && file !== "docs/settings.md")
    .map(([, text]) => text);
  return SETTING_NAMES.filter((name) => !setByTemplates.includes(name) && !LOCAL_SETTINGS.has(name))
    .filter((name) => !pages.some((page) => new RegExp(`\\b${name}\\b`).test(page)))
    .map((name) => ({ file: "docs/deploy.md", line: 1, message: `no page mentions the setting ${name}` }));
}

function sampleOf(value: string): string {
  return SAMPLES.find(([placeholder]) => placeholder.test(value))?.[1] ?? value;
}
