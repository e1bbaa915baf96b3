import pMap from "p-map";
import type { ApplicationsService } from "../applications/applications.ts";
import { isClientSecret } from "../applications/credential-usage.ts";
import type { FoundApplication } from "../applications/query.ts";
import type { Dependencies } from "../dependencies/dependencies.ts";
import { applicationVaultName } from "../dependencies/edge.ts";
import type { FoundEdge } from "../dependencies/query.ts";
import { recordIdOf } from "../dependencies/sync-source.ts";
import { assetId } from "../inventory/asset.ts";
import { bucketOf, credentialName, holderName } from "../inventory/holder.ts";
import type { CloudEndpoints } from "../platform/config/clouds.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Match } from "../rotation/match.ts";
import type { MatchFinder } from "../rotation/matches.ts";
import type { Sync } from "../sync/sync.ts";
import { type AssessedConsumer, applyLimit, planOf, verdictOf } from "./assess.ts";
import { type ApplicationContext, replacementOf } from "./replacement.ts";
import type { Blocker, SecretConsumer, SecretlessReport, SecretReport, SyncTarget, Unknown } from "./report.ts";

/** Maximum number of vault secrets, with those that sync records copy them to, whose consumers are read for one application. */
const MAX_PLACES = 20;
/** Maximum number of sync records that are read for one application. */
const MAX_SYNC_RECORDS = 20;
const READS_AT_ONCE = 4;
/** Maximum number of coverage items of dependencies in a report. */
const MAX_COVERAGE = 20;

/** Reports whether an application can work without its client secrets. Changes nothing. */
export interface Secretless {
  /**
   * Returns for each client secret its consumers, what can replace it, and a plan. Costs one request to Microsoft Graph, three
   * more at most once a day, and storage requests: about three for each of at most 20 vault secrets, one for each of at most 20
   * sync records, and two for each log workspace.
   *
   * @throws {Problem} notFound for an unknown application.
   */
  report(appId: string): Promise<SecretlessReport>;
}

/** A vault secret that stores a client secret, or a copy of it that a sync record wrote. */
interface Place {
  vaultName: string;
  name: string;
  match: Match;
}

export function createSecretless(deps: {
  applications: Pick<ApplicationsService, "get">;
  matches: Pick<MatchFinder, "listMatches">;
  dependencies: Pick<Dependencies, "edgesOf" | "coverage">;
  sync: Pick<Sync, "get">;
  cloud: Pick<CloudEndpoints, "issuers" | "tokenExchangeAudience">;
}): Secretless {
  const { applications, matches, dependencies, sync, cloud } = deps;

  /** Returns what a sync record copies to. Undefined if the record was deleted or tampered with. */
  async function targetOf(resourceId: string): Promise<SyncTarget | undefined> {
    try {
      const { targetProvider, targetName, place = "{}" } = await sync.get(recordIdOf(resourceId));
      return { provider: targetProvider, name: targetName, location: JSON.parse(place) as Record<string, unknown> };
    } catch (error) {
      if (error instanceof Problem) return undefined;
      throw error;
    }
  }

  /** Reads the consumers of the application itself and of each place, and follows sync records to further vaults. */
  async function readEdges(found: FoundApplication, matched: readonly Place[]) {
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
          if (edge.resource.kind !== "syncRecord" || edge.name === undefined || targets.has(edge.resource.id)) continue;
          if (targets.size >= MAX_SYNC_RECORDS) {
            unknown.push(leftOut(`The target of the sync record ${edge.resource.name} was not read.`));
            continue;
          }
          const target = await targetOf(edge.resource.id);
          targets.set(edge.resource.id, target);
          const [vaultName, name] = target?.provider === "azure" ? target.name.split("/") : [];
          if (vaultName === undefined || name === undefined) continue;
          const copy = { vaultName, name, match: place.match };
          if (!seen.has(placeKey(copy))) next.push(copy);
          seen.add(placeKey(copy));
        }
      }
    }
    return { own, ofPlaces, targets, unknown };
  }

  async function coverageOf(): Promise<Unknown[]> {
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
  }

  return {
    async report(appId) {
      const found = await applications.get(appId);
      const { app, tenantId } = found;
      const secrets = app.credentials.filter(isClientSecret);
      const { matches: allMatches, coverage } =
        app.kind === "application" && secrets.length > 0
          ? await matches.listMatches(app.appId)
          : { matches: [], coverage: [] };
      const places = allMatches
        .filter(({ confidence }) => confidence !== "possible")
        .map((match): Place => ({ vaultName: match.secret.vaultName, name: match.secret.name, match }));
      const read = await readEdges(found, places);
      const federated = app.details && { readAt: app.details.readAt, items: app.details.federated };
      const context: ApplicationContext = {
        appId: app.appId,
        tenantId,
        entraIssuer: cloud.issuers.v2,
        audience: cloud.tokenExchangeAudience,
        federated: federated?.items ?? [],
      };
      const reportOf = (secret: (typeof secrets)[number]): SecretReport => {
        const isOnly = secrets.length === 1;
        const mayStore = ({ match }: Place) => match.keyId === undefined || match.keyId === secret.keyId;
        const consumers = groupConsumers([
          ...read.own.map((one) => ({ edge: one.edge, place: undefined, isCertain: isOnly })),
          ...read.ofPlaces
            .filter(({ place }) => mayStore(place))
            .flatMap(({ place, edges }) =>
              edges.map(({ edge }) => ({ edge, place, isCertain: isOnly || place.match.keyId === secret.keyId })),
            ),
        ]).filter((one) => !(read.targets.get(one.id)?.provider === "azure"));
        const assessed = consumers.map(
          (one): AssessedConsumer => ({ ...one, replacement: replacementOf(one, context, read.targets.get(one.id)) }),
        );
        const limited = applyLimit(assessed, federated?.items.length);
        const blockers = blockersOf(found, secret);
        const usage = found.usageOf(secret);
        const storing = places.filter(mayStore).map(({ match }) => ({
          assetId: assetId({ ...match.secret, type: "secret" }),
          confidence: match.confidence as "certain" | "likely",
        }));
        const decided = verdictOf(limited, blockers, usage);
        const { keyId, displayName, expiresOn } = secret;
        return {
          keyId,
          assetId: assetId({
            vaultName: holderName(tenantId, bucketOf(app.appId)),
            type: "secret",
            name: credentialName(app.appId, keyId),
          }),
          displayName,
          expiresOn,
          ...decided,
          usage,
          places: storing,
          consumers: limited,
          blockers,
          plan: planOf({ appId: app.appId, keyId, consumers: limited, places: storing, verdict: decided.verdict }),
          unknown: unknownOfSecret(
            read.ofPlaces.filter(({ place }) => mayStore(place)),
            allMatches,
            secret.keyId,
          ),
        };
      };
      return {
        appId: app.appId,
        displayName: app.displayName,
        federatedCredentials: federated,
        secrets: secrets.map(reportOf),
        unknown: [
          ...(federated === undefined && app.kind === "application" ? [FEDERATED_UNREAD] : []),
          ...coverage.map((message) => ({
            code: "matchesNotSearched",
            message,
            remedy: "See the matches of the application.",
          })),
          ...read.unknown,
          ...(await coverageOf()),
          ...NEVER_SEEN,
        ],
      };
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

const FEDERATED_UNREAD: Unknown = {
  code: "federatedCredentialsUnread",
  message: "The federated credentials of the application could not be read, so the limit of 20 was not checked.",
  remedy: "Grant the service's identity the application permission Application.Read.All of Microsoft Graph.",
};

/** Uses that no source of this service shows. */
const NEVER_SEEN: readonly Unknown[] = [
  {
    code: "userSignIns",
    message:
      "Whether the application uses the secret while users sign in (authorization code, on-behalf-of, resource owner password) is unknown.",
    remedy:
      "Ask the developers. These flows also accept a client assertion, so a federated credential can replace the secret.",
  },
  {
    code: "handMadeCopies",
    message: "Copies that people made by hand, and programs outside the searched systems, are unknown.",
    remedy: "Watch the sign-ins with the secret before you delete it.",
  },
];

/** Returns what makes all plans for a secret impossible. */
function blockersOf({ app }: FoundApplication, { of }: FoundApplication["app"]["credentials"][number]): Blocker[] {
  const signsTokens = app.credentials.some((one) => one.kind === "certificate" && one.usage === "Sign");
  if (of === "servicePrincipal" && signsTokens)
    return [
      {
        code: "samlSigning",
        message:
          "The secret protects the private key with which Microsoft Entra signs SAML tokens for the application. Nothing signs in with it. Renew it with the signing certificate.",
      },
    ];
  if (app.kind === "servicePrincipal")
    return [
      {
        code: "foreignApplication",
        message: "The application belongs to another tenant. Only that tenant can add federated credentials to it.",
      },
    ];
  return [];
}

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
function groupConsumers(placed: readonly PlacedEdge[]): SecretConsumer[] {
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
function unknownOfSecret(
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
            message: `${entitled.size} identities may read a vault secret that stores it, and no read of them is known.`,
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
