import type { Arm } from "../../platform/azure/arm.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { ResourceManager } from "../../platform/azure/resource-manager.ts";
import { createRoleAssignments } from "../../platform/azure/role-assignments.ts";
import { DEPENDENCY_READER } from "../../platform/azure/watch-roles.ts";
import type { NotSeen } from "../source.ts";
import { permits } from "./entitlements.ts";

/** Whoever may read these may read, by the role of the templates, everything that is looked into. */
const TELLING_ACTION = "microsoft.web/sites/read";

/**
 * Tells a subscription that holds nothing from one that the identity can't look into. Resource Graph does not: of what may not
 * be read it answers no row, without a word.
 */
export interface Reach {
  /** One call. @throws {CloudFailure} accessDenied where not even the vaults may be listed, which a scan needs too. */
  require(subscriptionId: string, signal: AbortSignal | undefined): Promise<void>;
  /**
   * What is to be told of a subscription of which Resource Graph lists no resource; undefined where a role of the identity
   * shows that there is none. The roles of a scan let it list the vaults and the role assignments, and nothing that uses a
   * vault. A role that it has as a member of a group is not seen.
   */
  ofEmpty(subscriptionId: string, signal: AbortSignal | undefined): Promise<NotSeen | undefined>;
}

export function createReach({
  arm,
  resourceManager,
  ownObjectId = async () => undefined,
}: {
  arm: Arm;
  resourceManager: Pick<ResourceManager, "vaults">;
  /** Of the identity's principal: what role assignments name. */
  ownObjectId?: (() => Promise<string | undefined>) | undefined;
}): Reach {
  const roles = createRoleAssignments(arm);

  async function mayReadResources(subscriptionId: string, signal: AbortSignal | undefined): Promise<boolean> {
    const own = (await ownObjectId())?.toLowerCase();
    if (own === undefined) return false;
    const { entries } = await roles.list(subscriptionId, signal);
    const below = `/subscriptions/${subscriptionId}/`.toLowerCase();
    for (const { principalId, scope, roleDefinitionId } of entries) {
      if (principalId.toLowerCase() !== own || scope.toLowerCase().startsWith(below)) continue;
      const { permissions } = await roles.definition(roleDefinitionId, signal);
      if (permissions.some(({ actions, notActions }) => permits(actions, notActions, TELLING_ACTION))) return true;
    }
    return false;
  }

  return {
    async require(subscriptionId, signal) {
      for await (const _ of resourceManager.vaults(subscriptionId, signal)) break;
    },

    async ofEmpty(subscriptionId, signal) {
      const isEmpty = await mayReadResources(subscriptionId, signal).catch((error: unknown) => {
        if (error instanceof CloudFailure && error.code === "accessDenied") return false;
        throw error;
      });
      if (isEmpty) return undefined;
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
