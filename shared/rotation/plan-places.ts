import type { Graph } from "../platform/azure/graph.ts";
import type { SecretVersion, VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import { Problem } from "../platform/http/problem.ts";
import { choosePlaces, type PlacesRequest } from "./choose-places.ts";
import type { ConsumersOfSecrets } from "./consumer.ts";
import type { LoginServers } from "./database-logins/login-servers.ts";
import type { LoginRegistrations } from "./database-logins/registrations.ts";
import { type OnObstacle, throwObstacle } from "./obstacles.ts";
import { hasRoomForTags, placeOf } from "./publications.ts";
import type { KeysClient } from "./resource-keys/keys-client.ts";
import type { KeyLinkStore } from "./resource-keys/links.ts";
import type { Publication, RotationRecord } from "./rotation.ts";
import type { Matches, Target } from "./targets.ts";

// The parts of a plan that concern places: the vault secrets that a rotation writes. A `Target` is a place that may store the
// old value. A `Publication` is the planned write of the new value to a place.

export interface PlanDependencies {
  graph: Graph;
  vaults: VaultSecretsClients;
  matches: Matches;
  keys: Pick<KeysClient, "keys">;
  keyLinks: Pick<KeyLinkStore, "comparePlaces" | "comparisonGap">;
  loginServers: LoginServers;
  logins: Pick<LoginRegistrations, "get" | "comparePlaces" | "isMonitored">;
  consumers: Pick<ConsumersOfSecrets, "findConsumers" | "currentProblem">;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "HANDOVER_KEY_VAULT_URL">;
}

/** The places that a plan writes, and those that it leaves out. */
export type Places = Pick<RotationRecord, "publications" | "notUpdated">;

/**
 * Plans the places of the old value that the request allows to write.
 *
 * @param onObstacle - Called with each reason against the plan. Throws if the rotation is to start. For a dry run it collects
 *   the reasons, and planning continues.
 */
export async function planMatchPlaces(
  deps: PlanDependencies,
  targets: readonly Target[],
  request: PlacesRequest,
  onObstacle: OnObstacle,
): Promise<Places> {
  const { written, leftOut } = choosePlaces(targets, request, onObstacle);
  const publications = await Promise.all(written.map((target) => planMatch(deps, target, onObstacle)));
  return { publications, notUpdated: leftOut };
}

/**
 * Plans a new version of a vault secret that stores the old value.
 *
 * @throws {Problem} notRotatable, serviceVault; {CloudFailure}
 */
export const planMatch = async (
  deps: Pick<PlanDependencies, "vaults">,
  target: Target,
  onObstacle: OnObstacle = throwObstacle,
): Promise<Publication> => ({
  ...(await planPublication(deps, target, { kind: "match", confirmed: target.knownAs === "confirmed" }, onObstacle)),
  vaultId: target.vaultId,
});

/** Plans a new version of an existing vault secret. */
export async function planPublication(
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
