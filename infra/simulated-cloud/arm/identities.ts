// Managed identities of the company's resources.

import type { CompanyChild } from "../company/resources.ts";
import { guidFrom } from "../vaults/identifiers.ts";

/** A resource's managed identities in Azure Resource Manager's format. */
export interface ManagedIdentity {
  type: string;
  principalId?: string;
  tenantId?: string;
  userAssignedIdentities?: Record<string, UserIdentity>;
}

interface UserIdentity {
  principalId: string;
  clientId: string;
}

/** Returns the resource ID of a user-assigned identity. */
export const userIdentityId = (subscriptionId: string, name: string): string =>
  `/subscriptions/${subscriptionId}/resourceGroups/rg-identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities/${name}`;

/** Returns the IDs of a user-assigned identity. They depend on its name only. */
export const userIdentity = (name: string): UserIdentity => ({
  principalId: guidFrom(`principal of identity ${name}`),
  clientId: guidFrom(`client of identity ${name}`),
});

/**
 * Returns the managed identities that a company declares for a resource.
 *
 * @param id - ID of the resource.
 */
export function managedIdentity(
  id: string,
  tenantId: string,
  { system = false, user = [] }: NonNullable<CompanyChild["identity"]>,
): ManagedIdentity {
  const [, , subscription] = id.split("/");
  const types = [...(system ? ["SystemAssigned"] : []), ...(user.length > 0 ? ["UserAssigned"] : [])];
  const users = user.map((name) => [userIdentityId(subscription!, name), userIdentity(name)] as const);
  return {
    type: types.join(", ") || "None",
    ...(system && { principalId: guidFrom(`principal ${id.toLowerCase()}`), tenantId }),
    ...(users.length > 0 && { userAssignedIdentities: Object.fromEntries(users) }),
  };
}

/**
 * Returns the object ID of the system-assigned identity, or of a user-assigned identity. Empty if the resource does not have
 * it.
 * @param userIdentityResourceId Resource ID of the user-assigned identity.
 */
export function principalsOf(identity: ManagedIdentity | undefined, userIdentityResourceId?: string): string[] {
  if (userIdentityResourceId === undefined) return identity?.principalId === undefined ? [] : [identity.principalId];
  const users = Object.entries(identity?.userAssignedIdentities ?? {});
  return users
    .filter(([id]) => id.toLowerCase() === userIdentityResourceId.toLowerCase())
    .map(([, { principalId }]) => principalId);
}

/** Returns the object IDs of all identities of a resource. */
export function allPrincipalsOf(identity: ManagedIdentity | undefined): string[] {
  const users = Object.values(identity?.userAssignedIdentities ?? {});
  return [...principalsOf(identity), ...users.map(({ principalId }) => principalId)];
}
