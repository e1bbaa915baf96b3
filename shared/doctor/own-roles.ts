import { permits } from "../dependencies/azure/entitlements.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { RoleAssignments, RoleDefinition } from "../platform/azure/role-assignments.ts";

/** A role of the service's identity: what it permits, and where. */
interface HeldRole {
  scope: string;
  permissions: RoleDefinition["permissions"];
}

/** An action of the control plane, or a data action. */
export type Action = { action: string } | { dataAction: string };

/**
 * Data actions of a vault to which the service writes: it sets secrets, changes tags, disables versions and deletes secrets. Key
 * Vault Secrets Officer has all of them. A custom role may lack one.
 */
export const SECRET_WRITES: readonly Action[] = ["setSecret/action", "update/action", "delete"].map((name) => ({
  dataAction: `Microsoft.KeyVault/vaults/secrets/${name}`,
}));

/** The roles of the service's identity in one subscription, above it and below it. Roles through groups are included. */
export interface OwnRoles {
  /** Returns whether a role at the subscription or above it permits the action, and so permits it in the whole subscription. */
  permit(action: Action): boolean;
  /** Returns the scopes of all roles that permit the action, in lower case. */
  scopesWith(action: Action): string[];
}

/**
 * Reads the roles of an identity. Eligible roles (PIM) are not included.
 *
 * @throws {CloudFailure} if the assignments or one of the definitions can't be read.
 */
export async function readOwnRoles(
  roles: RoleAssignments,
  { subscriptionId, objectId, signal }: { subscriptionId: string; objectId: string; signal: AbortSignal },
): Promise<OwnRoles> {
  const { entries, unreadable } = await roles.list(subscriptionId, signal, objectId);
  if (unreadable[0]) throw unreadable[0];
  const definitions = new Map<string, RoleDefinition["permissions"]>();
  const held: HeldRole[] = [];
  for (const { roleDefinitionId, scope } of entries) {
    const permissions =
      definitions.get(roleDefinitionId) ?? (await roles.definition(roleDefinitionId, signal)).permissions;
    definitions.set(roleDefinitionId, permissions);
    held.push({ scope: scope.toLowerCase().replace(/\/$/, ""), permissions });
  }
  const prefixOfNarrowerScopes = `/subscriptions/${subscriptionId}/`.toLowerCase();
  const scopesWith = (action: Action) =>
    held
      .filter(({ permissions }) => permissions.some((rolePermission) => allows(rolePermission, action)))
      .map(({ scope }) => scope);
  return {
    scopesWith,
    permit: (action) => scopesWith(action).some((scope) => !scope.startsWith(prefixOfNarrowerScopes)),
  };
}

function allows(rolePermission: RoleDefinition["permissions"][number], action: Action): boolean {
  const { actions, notActions, dataActions, notDataActions } = rolePermission;
  return "action" in action
    ? permits(actions, notActions, action.action.toLowerCase())
    : permits(dataActions, notDataActions, action.dataAction.toLowerCase());
}

/** Returns the roles, or the failure that prevents reading them. */
export async function ownRolesOrFailure(reading: Promise<OwnRoles>): Promise<OwnRoles | CloudFailure> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof CloudFailure) return error;
    throw error;
  }
}
