import { az, bicepString, inText, later, lines, type Remediation, shellWord, type Target } from "./remediation.ts";

/** Remediations for key vaults themselves. */

const VAULT_NOTE =
  "To be put into the template that declares the vault, beside its other properties: a deployment of these alone would take the others away.";
const BESIDE_NOTE = "Complete by itself, because the vault is only referenced.";

const vaultBicep = ({ vault }: Target, properties: string): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' = {\n  name: ${bicepString(vault)}\n  properties: {\n    ${properties}\n  }\n}`;
const existing = ({ vault }: Target): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {\n  name: ${bicepString(vault)}\n}\n\n`;

type Options = Readonly<Record<string, string>>;
const update = ({ vault }: Target, options: Options): string => az("keyvault update", { name: vault, ...options });

/** Changes a property of the vault: `options` are those of `az keyvault update`, `properties` the members in a template. */
const property =
  (steps: string, options: Options, properties: string) =>
  (target: Target): Remediation => ({
    portal: `Key vault ${inText(target.vault)} > ${steps}`,
    cli: update(target, options),
    bicep: vaultBicep(target, properties),
    bicepNote: VAULT_NOTE,
  });

export const softDelete = property(
  "Properties > Soft-delete: enable recovery of this vault and its objects.",
  { set: "properties.enableSoftDelete=true" },
  "enableSoftDelete: true",
);

export const purgeProtection = property(
  "Properties > Purge protection: enable. It can't be switched off again.",
  { "enable-purge-protection": "true" },
  "enableSoftDelete: true\n    enablePurgeProtection: true",
);

/** A subcommand that returns the vault's resource ID. */
const resourceId = ({ vault }: Target): string =>
  `"$(${az("keyvault show", { name: vault, query: "id", output: "tsv" })})"`;

/** With roles, access policies no longer have an effect: https://learn.microsoft.com/azure/key-vault/general/rbac-migration */
export const roles = (target: Target): Remediation => ({
  portal: `Key vault ${inText(target.vault)} > Access policies shows who has access. Assign each of them the role that replaces the policy, such as Key Vault Secrets User, under Access control (IAM), and wait up to 10 minutes until it holds. Only then Access configuration > Azure role-based access control: access policies have no effect from then on.`,
  cli: lines(
    "# Who has access by an access policy:",
    az("keyvault show", { name: target.vault, query: "properties.accessPolicies" }),
    "# Assign each of them the role that replaces the policy, such as this one:",
    `${az("role assignment create", { role: "Key Vault Secrets User", assignee: "<object id of the identity>" })} --scope ${resourceId(target)}`,
    later(
      "After every one of them has its role, which takes up to 10 minutes, switch over. Access policies have no effect from then on",
      update(target, { "enable-rbac-authorization": "true" }),
    ),
  ),
  bicep: vaultBicep(target, "enableRbacAuthorization: true"),
  bicepNote: `Deploy it only after every identity of an access policy has the role that replaces it. ${VAULT_NOTE}`,
});

const endpointName = ({ vault }: Target): string => `pe-${vault}`;

function createEndpoint(target: Target): string {
  const name = endpointName(target);
  const fixed = { "vnet-name": "<network>", subnet: "<subnet>", "group-id": "vault", "connection-name": name };
  return `${az("network private-endpoint create", { name, "resource-group": "<group>", ...fixed })} --private-connection-resource-id ${resourceId(target)}`;
}

export const noPublicAccess = (target: Target): Remediation => ({
  portal: `Key vault ${inText(target.vault)} > Networking > Private endpoint connections > Create, in the network of every caller that has none, this service included. Check that each caller resolves the vault's name to a private address. Only then Firewalls and virtual networks > Disable public access.`,
  cli: lines(
    "# In the network of every caller that has no private endpoint, this service included:",
    createEndpoint(target),
    later(
      "After every caller resolves the name of the vault to a private address, close public access",
      update(target, { "public-network-access": "Disabled" }),
    ),
  ),
  bicep: vaultBicep(target, "publicNetworkAccess: 'Disabled'"),
  bicepNote: `Deploy it only after every caller reaches the vault by a private endpoint. ${VAULT_NOTE}`,
});

export const firewall = (target: Target): Remediation => ({
  portal: `Key vault ${inText(target.vault)} > Networking > Firewalls and virtual networks: add the networks and addresses of every caller, this service included. Only then Allow public access from specific virtual networks and IP addresses.`,
  cli: lines(
    "# For every caller, this service included. Rules have no effect while the vault allows every network:",
    az("keyvault network-rule add", { name: target.vault, "ip-address": "<address or range>" }),
    later(
      "After every caller has a rule, close the vault for all others",
      update(target, { "default-action": "Deny", bypass: "AzureServices" }),
    ),
  ),
  bicep: vaultBicep(
    target,
    "networkAcls: { defaultAction: 'Deny', bypass: 'AzureServices', ipRules: [ { value: '<address or range>' } ] }",
  ),
  bicepNote: `Deploy it only with a rule for every caller, this service included: it replaces the rules that there are. ${VAULT_NOTE}`,
});

export const privateEndpoint = (target: Target): Remediation => {
  const name = endpointName(target);
  return {
    portal: `Key vault ${inText(target.vault)} > Networking > Private endpoint connections > Create.`,
    cli: createEndpoint(target),
    bicep: `param location string = resourceGroup().location\nparam subnetId string\n\n${existing(target)}resource endpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = {\n  name: ${bicepString(name)}\n  location: location\n  properties: {\n    subnet: { id: subnetId }\n    privateLinkServiceConnections: [\n      { name: ${bicepString(name)}, properties: { privateLinkServiceId: vault.id, groupIds: [ 'vault' ] } }\n    ]\n  }\n}`,
    bicepNote: BESIDE_NOTE,
  };
};

const AUDIT_LOGS = JSON.stringify([{ categoryGroup: "audit", enabled: true }]);

export const auditLog = (target: Target): Remediation => ({
  portal: `Key vault ${inText(target.vault)} > Diagnostic settings > Add: category group audit, to a workspace or storage account.`,
  cli: `${az("monitor diagnostic-settings create", { name: "audit", workspace: "<workspace id>", logs: AUDIT_LOGS })} --resource ${resourceId(target)}`,
  bicep: `param workspaceId string\n\n${existing(target)}resource audit 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {\n  name: 'audit'\n  scope: vault\n  properties: { workspaceId: workspaceId, logs: [ { categoryGroup: 'audit', enabled: true } ] }\n}`,
  bicepNote: BESIDE_NOTE,
});

/** For a consumer whose reference to a vault or its object can't be resolved. */
export const followReference = (target: Target): Remediation => {
  const { vault, name } = target;
  const what = name === vault ? "the secret that it asks for" : inText(name);
  return {
    portal: `Open the app in the evidence. Its setting shows the error. Mostly its identity is not allowed to read ${what} in ${inText(vault)}, the name or version is wrong, or ${inText(vault)} does not allow its network.`,
    cli: `${az("role assignment create", { role: "Key Vault Secrets User", assignee: "<the app's identity>" })} --scope ${resourceId(target)}`,
    bicep: null,
    bicepNote: `The fix depends on the error in the app's setting for ${shellWord(inText(vault))}.`,
  };
};
