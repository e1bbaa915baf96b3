import { WATCH_TEMPLATE } from "../platform/azure/watch-roles.ts";

// Commands of the Azure CLI that grant what the doctor found missing.

/** The identity that gets the permission. Undefined if the service could not sign in. */
export interface Principal {
  objectId: string;
  type: "ServicePrincipal" | "User";
}

/** Returns the object ID, or a placeholder for people to replace. */
const objectIdOf = (principal: Principal | undefined) => principal?.objectId ?? "<object id of the service's identity>";

/** Creates the custom roles of a watched subscription and assigns them. */
export const watchCommand = (principal: Principal | undefined, subscriptionId: string): string =>
  `az deployment sub create --subscription "${subscriptionId}" --location "<region>" --template-file ${WATCH_TEMPLATE} --parameters principalId="${objectIdOf(principal)}" environmentName="<environment name>"`;

/** Assigns a role. */
export const assignCommand = (principal: Principal | undefined, role: string, scope: string): string =>
  `az role assignment create --assignee-object-id "${objectIdOf(principal)}" --assignee-principal-type ${principal?.type ?? "ServicePrincipal"} --role "${role}" --scope "${scope}"`;

/**
 * Deploys a template that creates and assigns a role in a resource group.
 *
 * @param parameters - Further parameters, with a space before.
 */
export const groupCommand = (principal: Principal | undefined, template: string, parameters = ""): string =>
  `az deployment group create --resource-group "<resource group>" --template-file ${template} --parameters principalId="${objectIdOf(principal)}" environmentName="<environment name>"${parameters}`;

/** Deploys a template that creates and assigns a role in a subscription. */
export const subscriptionCommand = (principal: Principal | undefined, template: string): string =>
  `az deployment sub create --subscription "<subscription>" --location "<region>" --template-file ${template} --parameters principalId="${objectIdOf(principal)}" environmentName="<environment name>"`;

/** Client ID of Microsoft Graph in every tenant. */
const GRAPH = "00000003-0000-0000-c000-000000000000";

/** Grants an application permission of Microsoft Graph. The command finds the permission's ID by its name. */
export function graphCommand(principal: Principal | undefined, permission: string): string {
  const id = objectIdOf(principal);
  const graph = `$(az ad sp show --id ${GRAPH} --query id -o tsv)`;
  const role = `$(az ad sp show --id ${GRAPH} --query "appRoles[?value=='${permission}'].id" -o tsv)`;
  return `az rest --method POST --uri "https://graph.microsoft.com/v1.0/servicePrincipals/${id}/appRoleAssignments" --body "{\\"principalId\\":\\"${id}\\",\\"resourceId\\":\\"${graph}\\",\\"appRoleId\\":\\"${role}\\"}"`;
}
