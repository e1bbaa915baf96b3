import pMap from "p-map";
import type { FoundApplication } from "../applications/query.ts";
import type { Dependencies } from "../dependencies/dependencies.ts";
import { applicationVaultName } from "../dependencies/edge.ts";
import type { FoundEdge } from "../dependencies/query.ts";
import { recordIdOf } from "../dependencies/sync-source.ts";
import { assetId } from "../inventory/asset.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Match } from "../rotation/match.ts";
import type { Sync } from "../sync/sync.ts";
import type { SecretConsumer, SyncTarget, Unknown } from "./report.ts";

/** Reads the stored consumers of an application's client secrets: its own, those of vault secrets, and those of synced copies. */

/** Maximum number of vault secrets, with those that sync records copy them to, whose consumers are read for one application. */
const MAX_PLACES = 20;
/** Maximum number of sync records that are read for one application. */
const MAX_SYNC_RECORDS = 20;
const READS_AT_ONCE = 4;
/** Maximum number of coverage items of dependencies in a report. */
const MAX_COVERAGE = 20;

/** A vault secret that stores a client secret, or a copy of it that a sync record wrote. */
export interface Place {
  vaultName: string;
  name: string;
  match: Match;
}

export interface ConsumersRead {
  /** Dependencies on the application itself: consumers with their own copy of one of its client secrets. */
  own: FoundEdge[];
  ofPlaces: { place: Place; edges: FoundEdge[] }[];
  /** Targets of sync records by resource ID. Undefined for a record that could not be read. */
  targets: ReadonlyMap<string, SyncTarget | undefined>;
  unknown: Unknown[];
}

interface ConsumerReader {
  read(found: FoundApplication, matched: readonly Place[]): Promise<ConsumersRead>;
  /** Returns what dependency discovery could not read. */
  coverage(): Promise<Unknown[]>;
}

export function createConsumerReader({
  dependencies,
  sync,
}: {
  dependencies: Pick<Dependencies, "edgesOf" | "coverage">;
  sync: Pick<Sync, "get">;
}): ConsumerReader {
  /** Returns what a sync record copies to. Undefined if the record was deleted or tampered with. */
  async function targetOf(resourceId: string): Promise<SyncTarget | undefined> {
    try {
      const { targetProvider, targetRegion, targetName, place = "{}" } = await sync.get(recordIdOf(resourceId));
      const location = JSON.parse(place) as Record<string, unknown>;
      return { provider: targetProvider, region: targetRegion, name: targetName, location };
    } catch (error) {
      if (error instanceof Problem) return undefined;
      throw error;
    }
  }

  return {
    /** Follows sync records to further vaults. */
    async read(found, matched) {
      const unknown: Unknown[] = [];
      const targets = new Map<string, SyncTarget | undefined>();
      const ofPlaces: { place: Place; edges: FoundEdge[] }[] = [];
      const read = async (location: { vaultName: string; name: string }) => {
        const { edges, more } = await dependencies.edgesOf({ ...location, type: "secret" });
        if (more) unknown.push(leftOut(`${location.vaultName}/${location.name} has more consumers than were read.`));
        return edges;
      };
      const own = await read({ vaultName: applicationVaultName(found.tenantId), name: found.app.appId });
      let next = [...matched];
      const seen = new Set(next.map(placeKey));
      for (let places = 0; next.length > 0 && places < MAX_PLACES; ) {
        const batch = next.slice(0, MAX_PLACES - places);
        places += batch.length;
        if (batch.length < next.length)
          unknown.push(leftOut(`${next.length - batch.length} vault secrets that may store a secret were not read.`));
        const results = await pMap(batch, async (place) => ({ place, edges: await read(place) }), {
          concurrency: READS_AT_ONCE,
        });
        ofPlaces.push(...results);
        next = [];
        for (const { place, edges } of results) {
          for (const { edge } of edges) {
            if (edge.resource.kind !== "syncRecord" || edge.name === undefined || targets.has(edge.resource.id))
              continue;
            if (targets.size >= MAX_SYNC_RECORDS) {
              unknown.push(leftOut(`The target of the sync record ${edge.resource.name} was not read.`));
              continue;
            }
            const target = await targetOf(edge.resource.id);
            targets.set(edge.resource.id, target);
            // The readers of the copy in another vault are the consumers, not the record.
            if (target?.provider !== "azure" || target.region === undefined) continue;
            const copy = { vaultName: target.region, name: target.name, match: place.match };
            if (!seen.has(placeKey(copy))) next.push(copy);
            seen.add(placeKey(copy));
          }
        }
      }
      if (next.length > 0) unknown.push(leftOut(`${next.length} further copies in vaults were not read.`));
      return { own, ofPlaces, targets, unknown };
    },

    async coverage() {
      const page = await dependencies.coverage({ limit: MAX_COVERAGE, offset: 0, cursor: undefined });
      const items = page.items.map(({ scope, code, message, remedy }) => ({
        code,
        message: scope === "*" ? message : `${scope}: ${message}`,
        remedy,
      }));
      const more = (page.total ?? 0) - page.items.length;
      return more > 0
        ? [...items, leftOut(`${more} more scopes could not be read: see GET /api/assets/dependencies/coverage.`)]
        : items;
    },
  };
}

const placeKey = ({ vaultName, name }: { vaultName: string; name: string }): string =>
  `${vaultName}/${name}`.toLowerCase();

const leftOut = (message: string): Unknown => ({
  code: "limit",
  message,
  remedy: "See GET /api/assets/dependencies for all consumers.",
});

interface PlacedEdge {
  edge: FoundEdge["edge"];
  /** Undefined for a consumer that stores its own copy of any client secret of the application. */
  place: Place | undefined;
  isCertain: boolean;
}

/** Principals with access are no consumers, except the identity with which a cluster mounts secrets. */
const isConsumer = ({ edge: { name, strength, resource } }: PlacedEdge): boolean =>
  strength === "entitled" ? resource.kind === "kubernetesCluster" : name !== undefined;

const STRENGTHS = ["references", "observed", "entitled"] as const;
const SLOWEST_FIRST = ["willBreak", "blind", "action", "automatic"] as const;

/** Groups edges by resource. A managed identity in a log counts as its resource, if that resource is a known consumer. */
export function groupConsumers(placed: readonly PlacedEdge[]): SecretConsumer[] {
  const used = placed.filter(isConsumer);
  const ids = new Set(used.map(({ edge }) => edge.resource.id.toLowerCase()));
  const groups = Map.groupBy(used, ({ edge: { resource } }) => {
    const identityOf = resource.identityOf?.toLowerCase();
    return identityOf !== undefined && ids.has(identityOf) ? identityOf : resource.id.toLowerCase();
  });
  return [...groups]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, edges]): SecretConsumer => {
      const { resource } = (edges.find(({ edge }) => edge.resource.identityOf === undefined) ?? edges[0]!).edge;
      const places = edges.flatMap(({ place }) => (place ? [assetId({ ...place, type: "secret" })] : []));
      return {
        id: resource.id,
        kind: resource.kind,
        name: resource.name,
        evidence: [...new Set(edges.map(({ edge }) => edge.evidence))].sort(),
        strength: STRENGTHS.find((strength) => edges.some(({ edge }) => edge.strength === strength))!,
        places: [...new Set(places)].sort(),
        copy: edges.some(({ edge }) => edge.copy === true),
        isCertain: edges.some(({ isCertain }) => isCertain),
        refresh: SLOWEST_FIRST.find((how) => edges.some(({ edge }) => edge.refresh.how === how))!,
      };
    });
}

/** Returns what is unknown about the consumers of one secret. */
export function unknownOfSecret(
  ofPlaces: readonly { place: Place; edges: FoundEdge[] }[],
  matches: readonly Match[],
  keyId: string,
): Unknown[] {
  const edges = ofPlaces.flatMap((one) => one.edges.map(({ edge }) => edge));
  const entitled = new Set(
    edges
      .filter(({ strength, resource }) => strength === "entitled" && resource.kind !== "kubernetesCluster")
      .map(({ resource }) => resource.id),
  );
  const wholeVault = new Set(
    edges
      .filter(({ name, strength }) => name === undefined && strength !== "entitled")
      .map(({ resource }) => resource.name),
  );
  const possible = matches.filter((one) => one.confidence === "possible" && (one.keyId ?? keyId) === keyId).length;
  return [
    ...(entitled.size > 0
      ? [
          {
            code: "entitledIdentities",
            message: `${entitled.size === 1 ? "1 identity" : `${entitled.size} identities`} may read a vault secret that stores it, and no log shows a read.`,
            remedy:
              "Send the audit events of the vault to a Log Analytics workspace, and see the blast radius of the secret.",
          },
        ]
      : []),
    ...(wholeVault.size > 0
      ? [
          {
            code: "wholeVault",
            message: `These use the whole vault, so it is unknown whether they use it: ${[...wholeVault].sort().slice(0, MAX_COVERAGE).join(", ")}.`,
            remedy: "Check their configuration.",
          },
        ]
      : []),
    ...(possible > 0
      ? [
          {
            code: "possibleMatches",
            message: `${possible} vault secrets may store it, by name or date only. Their consumers are not included.`,
            remedy: "Verify or reject these matches.",
          },
        ]
      : []),
  ];
}
