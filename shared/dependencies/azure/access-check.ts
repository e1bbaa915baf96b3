import type { Arm } from "../../platform/azure/arm.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { ResourceManager } from "../../platform/azure/resource-manager.ts";
import { createRoleAssignments } from "../../platform/azure/role-assignments.ts";
import { DEPENDENCY_READER } from "../../platform/azure/watch-roles.ts";
import type { NotSeen } from "../edge-source.ts";
import { permits } from "./entitlements.ts";

/** A role with this permission on a subscription can list web apps, so it would also list other resources that use vaults. */
const PROBE_ACTION = "microsoft.web/sites/read";

/** Distinguishes an empty subscription from one that the identity can't read. Resource Graph returns no rows for both. */
export interface AccessCheck {
  /** Lists vaults, in one call. @throws {CloudFailure} accessDenied if the identity can't list them, which a scan needs too. */
  requireAccess(subscriptionId: string, signal: AbortSignal | undefined): Promise<void>;
  /**
   * Returns the coverage item for a subscription in which Resource Graph lists no resources; undefined if a role of the
   * identity proves that the subscription is empty. With the roles of a scan alone the identity can list vaults and role
   * assignments, but no consumers. Roles through group membership are not recognized.
   */
  explainEmpty(subscriptionId: string, signal: AbortSignal | undefined): Promise<NotSeen | undefined>;
}

export function createAccessCheck({
  arm,
  resourceManager,
  ownObjectId = async () => undefined,
}: {
  arm: Arm;
  resourceManager: Pick<ResourceManager, "vaults">;
  /** Object ID of the identity's principal, as role assignments name it. */
  ownObjectId?: (() => Promise<string | undefined>) | undefined;
}): AccessCheck {
  const roles = createRoleAssignments(arm);

  /** Returns whether a role of the identity, assigned at the subscription or above it, permits PROBE_ACTION. */
  async function mayReadResources(subscriptionId: string, signal: AbortSignal | undefined): Promise<boolean> {
    const ownId = (await ownObjectId())?.toLowerCase();
    if (ownId === undefined) return false;
    const { entries } = await roles.list(subscriptionId, signal);
    const prefixOfNarrowerScopes = `/subscriptions/${subscriptionId}/`.toLowerCase();
    for (const { principalId, scope, roleDefinitionId } of entries) {
      // A role for a resource group or a single resource does not prove access to the whole subscription.
      if (principalId.toLowerCase() !== ownId || scope.toLowerCase().startsWith(prefixOfNarrowerScopes)) continue;
      const { permissions } = await roles.definition(roleDefinitionId, signal);
      if (permissions.some(({ actions, notActions }) => permits(actions, notActions, PROBE_ACTION))) return true;
    }
    return false;
  }

  return {
    async requireAccess(subscriptionId, signal) {
      for await (const _ of resourceManager.vaults(subscriptionId, signal)) break;
    },

    async explainEmpty(subscriptionId, signal) {
      // With access, no listed resources mean that the subscription has none.
      const hasAccess = await mayReadResources(subscriptionId, signal).catch((error: unknown) => {
        if (error instanceof CloudFailure && error.code === "accessDenied") return false;
        throw error;
      });
      if (hasAccess) return undefined;
      return {
        scope: `/subscriptions/${subscriptionId}`,
        code: "nothingListed",
        message:
          "Azure Resource Graph lists no resource of this subscription that could use a key vault: it has none, or the service's identity may read none.",
        remedy: `If it has any, give the service's identity ${DEPENDENCY_READER}.`,
      };
    },
  };
}
