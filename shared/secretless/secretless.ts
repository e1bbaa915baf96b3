import type { ApplicationsService } from "../applications/applications.ts";
import { isClientSecret } from "../applications/credential-usage.ts";
import type { FoundApplication } from "../applications/query.ts";
import type { Dependencies } from "../dependencies/dependencies.ts";
import { assetId } from "../inventory/asset.ts";
import { bucketOf, credentialName, holderName } from "../inventory/holder.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { CloudEndpoints } from "../platform/config/clouds.ts";
import type { Match } from "../rotation/match.ts";
import type { MatchFinder } from "../rotation/matches.ts";
import type { Sync } from "../sync/sync.ts";
import { applyLimit, planOf, verdictOf } from "./assess.ts";
import {
  type ConsumersRead,
  createConsumerReader,
  groupConsumers,
  type Place,
  unknownOfSecret,
} from "./read-consumers.ts";
import { type ApplicationContext, replacementOf } from "./replacement.ts";
import type { Blocker, SecretlessReport, SecretReport, Unknown } from "./report.ts";

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

export function createSecretless(deps: {
  applications: Pick<ApplicationsService, "get">;
  matches: Pick<MatchFinder, "listMatches">;
  dependencies: Pick<Dependencies, "edgesOf" | "coverage">;
  sync: Pick<Sync, "get">;
  cloud: Pick<CloudEndpoints, "issuers" | "tokenExchangeAudience">;
}): Secretless {
  const { applications, matches, cloud } = deps;
  const consumers = createConsumerReader(deps);

  /** Returns the vault secrets that may store the application's secrets. A failure of Microsoft Graph becomes an unknown source. */
  async function matchesOf({
    app,
  }: FoundApplication): Promise<{ matches: Match[]; unknown: Unknown[]; isComplete: boolean }> {
    if (app.kind === "servicePrincipal" || !app.credentials.some(isClientSecret))
      return { matches: [], unknown: [], isComplete: true };
    try {
      const { matches: found, coverage } = await matches.listMatches(app.appId);
      const remedy = "Wait until the index of matches is complete, and see the matches of the application.";
      const unknown = coverage.map((message) => ({ code: "matchesNotSearched", message, remedy }));
      return { matches: found, unknown, isComplete: true };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      return { matches: [], unknown: [{ code, message, remedy }], isComplete: false };
    }
  }

  return {
    async report(appId) {
      const found = await applications.get(appId);
      const { app, tenantId } = found;
      const secrets = app.credentials.filter(isClientSecret);
      const { matches: allMatches, unknown: unmatched, isComplete } = await matchesOf(found);
      const places = allMatches
        .filter(({ confidence }) => confidence !== "possible")
        .map((match): Place => ({ vaultName: match.secret.vaultName, name: match.secret.name, match }));
      const read = await consumers.read(found, places);
      const federated = app.details && { readAt: app.details.readAt, items: app.details.federated };
      const context: ApplicationContext = {
        appId: app.appId,
        tenantId,
        entraIssuer: cloud.issuers.v2,
        audience: cloud.tokenExchangeAudience,
        federated: federated?.items ?? [],
      };
      const sources = { found, matches: allMatches, isComplete, places, read, context };
      return {
        appId: app.appId,
        objectId: app.objectId,
        tenantId,
        displayName: app.displayName,
        federatedCredentials: federated,
        secrets: secrets.map((secret) => reportOf(secret, sources)),
        unknown: [
          ...(federated === undefined && app.kind === "application" ? [FEDERATED_UNREAD] : []),
          ...unmatched,
          ...read.unknown,
          ...(await consumers.coverage()),
          ...NEVER_SEEN,
        ],
      };
    },
  };
}

/** What was read of an application. */
interface Sources {
  found: FoundApplication;
  matches: readonly Match[];
  /** Whether the matches could be read. */
  isComplete: boolean;
  places: readonly Place[];
  read: ConsumersRead;
  context: ApplicationContext;
}

/** Assesses one client secret. */
function reportOf(
  secret: FoundApplication["app"]["credentials"][number],
  { found, matches, isComplete, places, read, context }: Sources,
): SecretReport {
  const { app, tenantId } = found;
  const { keyId, displayName, expiresOn } = secret;
  const isOnly = app.credentials.filter(isClientSecret).length === 1;
  const mayStore = ({ match }: Place) => match.keyId === undefined || match.keyId === keyId;
  const ofSecret = read.ofPlaces.filter(({ place }) => mayStore(place));
  const consumers = groupConsumers([
    ...read.own.map(({ edge }) => ({ edge, place: undefined, isCertain: isOnly })),
    ...ofSecret.flatMap(({ place, edges }) =>
      edges.map(({ edge }) => ({ edge, place, isCertain: isOnly || place.match.keyId === keyId })),
    ),
  ])
    // The readers of a copy in another vault are its consumers, not the sync record.
    .filter(({ id }) => read.targets.get(id)?.provider !== "azure")
    .map((one) => ({ ...one, replacement: replacementOf(one, context, read.targets.get(one.id)) }));
  const assessed = applyLimit(consumers, app.details?.federated.length);
  const blockers = blockersOf(found);
  const usage = found.usageOf(secret);
  const storing = places.filter(mayStore).map(({ match }) => ({
    assetId: assetId({ ...match.secret, type: "secret" }),
    confidence: match.confidence as "certain" | "likely",
    // Tags alone prove nothing, because anyone with write access to the vault can set them. A sign-in can prove the application
    // without deciding which of its secrets is stored: deleting that copy could break another secret.
    isProven: match.keyId === keyId && (match.isKnown || match.verified === "signIn"),
  }));
  const decided = verdictOf(assessed, { blockers, usage, isComplete });
  const credential = { type: "secret", name: credentialName(app.appId, keyId) } as const;
  return {
    keyId,
    assetId: assetId({ ...credential, vaultName: holderName(tenantId, bucketOf(app.appId)) }),
    displayName,
    expiresOn,
    ...decided,
    usage,
    places: storing.map(({ assetId, confidence }) => ({ assetId, confidence })),
    consumers: assessed,
    blockers,
    plan: planOf({
      appId: app.appId,
      keyId,
      consumers: assessed,
      places: storing.filter(({ isProven }) => isProven),
      verdict: decided.verdict,
    }),
    unknown: unknownOfSecret(ofSecret, matches, keyId),
  };
}

const FEDERATED_UNREAD: Unknown = {
  code: "federatedCredentialsUnread",
  message: "The federated credentials of the application could not be read, so the limit of 20 was not checked.",
  remedy:
    "Grant the service's identity the application permission Application.Read.All of Microsoft Graph, or repeat the request later if Microsoft Graph did not respond.",
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
function blockersOf({ app }: FoundApplication): Blocker[] {
  if (app.kind === "servicePrincipal")
    return [
      {
        code: "foreignApplication",
        message: "The application belongs to another tenant. Only that tenant can add federated credentials to it.",
      },
    ];
  return [];
}
