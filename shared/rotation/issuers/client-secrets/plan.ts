import type { Graph, GraphApplication, PasswordCredential } from "../../../platform/azure/graph.ts";
import { isServiceVault } from "../../../platform/azure/service-key-vault.ts";
import { invalidBody, notFound, Problem } from "../../../platform/http/problem.ts";
import { MINUTE_MS, SECOND_MS } from "../../../platform/time.ts";
import { type OnObstacle, remedies } from "../../obstacles.ts";
import { currentVersion, type Places, type PlanDependencies, planMatchPlaces } from "../../plan-places.ts";
import { placeOf } from "../../publications.ts";
import type { ClientSecretRequest, PlanRequest, PlanWithoutConsumers } from "../../request.ts";
import type { Publication } from "../../rotation.ts";
import { placeKey, type Target } from "../../targets.ts";

/**
 * Sign-in audiences whose applications can have only two client secrets:
 * https://learn.microsoft.com/entra/identity-platform/supported-accounts-validation
 */
const TWO_SECRET_AUDIENCES = new Set(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"]);
const MAX_SECRETS = 2;
/** Largest assumed difference between two clocks. */
export const MAX_CLOCK_DIFFERENCE_MS = 10 * MINUTE_MS;

/**
 * Plans the replacement of a client secret of an application.
 *
 * @throws {Problem} if no plan is possible.
 * @throws {CloudFailure} if the directory or a vault can't be read.
 */
export async function planClientSecret(
  deps: PlanDependencies,
  request: PlanRequest<ClientSecretRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<PlanWithoutConsumers> {
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
    issuer: "clientSecret",
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

/**
 * Returns the expired secret that must be removed first; undefined if the application has a free slot. Reports noRoomForSecret
 * if no secret has expired, or if the request does not allow its removal.
 */
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

/** Returns the lifetime of the new secret: the requested days, or fewer if the tenant's policy limits them, with a note for users. */
async function lifetimeOf(graph: Graph, app: GraphApplication, requestedDays: number, onObstacle: OnObstacle) {
  const policy = await graph.passwordPolicy(app.objectId);
  if (policy === "unknown") {
    return {
      expiryDays: requestedDays,
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
    return { expiryDays: requestedDays, notes: [] };
  }
  if (policy.longestDays === undefined || policy.longestDays >= requestedDays)
    return { expiryDays: requestedDays, notes: [] };
  return {
    expiryDays: policy.longestDays,
    notes: [
      `The tenant's policy shortens the new secret's lifetime from ${requestedDays} to ${policy.longestDays} days.`,
    ],
  };
}

/** Plans a rotation that writes no vault secret of the application, only the one in the handover vault. */
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
