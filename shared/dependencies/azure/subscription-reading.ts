import { pMapIterable } from "p-map";
import { CloudFailure, isTransient } from "../../platform/azure/failure.ts";
import type { ResourceGraph } from "../../platform/azure/resource-graph.ts";
import type { RoleAssignments, RoleDefinition } from "../../platform/azure/role-assignments.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { Config } from "../../platform/config/config.ts";
import { loadOnce } from "../../platform/load-once.ts";
import { type Edge, principalId, type Resource } from "../edge.ts";
import type { ReadingItem } from "../edge-source.ts";
import type { AccessCheck } from "./access-check.ts";
import { addSiteHosts } from "./app-service-certificate.ts";
import { changedTargets } from "./changes.ts";
import { readEntitlements, type VaultAccess } from "./entitlements.ts";
import type { FinderContext, Found, ResourceRow, Use } from "./finder.ts";
import { FINDER_OF } from "./finders.ts";
import { vaultOfConnection } from "./logic-apps.ts";
import { namesOfPrincipals } from "./principal-names.ts";
import {
  isVault,
  RESOURCES_WITH_PROPERTIES,
  RESOURCES_WITHOUT_PROPERTIES,
  resourcesById,
  SITE_HOSTS,
  VAULTS_AND_CONNECTIONS,
} from "./queries.ts";
import { notSeenOf, readRow, resourceOf, unreadableRow } from "./resource-rows.ts";

// Reads the resources of one subscription that reference assets of key vaults, and who may read these assets.

/**
 * Number of resources of a subscription that are read concurrently. Azure Resource Manager allows an identity 25 reads a second
 * in a subscription: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
 */
const RESOURCES_AT_ONCE = 4;

/** Maximum number of IDs in one query, to keep it short. */
const IDS_PER_QUERY = 200;

/** Scope of coverage items about principals. It is the first part of their IDs. */
const PRINCIPALS = "entra";

/** Dependencies that the readings of all subscriptions share. */
export interface ReadingDeps {
  config: Config;
  /** Clients of Azure APIs, for the finders of references. */
  clients: Omit<FinderContext, "signal" | "vaultOfConnection" | "hostsServing" | "entitledTo">;
  resourceGraph: ResourceGraph;
  roles: RoleAssignments;
  /** Returns a role definition by its resource ID. */
  definitions: (id: string) => Promise<RoleDefinition>;
  accessCheck: AccessCheck;
}

/** One read of a subscription. */
interface SubscriptionReading {
  /** Reads all resources, or those after a position that an earlier part of this run returned. */
  all(after: string | undefined): AsyncGenerator<ReadingItem>;
  /** Reads the resources that changed since the last run. */
  changes(since: Date): AsyncGenerator<ReadingItem>;
}

/**
 * Creates one read of a subscription, with the data that its steps share. It yields items of five kinds: a resource with its
 * dependencies, `gone` (a resource that no longer exists), `notSeen` (what could not be read), `earlier` (a resource that an
 * earlier part of this run has read), and `position` (from which a later part can continue). A full run that takes too long is
 * continued in further parts, each with a new reading.
 *
 * @param isFull - Whether the run is a full run. An incremental run may also read everything, if the last run is too old.
 */
export function createSubscriptionReading(
  { config, clients, resourceGraph, roles, definitions, accessCheck }: ReadingDeps,
  subscriptionId: string,
  isFull: boolean,
  signal: AbortSignal | undefined,
): SubscriptionReading {
  const query = (text: string) => resourceGraph.query(text, [subscriptionId], signal);

  /** Reads the vaults with their access settings, and the vault names of Logic Apps connections by the connection's ID. */
  const vaultContext = loadOnce(async () => {
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
  const entitlements = loadOnce(async () =>
    readEntitlements(subscriptionId, (await vaultContext()).vaults, { roles, definitions }, signal),
  );
  /** Reads the host names of web apps by the thumbprint of their certificate. */
  const siteHosts = loadOnce(async () => {
    const hosts = new Map<string, string[]>();
    for await (const rows of query(SITE_HOSTS)) for (const row of rows) addSiteHosts(row, hosts);
    return hosts;
  });
  const finderContext: FinderContext = {
    ...clients,
    signal,
    vaultOfConnection: async (id) => (await vaultContext()).vaultByConnection.get(id.toLowerCase()),
    hostsServing: async (thumbprint) => (await siteHosts()).get(thumbprint.toUpperCase()) ?? [],
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
    // Reported only as not read, so that its stored dependencies stay, marked as unconfirmed.
    if (found.uses.length === 0 && failures.length > 0)
      return failures.map((one) => ({ notSeen: notSeenOf(row.id, one) }));
    const resource = { ...resourceOf(row), kind: finder.kind(row) };
    return [
      itemOf(config, resource, found.uses, failures),
      ...failures.map((one) => ({ notSeen: notSeenOf(row.id, one) })),
    ];
  }

  let rowsSeen = 0;
  /**
   * Reads the resources that a query returns.
   *
   * @param positionAfter - Returns the position after a resource, from which a later part of the run can continue.
   * @param after - ID of the last resource that an earlier part has read, in the order of the query.
   */
  async function* findInRows(
    text: string,
    positionAfter?: (id: string) => string,
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
        if (positionAfter) yield { position: positionAfter(id) };
      }
    }
    // The resource at the position was deleted in the meantime, so the query has no row from which to continue. Starts again.
    if (!isPastPosition) yield* findInRows(text, positionAfter);
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
    // A managed identity of another subscription can have access too.
    const names = await namesOfPrincipals([...principals.keys()], (text) =>
      resourceGraph.query(text, undefined, signal),
    );
    for (const [id, { type, assets }] of principals) {
      const resource: Resource = {
        id: principalId(id),
        kind: "principal",
        name: `${type ?? "Principal"} ${id}`,
        ...names.get(id),
      };
      const uses = assets.map(
        ({ asset, role }): Use => ({ asset, evidence: role, refresh: { how: "blind" }, strength: "entitled" }),
      );
      yield itemOf(config, resource, uses, failures);
    }
    for (const one of failures) {
      if (isTransient(one) && (!isFull || signal?.aborted)) throw one;
      yield { notSeen: notSeenOf(PRINCIPALS, one) };
    }
  }

  return {
    async *all(after: string | undefined): AsyncGenerator<ReadingItem> {
      // A position is the index of the query, a space, and the ID of the last resource: `0 /subscriptions/…`.
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
      for (let start = 0; start < changed.length; start += IDS_PER_QUERY) {
        yield* findInRows(resourcesById(changed.slice(start, start + IDS_PER_QUERY)));
      }
      if (vaultsChanged) yield* principals();
    },
  };
}

function itemOf(
  config: Config,
  resource: Resource,
  uses: readonly Use[],
  failures: readonly CloudFailure[],
): ReadingItem {
  const edges = uses
    // Who may read the service's own vault is left out, but a reference to it is a mistake that must show.
    .filter(({ asset, strength }) => strength !== "entitled" || !isServiceVault(config, asset.vaultName))
    .map(
      ({ asset: { version, ...asset }, evidence, refresh, strength = "references", state, hosts }): Edge => ({
        ...asset,
        resource,
        strength,
        evidence,
        ...(version && { pinned: version }),
        refresh,
        ...(state && { state }),
        ...(hosts && { hosts }),
      }),
    );
  return { resource, edges, ...(failures.length > 0 && { partial: true }) };
}
