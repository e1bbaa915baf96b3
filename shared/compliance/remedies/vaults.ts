import { az, shellWord } from "../../platform/azure/cli.ts";
import { bicepString, commentedCommand, joinLines, nameInText, type Remediation, type Target } from "./remediation.ts";

/** Remediations for key vaults themselves. */

const VAULT_NOTE =
  "Add it to the template that declares the vault, next to the vault's other properties. A deployment with this property alone would remove the others.";
const COMPLETE_TEMPLATE_NOTE = "This template is complete, because it only references the vault.";

const vaultBicep = ({ vault }: Target, properties: string): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' = {\n  name: ${bicepString(vault)}\n  properties: {\n    ${properties}\n  }\n}`;
const existingVaultBicep = ({ vault }: Target): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {\n  name: ${bicepString(vault)}\n}\n\n`;

type Options = Readonly<Record<string, string>>;
const updateCommand = ({ vault }: Target, options: Options): string =>
  az("keyvault update", { name: vault, ...options });

/** Changes a property of the vault: `options` are those of `az keyvault update`, `properties` the members in a template. */
const vaultPropertyRemedy =
  (steps: string, options: Options, properties: string) =>
  (target: Target): Remediation => ({
    portal: `Key vault ${nameInText(target.vault)} > ${steps}`,
    cli: updateCommand(target, options),
    bicep: vaultBicep(target, properties),
    bicepNote: VAULT_NOTE,
  });

export const enableSoftDelete = vaultPropertyRemedy(
  "Properties > Soft-delete: enable recovery of this vault and its objects.",
  { set: "properties.enableSoftDelete=true" },
  "enableSoftDelete: true",
);

export const enablePurgeProtection = vaultPropertyRemedy(
  "Properties > Purge protection: enable. It can't be switched off again.",
  { "enable-purge-protection": "true" },
  "enableSoftDelete: true\n    enablePurgeProtection: true",
);

/** A subcommand that returns the vault's resource ID. */
const resourceId = ({ vault }: Target): string =>
  `"$(${az("keyvault show", { name: vault, query: "id", output: "tsv" })})"`;

/** With roles, access policies no longer have an effect: https://learn.microsoft.com/azure/key-vault/general/rbac-migration */
export const switchToRoles = (target: Target): Remediation => ({
  portal: `Key vault ${nameInText(target.vault)} > Access policies shows who has access. Assign each of them the role that replaces the policy, such as Key Vault Secrets User, under Access control (IAM), and wait up to 10 minutes until it holds. Only then Access configuration > Azure role-based access control: access policies have no effect from then on.`,
  cli: joinLines(
    "# Who has access by an access policy:",
    az("keyvault show", { name: target.vault, query: "properties.accessPolicies" }),
    "# Assign each of them the role that replaces the policy, such as this one:",
    `${az("role assignment create", { role: "Key Vault Secrets User", assignee: "<object id of the identity>" })} --scope ${resourceId(target)}`,
    commentedCommand(
      "After every one of them has its role, which takes up to 10 minutes, switch over. Access policies have no effect from then on",
      updateCommand(target, { "enable-rbac-authorization": "true" }),
    ),
  ),
  bicep: vaultBicep(target, "enableRbacAuthorization: true"),
  bicepNote: `Deploy it only after every identity of an access policy has the role that replaces it. ${VAULT_NOTE}`,
});

const endpointName = ({ vault }: Target): string => `pe-${vault}`;

function endpointCommand(target: Target): string {
  const name = endpointName(target);
  const endpointOptions = {
    "vnet-name": "<network>",
    subnet: "<subnet>",
    "group-id": "vault",
    "connection-name": name,
  };
  return `${az("network private-endpoint create", { name, "resource-group": "<group>", ...endpointOptions })} --private-connection-resource-id ${resourceId(target)}`;
}

export const disablePublicAccess = (target: Target): Remediation => ({
  portal: `Key vault ${nameInText(target.vault)} > Networking > Private endpoint connections > Create, in the network of every caller that has none, this service included. Check that each caller resolves the vault's name to a private address. Only then Firewalls and virtual networks > Disable public access.`,
  cli: joinLines(
    "# In the network of every caller that has no private endpoint, this service included:",
    endpointCommand(target),
    commentedCommand(
      "After every caller resolves the name of the vault to a private address, close public access",
      updateCommand(target, { "public-network-access": "Disabled" }),
    ),
  ),
  bicep: vaultBicep(target, "publicNetworkAccess: 'Disabled'"),
  bicepNote: `Deploy it only after every caller reaches the vault by a private endpoint. ${VAULT_NOTE}`,
});

export const enableFirewall = (target: Target): Remediation => ({
  portal: `Key vault ${nameInText(target.vault)} > Networking > Firewalls and virtual networks: add the networks and addresses of every caller, this service included. Only then Allow public access from specific virtual networks and IP addresses.`,
  cli: joinLines(
    "# For every caller, this service included. Rules have no effect while the vault allows every network:",
    az("keyvault network-rule add", { name: target.vault, "ip-address": "<address or range>" }),
    commentedCommand(
      "After every caller has a rule, close the vault for all others",
      updateCommand(target, { "default-action": "Deny", bypass: "AzureServices" }),
    ),
  ),
  bicep: vaultBicep(
    target,
    "networkAcls: { defaultAction: 'Deny', bypass: 'AzureServices', ipRules: [ { value: '<address or range>' } ] }",
  ),
  bicepNote: `Deploy it only with a rule for every caller, this service included: it replaces the existing rules. ${VAULT_NOTE}`,
});

export const createPrivateEndpoint = (target: Target): Remediation => {
  const name = endpointName(target);
  return {
    portal: `Key vault ${nameInText(target.vault)} > Networking > Private endpoint connections > Create.`,
    cli: endpointCommand(target),
    bicep: `param location string = resourceGroup().location\nparam subnetId string\n\n${existingVaultBicep(target)}resource endpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = {\n  name: ${bicepString(name)}\n  location: location\n  properties: {\n    subnet: { id: subnetId }\n    privateLinkServiceConnections: [\n      { name: ${bicepString(name)}, properties: { privateLinkServiceId: vault.id, groupIds: [ 'vault' ] } }\n    ]\n  }\n}`,
    bicepNote: COMPLETE_TEMPLATE_NOTE,
  };
};

const AUDIT_LOGS = JSON.stringify([{ categoryGroup: "audit", enabled: true }]);

export const enableAuditLog = (target: Target): Remediation => ({
  portal: `Key vault ${nameInText(target.vault)} > Diagnostic settings > Add: category group audit, to a workspace or storage account.`,
  cli: `${az("monitor diagnostic-settings create", { name: "audit", workspace: "<workspace id>", logs: AUDIT_LOGS })} --resource ${resourceId(target)}`,
  bicep: `param workspaceId string\n\n${existingVaultBicep(target)}resource audit 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {\n  name: 'audit'\n  scope: vault\n  properties: { workspaceId: workspaceId, logs: [ { categoryGroup: 'audit', enabled: true } ] }\n}`,
  bicepNote: COMPLETE_TEMPLATE_NOTE,
});

/** Remediation of an app or other resource whose reference to a vault, or to a secret or certificate in it, does not resolve. */
export const fixReference = (target: Target): Remediation => {
  const { vault, name } = target;
  // A violation of the vault itself has the vault's name. It is about references to an object that the vault does not contain.
  const objectText = name === vault ? "the secret that it references" : nameInText(name);
  return {
    portal: `Open the app in the evidence. Its setting shows the error. Usually its identity is not allowed to read ${objectText} in ${nameInText(vault)}, the name or version is wrong, or ${nameInText(vault)} does not allow its network.`,
    cli: `${az("role assignment create", { role: "Key Vault Secrets User", assignee: "<the app's identity>" })} --scope ${resourceId(target)}`,
    bicep: null,
    bicepNote: `The fix depends on the error in the app's setting for ${shellWord(nameInText(vault))}.`,
  };
};
