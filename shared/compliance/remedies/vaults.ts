import { az, bicepString, inText, type Remediation, shellWord, type Target } from "./remediation.ts";

/** Remedies for key vaults themselves. */

const VAULT_NOTE =
  "To be put into the template that declares the vault, beside its other properties: a deployment of these alone would take the others away.";
const BESIDE_NOTE = "Stands by itself: the vault is only referred to.";

const vaultBicep = ({ vault }: Target, properties: string): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' = {\n  name: ${bicepString(vault)}\n  properties: {\n    ${properties}\n  }\n}`;
const existing = ({ vault }: Target): string =>
  `resource vault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {\n  name: ${bicepString(vault)}\n}\n\n`;

/** A property of the vault: `update` are the options of `az keyvault update`, `properties` the members in a template. */
const property =
  (steps: string, update: Readonly<Record<string, string>>, properties: string, before?: string) =>
  (target: Target): Remediation => ({
    portal: `${before ?? ""}Key vault ${inText(target.vault)} > ${steps}`,
    cli: az("keyvault update", { name: target.vault, ...update }),
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

export const roles = property(
  "Access configuration > Azure role-based access control.",
  { "enable-rbac-authorization": "true" },
  "enableRbacAuthorization: true",
  "Grant the roles that replace the access policies first. Then: ",
);

export const noPublicAccess = property(
  "Networking > Firewalls and virtual networks > Disable public access. What calls the vault needs a private endpoint then.",
  { "public-network-access": "Disabled" },
  "publicNetworkAccess: 'Disabled'",
);

export const firewall = property(
  "Networking > Allow public access from specific virtual networks and IP addresses, with those that call it.",
  { "default-action": "Deny", bypass: "AzureServices" },
  "networkAcls: { defaultAction: 'Deny', bypass: 'AzureServices' }",
);

/** The vault's resource id, asked for by the command itself. */
const resourceId = ({ vault }: Target): string =>
  `"$(${az("keyvault show", { name: vault, query: "id", output: "tsv" })})"`;

export const privateEndpoint = (target: Target): Remediation => {
  const name = `pe-${target.vault}`;
  const fixed = { "vnet-name": "<network>", subnet: "<subnet>", "group-id": "vault", "connection-name": name };
  return {
    portal: `Key vault ${inText(target.vault)} > Networking > Private endpoint connections > Create.`,
    cli: `${az("network private-endpoint create", { name, "resource-group": "<group>", ...fixed })} --private-connection-resource-id ${resourceId(target)}`,
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

/** For what refers to a vault, or to something in it, and can't follow the reference. */
export const followReference = (target: Target): Remediation => {
  const { vault, name } = target;
  const what = name === vault ? "the secret that it asks for" : inText(name);
  return {
    portal: `Open the app that the evidence names: its setting says what is wrong. Mostly its identity may not read ${what} in ${inText(vault)}, the name or version is wrong, or ${inText(vault)} is closed to its network.`,
    cli: `${az("role assignment create", { role: "Key Vault Secrets User", assignee: "<the app's identity>" })} --scope ${resourceId(target)}`,
    bicep: null,
    bicepNote: `What is to be changed depends on what the app's setting says of ${shellWord(inText(vault))}.`,
  };
};
