import { createApiManagement } from "../../platform/azure/api-management.ts";
import type { AppConfigurationReferences } from "../../platform/azure/app-configuration-references.ts";
import { createAppService } from "../../platform/azure/app-service.ts";
import type { Arm } from "../../platform/azure/arm.ts";
import { createDataFactory } from "../../platform/azure/data-factory.ts";
import { createFrontDoor } from "../../platform/azure/front-door.ts";
import { createResourceGraph } from "../../platform/azure/resource-graph.ts";
import type { ResourceManager } from "../../platform/azure/resource-manager.ts";
import { createRoleAssignments, type RoleDefinition } from "../../platform/azure/role-assignments.ts";
import { createSql } from "../../platform/azure/sql.ts";
import type { Config } from "../../platform/config/config.ts";
import { loadOnce } from "../../platform/load-once.ts";
import type { Clock } from "../../platform/runtime.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import type { EdgeSource } from "../edge-source.ts";
import { createAccessCheck } from "./access-check.ts";
import { keyVaultNames } from "./key-vault-names.ts";
import { createSubscriptionReading, type ReadingDeps } from "./subscription-reading.ts";

// Finds dependencies in Azure: reads the resources of a subscription that reference secrets, and the role assignments that
// give access.

interface AzureEdgesDeps {
  config: Config;
  clock: Clock;
  arm: Arm;
  appConfiguration: AppConfigurationReferences;
  resourceManager: ResourceManager;
  /** Returns the monitored subscriptions. `all`: every subscription that the identity can read. */
  watched(): Promise<{ all: boolean; named: readonly string[] }>;
  /** Object ID of the identity's principal, as role assignments name it. */
  ownObjectId?: (() => Promise<string | undefined>) | undefined;
}

/** Resource Graph stores changes for 14 days, formerly for 7. If the last run is older than this, everything is read. */
const CHANGES_AVAILABLE_MS = 6 * DAY_MS;

/** Cache time of role definitions. Custom roles change rarely, built-in roles practically never. */
const DEFINITIONS_CACHE_MS = HOUR_MS;

/**
 * Source of dependencies in Azure: resources that use assets of key vaults, with one unit for each monitored subscription.
 * Reading a whole subscription takes about five calls, the further pages of Resource Graph, and one or two for each resource
 * whose references are not in Resource Graph. An unchanged subscription takes two calls.
 *
 * Incremental runs do not detect changes of role assignments. They also miss a change of configuration outside of Resource Graph
 * if its resource did not change.
 */
export function createAzureEdges({
  config,
  clock,
  arm,
  appConfiguration,
  resourceManager,
  watched,
  ownObjectId,
}: AzureEdgesDeps): EdgeSource {
  const resourceGraph = createResourceGraph(arm);
  const roles = createRoleAssignments(arm);
  const accessCheck = createAccessCheck({ arm, resourceManager, ownObjectId });
  const clients = {
    names: keyVaultNames(config.cloud.keyVaultSuffix),
    appService: createAppService(arm),
    appConfiguration,
    apiManagement: createApiManagement(arm),
    dataFactory: createDataFactory(arm),
    frontDoor: createFrontDoor(arm),
    sql: createSql(arm),
  };
  const definitions = createDefinitions(roles.definition, clock);
  const readingDeps: ReadingDeps = { config, clients, resourceGraph, roles, definitions, accessCheck };

  return {
    name: "azure",

    async units() {
      const { all, named } = await watched();
      if (!all) return [...named];
      const { subscriptions, unreadable } = await resourceManager.subscriptions();
      // The dependencies of a subscription that is missing in this list would be deleted.
      if (unreadable[0]) throw unreadable[0];
      return subscriptions.map(({ subscriptionId }) => subscriptionId.toLowerCase());
    },

    async *read(unit, { since, signal, after }) {
      // For a subscription without access Resource Graph returns no rows, but Azure Resource Manager rejects its lists.
      await accessCheck.requireAccess(unit, signal);
      const readsEverything = since === undefined || clock.now().getTime() - since.getTime() > CHANGES_AVAILABLE_MS;
      const reading = createSubscriptionReading(readingDeps, unit, since === undefined, signal);
      yield* readsEverything ? reading.all(after) : reading.changes(since);
    },
  };
}

/** Caches role definitions by their own ID, which is the same in every subscription. */
function createDefinitions(read: (id: string) => Promise<RoleDefinition>, clock: Clock) {
  const cache = new Map<string, { at: number; definition: () => Promise<RoleDefinition> }>();
  return (id: string): Promise<RoleDefinition> => {
    const name = id.slice(id.lastIndexOf("/") + 1).toLowerCase();
    const now = clock.now().getTime();
    let cached = cache.get(name);
    if (!cached || now - cached.at > DEFINITIONS_CACHE_MS) {
      cached = { at: now, definition: loadOnce(() => read(id)) };
      cache.set(name, cached);
    }
    return cached.definition();
  };
}
