import { ROLES, type RoleName } from "../company/resources.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import type { Vault } from "../vaults/vault.ts";

/** A role assignment. `scope` is the ID of a subscription or resource. */
export interface RoleAssignment {
  id: string;
  name: string;
  scope: string;
  principalId: string;
  principalType: string;
  roleDefinitionId: string;
  description?: string;
  /** Object IDs of the identities that created and last changed it, and when. Set if a request wrote it. */
  createdBy?: string;
  updatedBy?: string;
  createdOn?: string;
  updatedOn?: string;
}

/** Returns whether a scope is the management group. The company has one, which contains every subscription. */
const isManagementGroup = (scope: string): boolean => scope.startsWith("/providers/");

/** Returns whether a role assignment at a scope applies to a resource ID. */
export function appliesTo(scope: string, id: string): boolean {
  const [outer, inner] = [scope.toLowerCase(), id.toLowerCase()];
  return isManagementGroup(scope) || inner === outer || inner.startsWith(`${outer}/`);
}

/** Roles that allow reading secrets. */
const READ_SECRETS: RoleName[] = ["Key Vault Administrator", "Key Vault Secrets User", "Key Vault Secrets Officer"];

/**
 * Stores which principals can read which vault, by role assignment or by access policy, depending on the vault. Principals are
 * object IDs.
 */
export class VaultAccess {
  readonly assignments: RoleAssignment[] = [];
  /** Principals with an access policy, by vault name in lower case. */
  readonly #readers = new Map<string, Set<string>>();

  /** Returns the principals that have an access policy to read a vault's secrets. */
  readersOf(vault: Vault): string[] {
    return [...(this.#readers.get(vault.name.toLowerCase()) ?? [])];
  }

  /** Returns whether one of these principals can read a vault's secrets. */
  mayReadSecrets(principals: readonly string[], vault: Vault): boolean {
    if (vault.settings.rbac === false) return this.readersOf(vault).some((one) => principals.includes(one));
    return this.assignments.some(
      ({ principalId, roleDefinitionId, scope }) =>
        principals.includes(principalId) &&
        READ_SECRETS.some((role) => roleDefinitionId.endsWith(ROLES[role])) &&
        appliesTo(scope, vault.id),
    );
  }

  /** Adds a role assignment, unless it exists. */
  assign(principalId: string, principalType: string, role: RoleName, scope: string): void {
    const name = guidFrom(`role ${role} of ${principalId} at ${scope.toLowerCase()}`);
    if (this.assignments.some((one) => one.name === name)) return;
    const definitionScope = isManagementGroup(scope) ? "" : scope.split("/").slice(0, 3).join("/");
    this.assignments.push({
      id: `${scope}/providers/Microsoft.Authorization/roleAssignments/${name}`,
      name,
      scope,
      principalId,
      principalType,
      roleDefinitionId: `${definitionScope}/providers/Microsoft.Authorization/roleDefinitions/${ROLES[role]}`,
    });
  }

  /** Grants an identity read access to a vault, by role assignment or access policy. */
  grant(principal: string, vault: Vault, role: RoleName): void {
    if (vault.settings.rbac !== false) this.assign(principal, "ServicePrincipal", role, vault.id);
    else this.#readers.set(vault.name.toLowerCase(), new Set([...this.readersOf(vault), principal]));
  }

  /** Removes an identity's role assignments on a vault and its access policy. */
  revoke(principal: string, vault: Vault): void {
    this.#readers.get(vault.name.toLowerCase())?.delete(principal);
    const remaining = this.assignments.filter((one) => one.principalId !== principal || one.scope !== vault.id);
    this.assignments.splice(0, this.assignments.length, ...remaining);
  }
}
