import { assetId } from "../inventory/asset.ts";
import type { Graph, GraphApplication, PasswordCredential } from "../platform/azure/graph.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { SecretVersion, VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { choosePlaces, type PlacesRequest } from "./choose-places.ts";
import type { ConsumersOfSecrets } from "./consumer.ts";
import { type OnObstacle, remedies, throwObstacle } from "./obstacles.ts";
import { type ConsumersRequest, planConsumers } from "./plan-consumers.ts";
import { hasRoomForTags, placeOf } from "./publications.ts";
import type { Publication, RotationRecord } from "./rotation.ts";
import { type Matches, placeKey, type Target } from "./targets.ts";

/** Request to replace a client secret of an application. */
export interface ClientSecretRequest extends ConsumersRequest, Omit<PlacesRequest, "automatic"> {
  /** Client ID. */
  appId: string;
  /** The keyId of the client secret to replace. */
  secretId: string;
  /** 1 to 730. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** False: the new value is stored in the vault that `HANDOVER_KEY_VAULT_URL` names. */
  updateKeyVaults: boolean;
  /** Days during which both secrets are valid, 0 to 90. */
  overlapDays: number;
  /** Whether an expired client secret may be removed if the application has no free slot. */
  removeExpired: boolean;
}

/** Request to write a new value to a vault secret that is not an application's client secret. */
export interface VaultSecretRequest extends ConsumersRequest {
  secret: Pick<Target, "vaultName" | "vaultUri" | "secretName">;
  value: string;
  reason?: RotationRecord["reason"];
  /** Days until the new version expires. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** Days during which the rotation can still be cancelled after its consumers have the new value. */
  overlapDays: number;
}

export type RotationRequest = ClientSecretRequest | VaultSecretRequest;

/** A request with its defaults filled in. */
type PlanRequest<T extends RotationRequest> = T & { expiryDays: number; automatic: boolean };

/** The parts of a rotation record that a plan decides. */
export type RotationPlan = Pick<
  RotationRecord,
  | "appId"
  | "objectId"
  | "appName"
  | "oldKeyId"
  | "assetId"
  | "newExpiresAt"
  | "oldHint"
  | "expiryDays"
  | "overlapDays"
  | "updateKeyVaults"
  | "reason"
  | "namedOnly"
  | "knownKeyIds"
  | "removeExpired"
  | "publications"
  | "consumers"
  | "skipVerification"
  | "restartApps"
  | "notUpdated"
  | "notes"
  | "coverage"
>;

export interface PlanDependencies {
  graph: Graph;
  vaults: VaultSecretsClients;
  matches: Matches;
  consumers: Pick<ConsumersOfSecrets, "findConsumers" | "currentProblem">;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "HANDOVER_KEY_VAULT_URL">;
}

/**
 * Sign-in audiences whose applications can have only two client secrets:
 * https://learn.microsoft.com/entra/identity-platform/supported-accounts-validation
 */
const TWO_SECRET_AUDIENCES = new Set(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"]);
const MAX_SECRETS = 2;
/** Largest assumed difference between two clocks. */
export const MAX_CLOCK_DIFFERENCE_MS = 10 * MINUTE_MS;

/**
 * Plans a rotation without any change. Finding the targets can read values of vault secrets, and `currentVersion` reads one if
 * two versions have the same date.
 *
 * @param onObstacle - Called for each reason why the rotation can't start as requested.
 * @throws {Problem} if no plan is possible; {CloudFailure}
 */
export async function planRotation(
  deps: PlanDependencies,
  request: PlanRequest<RotationRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<RotationPlan> {
  const plan =
    "secret" in request
      ? await planVaultSecret(deps, request, now, onObstacle)
      : await planClientSecret(deps, request, now, onObstacle);
  return { ...plan, ...(await planConsumers(deps.consumers, plan, request, onObstacle)) };
}

type Planned = Omit<RotationPlan, "consumers" | "coverage">;

async function planVaultSecret(
  deps: PlanDependencies,
  { secret, expiryDays, overlapDays, reason, skipVerification, restartApps }: PlanRequest<VaultSecretRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<Planned> {
  const { vaultName, secretName: name } = secret;
  return {
    assetId: assetId({ vaultName, type: "secret", name }),
    expiryDays,
    newExpiresAt: new Date(now.getTime() + expiryDays * DAY_MS).toISOString(),
    overlapDays,
    updateKeyVaults: true,
    reason,
    knownKeyIds: [],
    publications: [await planPublication(deps, secret, { kind: "secret" }, onObstacle)],
    skipVerification,
    restartApps,
    notUpdated: [],
    notes: [],
  };
}

async function planClientSecret(
  deps: PlanDependencies,
  request: PlanRequest<ClientSecretRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<Planned> {
  requireConsistentOptions(request, onObstacle);
  const app = await deps.graph.findApplication({ appId: request.appId });
  if (app === undefined) throw notFound(`An application with the client id ${request.appId}`);
  const old = requireClientSecret(app, request.secretId);
  const removeExpired = secretToRemove(app, request, now, onObstacle);
  const { expiryDays, notes } = await lifetimeOf(deps.graph, app, request.expiryDays, onObstacle);
  const targets = await deps.matches.targetsOf(app, old.keyId);
  const { publications, notUpdated } = request.updateKeyVaults
    ? await planMatchPlaces(deps, targets, request, onObstacle)
    : await planHandoverPlaces(deps, targets, app.appId, onObstacle);
  return {
    appId: app.appId,
    objectId: app.objectId,
    appName: app.displayName,
    oldKeyId: old.keyId,
    oldHint: old.hint,
    expiryDays,
    overlapDays: request.overlapDays,
    updateKeyVaults: request.updateKeyVaults,
    reason: request.reason,
    ...(request.targets !== undefined && { namedOnly: true }),
    knownKeyIds: app.passwords.map(({ keyId }) => keyId),
    removeExpired,
    publications,
    skipVerification: request.skipVerification,
    restartApps: request.restartApps,
    notUpdated,
    notes,
  };
}

/** Throws if options of the request contradict each other. Reports an option that `reason` requires and that is missing. */
function requireConsistentOptions(
  { reason, targets, updateKeyVaults }: ClientSecretRequest,
  onObstacle: OnObstacle,
): void {
  if (targets !== undefined && !updateKeyVaults) {
    throw invalidBody("targets", "can't be given with updateKeyVaults: false, which does not write vault secrets");
  }
  if (reason === "compromised" && targets === undefined && updateKeyVaults) {
    onObstacle(
      invalidBody(
        "targets",
        "must name the vault secrets that get the new value, as asset IDs: an attacker with a compromised secret may have put a copy into a vault of their own. GET /api/automation/rotation/apps/{app_id}/matches lists the secrets that hold it",
        remedies({ targets: null }),
      ),
    );
  }
}

function requireClientSecret(app: GraphApplication, keyId: string): PasswordCredential {
  const password = app.passwords.find((one) => one.keyId.toLowerCase() === keyId.toLowerCase());
  if (password) return password;
  if (app.keys.some((one) => one.keyId.toLowerCase() === keyId.toLowerCase())) {
    throw new Problem(
      "notRotatable",
      `${keyId} is a certificate of ${app.displayName}. Name one of its client secrets.`,
    );
  }
  throw notFound(`A client secret ${keyId} of ${app.displayName}`);
}

/** Returns whether the credential has certainly expired, allowing for clock differences. */
export const isExpired = ({ expiresOn }: PasswordCredential, now: Date): boolean =>
  expiresOn !== undefined && expiresOn < (now.getTime() - MAX_CLOCK_DIFFERENCE_MS) / SECOND_MS;

/** Returns the expired secret that must be removed first; undefined if the application has a free slot. */
function secretToRemove(
  app: GraphApplication,
  { removeExpired }: ClientSecretRequest,
  now: Date,
  onObstacle: OnObstacle,
): string | undefined {
  if (!TWO_SECRET_AUDIENCES.has(app.signInAudience ?? "") || app.passwords.length < MAX_SECRETS) return undefined;
  const expired = app.passwords.find((one) => isExpired(one, now));
  if (expired && removeExpired) return expired.keyId;
  const keyIds = app.passwords.map(({ keyId }) => keyId);
  const remedy = expired
    ? `${expired.keyId} has expired. Allow the rotation to delete an expired secret first (removeExpired).`
    : "Remove the secret that is not in use, then rotate the other one.";
  const { members } = expired ? remedies({ removeExpired: true }) : remedies();
  onObstacle(
    new Problem(
      "noRoomForSecret",
      `An application for personal accounts has at most ${MAX_SECRETS} client secrets, and ${app.displayName} has ${keyIds.join(" and ")}. ${remedy}`,
      { members: { keyIds, ...members } },
    ),
  );
  return undefined;
}

async function lifetimeOf(graph: Graph, app: GraphApplication, wanted: number, onObstacle: OnObstacle) {
  const policy = await graph.passwordPolicy(app.objectId);
  if (policy === "unknown") {
    return {
      expiryDays: wanted,
      notes: [
        "The tenant's policy for client secrets can't be read. If it has a shorter limit, adding the secret will show it.",
      ],
    };
  }
  if (!policy.allowed) {
    onObstacle(
      new Problem(
        "notRotatable",
        `A policy of the tenant forbids new client secrets of ${app.displayName}. Use a certificate or a federated credential.`,
      ),
    );
  }
  if (policy.longestDays !== undefined && policy.longestDays < 1) {
    onObstacle(
      new Problem(
        "notRotatable",
        `A policy of the tenant limits new client secrets of ${app.displayName} to less than a day. Raise that limit, or use a certificate or a federated credential.`,
      ),
    );
    return { expiryDays: wanted, notes: [] };
  }
  if (policy.longestDays === undefined || policy.longestDays >= wanted) return { expiryDays: wanted, notes: [] };
  return {
    expiryDays: policy.longestDays,
    notes: [`The tenant's policy shortens the new secret's lifetime from ${wanted} to ${policy.longestDays} days.`],
  };
}

type Places = Pick<RotationRecord, "publications" | "notUpdated">;

async function planMatchPlaces(
  deps: PlanDependencies,
  targets: readonly Target[],
  request: PlacesRequest,
  onObstacle: OnObstacle,
): Promise<Places> {
  const { written, leftOut } = choosePlaces(targets, request, onObstacle);
  const publications = await Promise.all(written.map((target) => planMatch(deps, target, onObstacle)));
  return { publications, notUpdated: leftOut };
}

async function planHandoverPlaces(
  deps: PlanDependencies,
  targets: readonly Target[],
  appId: string,
  onObstacle: OnObstacle,
): Promise<Places> {
  const publications = await planHandover(deps, appId, onObstacle);
  const notUpdated = targets
    .filter((target) => publications.every((publication) => placeKey(target) !== placeKey(publication)))
    .map(({ vaultName, secretName, confidence }) => ({ vaultName, secretName, confidence }));
  return { publications, notUpdated };
}

/**
 * Plans a new version of a vault secret that stores the client secret.
 *
 * @throws {Problem} notRotatable, serviceVault; {CloudFailure}
 */
export const planMatch = async (
  deps: Pick<PlanDependencies, "vaults">,
  target: Target,
  onObstacle: OnObstacle = throwObstacle,
): Promise<Publication> => ({
  ...(await planPublication(deps, target, { kind: "match", confirmed: target.approval === "confirmed" }, onObstacle)),
  vaultId: target.vaultId,
});

/** Plans a new version of an existing vault secret. */
async function planPublication(
  { vaults }: Pick<PlanDependencies, "vaults">,
  target: Pick<Target, "vaultName" | "vaultUri" | "secretName">,
  how: Pick<Publication, "kind" | "confirmed">,
  onObstacle: OnObstacle,
): Promise<Publication> {
  const { vaultName, vaultUri, secretName } = target;
  const current = await currentVersion(vaults, target);
  const place = placeOf(target);
  const reject = (text: string) => onObstacle(new Problem("notRotatable", text));
  if (current === undefined) reject(`${place} no longer exists. Scan the vault again.`);
  else if (current.managed) reject(`${place} belongs to a certificate, so it can't be written.`);
  else if (!current.enabled) reject(`The current version of ${place} is disabled. Enable it first.`);
  else if (!hasRoomForTags(current)) reject(`${place} has too many tags: remove two of them first.`);
  return { vaultName, vaultUri, secretName, ...how, plannedVersion: current?.version, state: "planned" };
}

/**
 * Returns the current version of a secret. Key Vault dates versions by the second. If the two newest have the same date, this
 * function reads the secret to find out which of them is current.
 */
export async function currentVersion(
  vaults: VaultSecretsClients,
  { vaultName, vaultUri, secretName }: Pick<Target, "vaultName" | "vaultUri" | "secretName">,
): Promise<SecretVersion | undefined> {
  const vault = vaults.open({ name: vaultName, vaultUri });
  const [newest, second] = await vault.versions(secretName);
  if (newest === undefined || second?.createdOn !== newest.createdOn) return newest;
  return await vault.read(secretName);
}

/**
 * Plans the secret in the handover vault, a configured vault from which users collect the new value. Returns no place if no
 * vault is configured.
 */
async function planHandover(
  { config, vaults }: PlanDependencies,
  appId: string,
  onObstacle: OnObstacle,
): Promise<Publication[]> {
  const address = config.HANDOVER_KEY_VAULT_URL;
  if (address === undefined) {
    onObstacle(
      invalidBody(
        "updateKeyVaults",
        "can't be false while no handover vault is configured (HANDOVER_KEY_VAULT_URL)",
        remedies({ updateKeyVaults: true }),
      ),
    );
    return [];
  }
  const vaultName = new URL(address).hostname.split(".")[0]!;
  if (isServiceVault(config, address)) throw serviceVaultProblem(vaultName);
  const place = { vaultName, vaultUri: address, secretName: `client-secret-${appId}` };
  const current = await currentVersion(vaults, place);
  if (current && current.tags["entra-app-id"] !== appId) {
    const text = `${placeOf(place)}, the handover secret, was not written by this service.`;
    onObstacle(new Problem("notRotatable", `${text} Rename or remove it.`));
  }
  return [{ ...place, kind: "handover", plannedVersion: current?.version, state: "planned" }];
}

const serviceVaultProblem = (vaultName: string): Problem =>
  new Problem("serviceVault", `${vaultName} is the service's own key vault. Name another one.`);
