import { pMapIterable } from "p-map";
import { createApiManagement } from "../../platform/azure/api-management.ts";
import type { AppConfigurationReferences } from "../../platform/azure/app-configuration-references.ts";
import { createAppService } from "../../platform/azure/app-service.ts";
import type { Arm } from "../../platform/azure/arm.ts";
import { createDataFactory } from "../../platform/azure/data-factory.ts";
import { CloudFailure, isTransient } from "../../platform/azure/failure.ts";
import { createFrontDoor } from "../../platform/azure/front-door.ts";
import { createResourceGraph } from "../../platform/azure/resource-graph.ts";
import type { ResourceManager } from "../../platform/azure/resource-manager.ts";
import { createRoleAssignments, type RoleDefinition } from "../../platform/azure/role-assignments.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import { createSql } from "../../platform/azure/sql.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Clock } from "../../platform/runtime.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import { type Edge, principalId, type Resource } from "../edge.ts";
import type { EdgeSource, ReadingItem } from "../edge-source.ts";
import { createAccessCheck } from "./access-check.ts";
import { changedTargets } from "./changes.ts";
import { readEntitlements, type VaultAccess } from "./entitlements.ts";
import type { FinderContext, Found, ResourceRow, Use } from "./finder.ts";
import { FINDER_OF } from "./finders.ts";
import { keyVaultNames } from "./key-vault-names.ts";
import { vaultOfConnection } from "./logic-apps.ts";
import {
  isVault,
  RESOURCES_WITH_PROPERTIES,
  RESOURCES_WITHOUT_PROPERTIES,
  resourcesById,
  VAULTS_AND_CONNECTIONS,
} from "./queries.ts";
import { notSeenOf, readRow, resourceOf, unreadableRow } from "./resource-rows.ts";

// Finds dependencies in Azure: reads the resources of a subscription that reference secrets, and the role assignments that
// give access.

interface AzureEdgesDeps {
  config: Config;
  clock: Clock;
  arm: Arm;
  appConfiguration: AppConfigurationReferences;
  resourceManager: ResourceManager;
  /** Monitored subscriptions. With `all`, all that the identity can see. */
  watched(): Promise<{ all: boolean; named: readonly string[] }>;
  /** Object ID of the identity's principal, as role assignments name it. */
  ownObjectId?: (() => Promise<string | undefined>) | undefined;
}

/**
 * Number of resources of a subscription that are read concurrently. Azure Resource Manager allows an identity 25 reads a second
 * in a subscription: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
 */
const RESOURCES_AT_ONCE = 4;

/** Resource Graph stores changes for 14 days, formerly for 7. If the last run is older than this, everything is read. */
const CHANGES_AVAILABLE_MS = 6 * DAY_MS;

/** Maximum number of IDs in one query, to keep it short. */
const IDS_PER_QUERY = 200;

/** Cache time of role definitions. Custom roles change rarely, built-in roles practically never. */
const DEFINITIONS_CACHE_MS = HOUR_MS;

/**
 * Source of dependencies in Azure: resources that use assets of key vaults, with one unit for each monitored subscription.
 * Reading a whole subscription takes about five calls, the further pages of Resource Graph, and one or two for each resource
 * whose references are not in Resource Graph. An unchanged subscription takes two calls.
 *
 * Incremental runs do not see changes of role assignments, and of configuration outside of Resource Graph whose resource did
 * not change.
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

  /**
   * Creates one read of a subscription, with the data that its steps share. It yields items: a resource with its dependencies,
   * `gone` (a resource that no longer exists), `notSeen` (what could not be read), `earlier` (a resource that an earlier part
   * of this run has read), or `place` (a position from which a later part can continue).
   *
   * @param isFull - Whether the run is a full run. An incremental run may also read everything, see CHANGES_AVAILABLE_MS.
   */
  function createReading(subscriptionId: string, isFull: boolean, signal: AbortSignal | undefined) {
    const query = (text: string) => resourceGraph.query(text, [subscriptionId], signal);

    /** Reads the vaults with their access settings, and the vault names of Logic Apps connections by the connection's ID. */
    const context = once(async () => {
      const vaults: VaultAccess[] = [];
      const vaultByConnection = new Map<string, string>();
      for await (const rows of query(VAULTS_AND_CONNECTIONS)) {
        for (const { id, type, properties } of rows.flatMap((row) => readRow(row) ?? [])) {
          const vaultName = vaultOfConnection(properties);
          if (isVault(type)) vaults.push({ id, properties });
          else if (vaultName) vaultByConnection.set(id.toLowerCase(), vaultName);
        }
      }
      return { vaults, vaultByConnection };
    });
    const entitlements = once(async () =>
      readEntitlements(subscriptionId, (await context()).vaults, { roles, definitions }, signal),
    );
    const finderContext: FinderContext = {
      ...clients,
      signal,
      vaultOfConnection: async (id) => (await context()).vaultByConnection.get(id.toLowerCase()),
      entitledTo: async (id) => (await entitlements()).principals.get(id.toLowerCase())?.assets ?? [],
    };

    /**
     * Reads one resource. In an incremental run a transient failure ends the run, so that the next run reads the same changes
     * again. A full run reports the failure as a coverage item and continues, unless its time ran out (`signal`).
     */
    async function findReferences(row: ResourceRow): Promise<ReadingItem[]> {
      const finder = FINDER_OF.get(row.type);
      if (!finder) return [];
      let found: Found;
      try {
        found = await finder.find(row, finderContext);
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        if (error.code === "notFound") return [{ gone: row.id }];
        found = { uses: [], failures: [error] };
      }
      const failures = found.failures ?? [];
      const transient = failures.find(isTransient);
      if (transient && (!isFull || signal?.aborted)) throw transient;
      if (found.uses.length === 0 && failures.length > 0)
        return failures.map((one) => ({ notSeen: notSeenOf(row.id, one) }));
      const resource = { ...resourceOf(row), kind: finder.kind(row) };
      return [itemOf(resource, found.uses, failures), ...failures.map((one) => ({ notSeen: notSeenOf(row.id, one) }))];
    }

    let rowsSeen = 0;
    /**
     * Reads the resources that a query returns.
     *
     * @param placeOf - Returns the place after a resource, from which a later part of the run can continue.
     * @param after - ID of the last resource that an earlier part has read, in the order of the query.
     */
    async function* findInRows(
      text: string,
      placeOf?: (id: string) => string,
      after?: string,
    ): AsyncGenerator<ReadingItem> {
      let isPastPosition = after === undefined;
      for await (const page of query(text)) {
        rowsSeen += page.length;
        const rows: ResourceRow[] = [];
        for (const one of page) {
          const row = readRow(one);
          if (!row) yield { notSeen: unreadableRow(one, subscriptionId) };
          else if (isPastPosition) rows.push(row);
          else {
            yield { earlier: row.id };
            isPastPosition = row.id === after;
          }
        }
        const results = pMapIterable(rows, async (row) => ({ id: row.id, found: await findReferences(row) }), {
          concurrency: RESOURCES_AT_ONCE,
        });
        for await (const { id, found } of results) {
          yield* found;
          if (placeOf) yield { place: placeOf(id) };
        }
      }
      // The resource was deleted in the meantime, so the position after it is unknown. Starts again.
      if (!isPastPosition) yield* findInRows(text, placeOf);
    }

    /** Reports all resources of a query that an earlier part of this run has finished. */
    async function* earlierOf(text: string): AsyncGenerator<ReadingItem> {
      for await (const page of query(text)) {
        rowsSeen += page.length;
        for (const one of page) {
          const row = readRow(one);
          yield row ? { earlier: row.id } : { notSeen: unreadableRow(one, subscriptionId) };
        }
      }
    }

    /** Reports the principals with access to this subscription's vaults. Other subscriptions report the same principals too. */
    async function* principals(): AsyncGenerator<ReadingItem> {
      const { principals, failures } = await entitlements();
      for (const [id, { type, assets }] of principals) {
        const resource: Resource = {
          id: principalId(id),
          kind: "principal",
          name: `${type ?? "Principal"} ${id}`,
        };
        const uses = assets.map(
          ({ asset, role }): Use => ({ asset, evidence: role, refresh: { how: "blind" }, strength: "entitled" }),
        );
        yield itemOf(resource, uses, failures);
      }
      for (const one of failures) {
        if (isTransient(one) && (!isFull || signal?.aborted)) throw one;
        yield { notSeen: notSeenOf(PRINCIPALS, one) };
      }
    }

    return {
      async *all(after: string | undefined): AsyncGenerator<ReadingItem> {
        // A place is the index of the query, a space, and the ID of the last resource: `0 /subscriptions/…`.
        const [queryIndex, lastId] = after === undefined ? [0] : [Number(after.slice(0, 1)), after.slice(2)];
        for (const [index, text] of [RESOURCES_WITHOUT_PROPERTIES, RESOURCES_WITH_PROPERTIES].entries()) {
          if (index < queryIndex) yield* earlierOf(text);
          else yield* findInRows(text, (id) => `${index} ${id}`, index === queryIndex ? lastId : undefined);
        }
        const denied = (await entitlements()).failures.find(({ code }) => code === "accessDenied");
        // The identity may be permitted to list vaults only, so resources that Resource Graph does not return may still exist.
        if (denied && rowsSeen === 0) throw denied;
        const emptyItem = rowsSeen === 0 ? await accessCheck.explainEmpty(subscriptionId, signal) : undefined;
        if (emptyItem) yield { notSeen: emptyItem };
        yield* principals();
      },

      async *changes(since: Date): AsyncGenerator<ReadingItem> {
        const { changed, deleted, vaultsChanged } = await changedTargets(query, since);
        for (const id of deleted) yield { gone: id };
        for (let at = 0; at < changed.length; at += IDS_PER_QUERY) {
          yield* findInRows(resourcesById(changed.slice(at, at + IDS_PER_QUERY)));
        }
        if (vaultsChanged) yield* principals();
      },
    };
  }

  function itemOf(resource: Resource, uses: readonly Use[], failures: readonly CloudFailure[]): ReadingItem {
    const edges = uses
      .filter(({ asset }) => !isServiceVault(config, asset.vaultName))
      .map(
        ({ asset: { version, ...asset }, evidence, refresh, strength = "references", state }): Edge => ({
          ...asset,
          resource,
          strength,
          evidence,
          ...(version && { pinned: version }),
          refresh,
          ...(state && { state }),
        }),
      );
    return { resource, edges, ...(failures.length > 0 && { partial: true }) };
  }

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
      const reading = createReading(unit, since === undefined, signal);
      yield* readsEverything ? reading.all(after) : reading.changes(since);
    },
  };
}

/** Scope of coverage items about principals. It is the first part of their IDs. */
const PRINCIPALS = "entra";

/** Returns a function that calls `load` once and shares the result. After a failure, the next call loads again. */
function once<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | undefined;
  return () => {
    loading ??= load().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
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
      cached = { at: now, definition: once(() => read(id)) };
      cache.set(name, cached);
    }
    return cached.definition();
  };
}
