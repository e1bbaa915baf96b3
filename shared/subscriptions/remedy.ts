import type { CloudFailure } from "../platform/azure/failure.ts";
import type { Principal } from "../platform/azure/identity.ts";
import type { VaultResource } from "../platform/azure/resource-manager.ts";
import { INVENTORY_READER, INVENTORY_ROLE, WATCH_TEMPLATE } from "../platform/azure/watch-roles.ts";
import type { Config } from "../platform/config/config.ts";

// The fixes for failed steps of a subscription's connection test, with commands of the Azure CLI.

/** Steps of the connection test. */
export const STEPS = [
  "subscriptionReadable",
  "vaultsListable",
  "secretsListable",
  "keysListable",
  "certificatesListable",
] as const;
export type Step = (typeof STEPS)[number];

/** The fix of a failed step. */
export interface Remedy {
  /** The fix in words. */
  text: string;
  /** The built-in role to assign. Null if no role helps, or if it is a custom role, which `text` names. */
  roleDefinition: { name: string; id: string } | null;
  /** ARM resource ID of the resource to change. */
  scope: string;
  /** The command of the fix. Null if there is none. */
  azCliCommand: string | null;
}

/** The built-in role: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/security#key-vault-reader */
const KEY_VAULT_READER = { name: "Key Vault Reader", id: "21090545-7ca7-4776-b22c-e363652d74d2" };

/**
 * Permissions that a scan needs in an access policy: https://learn.microsoft.com/azure/key-vault/general/assign-access-policy
 */
const POLICY_PERMISSIONS: Partial<Record<Step, string>> = {
  secretsListable: "--secret-permissions list",
  keysListable: "--key-permissions list get getrotationpolicy",
  certificatesListable: "--certificate-permissions list get",
};

/**
 * Required version of the Azure CLI. Earlier ones use an API that Azure retires on 2027-02-27:
 * https://github.com/Azure/azure-cli/issues/34020
 */
const CLI_VERSION = "The command needs Azure CLI 2.90 or later.";

/** Where the service's calls come from. Both are undefined if the platform chooses the addresses. */
export type Outbound = Pick<Config, "OUTBOUND_IP_ADDRESS" | "OUTBOUND_SUBNET_ID">;

/** Returns what to allow in a vault's firewall, as an option of `az keyvault network-rule add`, and the advice for it. */
function networkRule({ OUTBOUND_IP_ADDRESS: address, OUTBOUND_SUBNET_ID: subnet }: Outbound): [string, string] {
  if (address)
    return [`--ip-address "${address}"`, `Allow the service's public address ${address} in the vault's firewall.`];
  if (subnet) return [`--subnet "${subnet}"`, "Allow the service's subnet in the vault's firewall."];
  return [
    '--subnet "<subnet of the service>"',
    "The service calls from changing addresses of the platform. Deploy it with networkEnabled, then allow its subnet in the vault's firewall, or with natGatewayEnabled its fixed address (docs/deploy-options.md).",
  ];
}

/** Returns the fix of a failed step. */
export function remedyFor(
  failure: CloudFailure,
  failed: {
    step: Step;
    scope: string;
    vault: VaultResource | undefined;
    principal: Principal | undefined;
    outbound: Outbound;
  },
): Remedy {
  const { scope, vault } = failed;
  const { objectId, type } = failed.principal ?? {
    objectId: "<object id of the service's identity>",
    type: "ServicePrincipal",
  };
  const textOnly: Remedy = { text: failure.remedy, roleDefinition: null, scope, azCliCommand: null };
  // If public access is disabled, no rule of the firewall helps. `failure.remedy` also names a private endpoint.
  if (failure.code === "firewall" && vault?.publicNetworkAccess === "Enabled") {
    const [option, advice] = networkRule(failed.outbound);
    return {
      ...textOnly,
      text: `${advice} ${CLI_VERSION}`,
      azCliCommand: `az keyvault network-rule add --name "${vault.name}" ${option}`,
    };
  }
  // Azure returns 404 or 403 for a subscription that the identity can't read.
  const missingRole = failure.code === "accessDenied" || (failure.code === "notFound" && !vault);
  if (!missingRole) return textOnly;
  if (vault && !vault.rbacAuthorization) {
    return {
      ...textOnly,
      text: `This vault uses access policies. The command replaces the identity's permissions of the same kind, so add to the command those that the identity already has. ${CLI_VERSION}`,
      azCliCommand: `az keyvault set-policy --name "${vault.name}" --object-id "${objectId}" ${POLICY_PERMISSIONS[failed.step]}`,
    };
  }
  const assign = (role: string) =>
    `az role assignment create --assignee-object-id "${objectId}" --assignee-principal-type ${type} --role "${role}" --scope "${scope}"`;
  if (vault) {
    return {
      text: `Assign the role ${KEY_VAULT_READER.name} to the service's identity on this vault, its resource group or its subscription.`,
      roleDefinition: KEY_VAULT_READER,
      scope,
      azCliCommand: assign(KEY_VAULT_READER.id),
    };
  }
  const subscriptionId = scope.slice("/subscriptions/".length);
  // The template assigns the roles to a service principal. On a developer's machine, assign the role that the template created
  // to the signed-in user.
  if (type === "User") {
    return {
      text: `Assign the custom role ${INVENTORY_ROLE} of this subscription to yourself. ${WATCH_TEMPLATE} creates the role.`,
      roleDefinition: null,
      scope,
      azCliCommand: assign(`${INVENTORY_ROLE} (<environment name>, ${subscriptionId})`),
    };
  }
  // INVENTORY_READER is the role's name with its scope and the template: "the custom role … on the subscription (…)".
  return {
    text: `Give the service's identity ${INVENTORY_READER}. The command deploys the template. If the role already exists, assign it instead: its name is ${INVENTORY_ROLE} (<environment name>, ${subscriptionId}).`,
    roleDefinition: null,
    scope,
    azCliCommand: `az deployment sub create --subscription "${subscriptionId}" --location "<region>" --template-file ${WATCH_TEMPLATE} --parameters principalId="${objectId}" environmentName="<environment name>"`,
  };
}
