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
import type { EdgeSource, ReadingItem } from "../source.ts";
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
import { createReach } from "./reach.ts";
import { notSeenOf, readRow, resourceOf, unreadableRow } from "./rows.ts";

interface AzureEdgesDeps {
  config: Config;
  clock: Clock;
  arm: Arm;
  appConfiguration: AppConfigurationReferences;
  resourceManager: ResourceManager;
  /** The subscriptions that are watched; with `all` every one that the identity may see. */
  watched(): Promise<{ all: boolean; named: readonly string[] }>;
  /** Of the identity's principal: what role assignments name. */
  ownObjectId?: (() => Promise<string | undefined>) | undefined;
}

/**
 * Resources looked into at a time. The resource manager lets an identity read 25 times a second in a subscription:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
 */
const AT_ONCE = 4;

/** Resource Graph keeps changes for 14 days, and has kept them for 7: further back, everything is read. */
const CHANGES_KEPT_MS = 6 * DAY_MS;

/** Of one query, so that it stays short. */
const IDS_PER_QUERY = 200;

/** What roles allow changes seldom; those that are built in never do. */
const DEFINITIONS_KEPT_MS = HOUR_MS;

/**
 * What uses the assets of key vaults in the watched subscriptions of Azure; each is a unit. Reading a whole subscription
 * takes some five calls, the further pages of Resource Graph, and one or two for each resource whose references are not in
 * Resource Graph; an unchanged one two calls.
 *
 * Changes of role assignments, and of what is not in Resource Graph without its resource changing, show when all is read.
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
  const reach = createReach({ arm, resourceManager, ownObjectId });
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

  /** One reading of a subscription. */
  function reading(subscriptionId: string, isFull: boolean, signal: AbortSignal | undefined) {
    const query = (text: string) => resourceGraph.query(text, [subscriptionId], signal);

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

    /** What is to be told of one resource. A reading of changes is not over while one of them can't be looked into for now. */
    async function look(row: ResourceRow): Promise<ReadingItem[]> {
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
      const passing = failures.find(isTransient);
      if (passing && (!isFull || signal?.aborted)) throw passing;
      if (found.uses.length === 0 && failures.length > 0)
        return failures.map((one) => ({ notSeen: notSeenOf(row.id, one) }));
      const resource = { ...resourceOf(row), kind: finder.kind(row) };
      return [itemOf(resource, found.uses, failures), ...failures.map((one) => ({ notSeen: notSeenOf(row.id, one) }))];
    }

    let rowsSeen = 0;
    /** @param after - The id of the last resource that was looked into already, in the order of the query. */
    async function* lookAt(
      text: string,
      placeOf?: (id: string) => string,
      after?: string,
    ): AsyncGenerator<ReadingItem> {
      let isBehind = after === undefined;
      for await (const page of query(text)) {
        rowsSeen += page.length;
        const rows: ResourceRow[] = [];
        for (const one of page) {
          const row = readRow(one);
          if (!row) yield { notSeen: unreadableRow(one, subscriptionId) };
          else if (isBehind) rows.push(row);
          else {
            yield { earlier: row.id };
            isBehind = row.id === after;
          }
        }
        const looked = pMapIterable(rows, async (row) => ({ id: row.id, found: await look(row) }), {
          concurrency: AT_ONCE,
        });
        for await (const { id, found } of looked) {
          yield* found;
          if (placeOf) yield { place: placeOf(id) };
        }
      }
      // It was deleted meanwhile, so that nobody knows what came behind it.
      if (!isBehind) yield* lookAt(text, placeOf);
    }

    /** What an earlier part of the reading told of. */
    async function* earlierOf(text: string): AsyncGenerator<ReadingItem> {
      for await (const page of query(text)) {
        rowsSeen += page.length;
        for (const one of page) {
          const row = readRow(one);
          yield row ? { earlier: row.id } : { notSeen: unreadableRow(one, subscriptionId) };
        }
      }
    }

    /** Who may read. A principal has rows in each subscription of its own. */
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
        const [last, id] = after === undefined ? [0] : [Number(after.slice(0, 1)), after.slice(2)];
        for (const [index, text] of [RESOURCES_WITHOUT_PROPERTIES, RESOURCES_WITH_PROPERTIES].entries()) {
          if (index < last) yield* earlierOf(text);
          else yield* lookAt(text, (one) => `${index} ${one}`, index === last ? id : undefined);
        }
        const denied = (await entitlements()).failures.find(({ code }) => code === "accessDenied");
        // It may list vaults and nothing else: what Resource Graph leaves out is not gone.
        if (denied && rowsSeen === 0) throw denied;
        const nothing = rowsSeen === 0 ? await reach.ofEmpty(subscriptionId, signal) : undefined;
        if (nothing) yield { notSeen: nothing };
        yield* principals();
      },

      async *changes(since: Date): AsyncGenerator<ReadingItem> {
        const { changed, deleted, vaultsChanged } = await changedTargets(query, since);
        for (const id of deleted) yield { gone: id };
        for (let at = 0; at < changed.length; at += IDS_PER_QUERY) {
          yield* lookAt(resourcesById(changed.slice(at, at + IDS_PER_QUERY)));
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
      if (unreadable[0]) throw unreadable[0];
      return subscriptions.map(({ subscriptionId }) => subscriptionId.toLowerCase());
    },

    async *read(unit, { since, signal, after }) {
      // Of a subscription that may not be read Resource Graph answers nothing at all; the resource manager refuses its lists.
      await reach.require(unit, signal);
      const isFull = since === undefined || clock.now().getTime() - since.getTime() > CHANGES_KEPT_MS;
      const one = reading(unit, since === undefined, signal);
      yield* isFull ? one.all(after) : one.changes(since);
    },
  };
}

/** What the ids of principals begin with. */
const PRINCIPALS = "entra";

/** Asks at most once, and again only after a failure. */
function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => {
    asked ??= ask().catch((error: unknown) => {
      asked = undefined;
      throw error;
    });
    return asked;
  };
}

/** Definitions of roles by their own id, which is the same in every subscription. */
function createDefinitions(read: (id: string) => Promise<RoleDefinition>, clock: Clock) {
  const kept = new Map<string, { at: number; definition: () => Promise<RoleDefinition> }>();
  return (id: string): Promise<RoleDefinition> => {
    const name = id.slice(id.lastIndexOf("/") + 1).toLowerCase();
    const now = clock.now().getTime();
    let one = kept.get(name);
    if (!one || now - one.at > DEFINITIONS_KEPT_MS) {
      one = { at: now, definition: once(() => read(id)) };
      kept.set(name, one);
    }
    return one.definition();
  };
}
