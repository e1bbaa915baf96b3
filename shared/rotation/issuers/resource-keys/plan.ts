import { parseResourceId } from "../../../platform/azure/resource-id.ts";
import { invalidBody, Problem } from "../../../platform/http/problem.ts";
import { keyText } from "../../../platform/storage/keys.ts";
import { DAY_MS } from "../../../platform/time.ts";
import { type OnObstacle, remedies } from "../../obstacles.ts";
import { type PlanDependencies, planMatchPlaces } from "../../plan-places.ts";
import { placeOf, unlessDisabled } from "../../publications.ts";
import type { PlanRequest, PlanWithoutConsumers, ResourceKeyRequest } from "../../request.ts";
import { type KeyKind, kindOfType, type ListedKey, otherKey } from "../../resource-keys/kinds.ts";
import type { ComparedPlace } from "../../resource-keys/links.ts";
import { containedKeys } from "../../resource-keys/matching.ts";
import type { Publication } from "../../rotation.ts";
import { placeKey } from "../../targets.ts";

/** Longest resource ID as part of a row key, which has at most 1,024 characters with its other parts. */
const MAX_ID_CHARACTERS = 900;
/** Number of versions of a vault secret that are read if a consumer does not follow new ones. */
const MAX_EARLIER_VERSIONS = 10;

/**
 * Plans the rotation of a key: the places that store it get the other key of its pair, which is regenerated first. The key in use
 * follows only from the values of the places, which are read and compared in this run.
 *
 * @throws {Problem} if no plan is possible; {CloudFailure}
 */
export async function planResourceKey(
  deps: PlanDependencies,
  request: PlanRequest<ResourceKeyRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<PlanWithoutConsumers> {
  const { resourceId, requestedPlace, targets, reason, expiryDays, overlapDays } = request;
  const kind = requireKind(resourceId);
  if (reason === "compromised" && targets === undefined && requestedPlace === undefined) {
    const text =
      "must name the vault secrets that get the new key, as asset IDs: an attacker with a compromised key may have put a copy into a vault of their own";
    onObstacle(invalidBody("targets", text, remedies({ targets: null })));
  }
  const keys = await deps.keys.keys(resourceId, kind);
  const named = [...(targets ?? []), ...(requestedPlace === undefined ? [] : [requestedPlace])];
  const compared = await deps.keyLinks.comparePlaces(resourceId, keys, named);
  const oldKeyId = keyInUse(kind, compared, request);
  const newKeyId = otherKey(kind, oldKeyId);
  const gap = request.acceptUnread ? undefined : await deps.keyLinks.comparisonGap(resourceId, now);
  if (gap !== undefined) {
    const text = `${gap} So an unknown vault secret may store ${newKeyId}, and its consumers would fail when that key is regenerated. Discover the credentials with access to all vaults, or send acceptUnread: true if nothing uses ${newKeyId}.`;
    onObstacle(new Problem("notRotatable", text, remedies({ acceptUnread: true })));
  }
  const namedKeys = new Set(named.map(placeKey));
  const unproved = named.filter(
    (place) => !compared.some((one) => placeKey(one) === placeKey(place) && one.keyName === oldKeyId),
  );
  if (unproved.length > 0) {
    const text = `${unproved.map(placeOf).join(", ")} does not store ${oldKeyId} of this ${kind.title}, so it can't get the new key. Name only vault secrets that store that key, alone or in a connection string of this resource.`;
    throw new Problem("notRotatable", text);
  }
  // Places of the other pair store neither of the two keys.
  const candidates = compared.filter(({ keyName }) => keyName === undefined || keyName === oldKeyId);
  const { publications, notUpdated } = await planMatchPlaces(deps, candidates, request, onObstacle);
  const users = request.acceptUnread ? [] : await usersOfOtherKey(deps, publications, keys, newKeyId);
  if (users.length > 0) {
    const text = `${users.join("; ")} contains ${newKeyId}, so a consumer that does not follow new versions may fail when that key is regenerated. Have these consumers use the current version, or send acceptUnread: true if they do not use ${newKeyId}.`;
    onObstacle(new Problem("notRotatable", text, remedies({ acceptUnread: true })));
  }
  const regenerateOld = request.regenerateOld || reason === "compromised";
  return {
    issuer: "resourceKey",
    resourceId,
    keyKind: kind.name,
    oldKeyId,
    expiryDays,
    newExpiresAt: new Date(now.getTime() + expiryDays * DAY_MS).toISOString(),
    overlapDays,
    updateKeyVaults: true,
    reason,
    regenerateOld,
    ...(targets !== undefined && { namedOnly: true }),
    knownKeyIds: [],
    publications,
    skipVerification: request.skipVerification,
    restartApps: request.restartApps,
    notUpdated,
    notes: [
      ...(regenerateOld
        ? []
        : [`${oldKeyId} stays valid until the next rotation of this resource regenerates it, or somebody else does.`]),
      ...compared.flatMap((one) => (namedKeys.has(placeKey(one)) ? [] : noteOf(one, newKeyId))),
    ],
  };
}

/** @throws {Problem} for a resource without keys that the service can regenerate. */
function requireKind(resourceId: string): KeyKind {
  const kind = kindOfType(parseResourceId(resourceId)?.type ?? "");
  if (kind === undefined || keyText(resourceId.toLowerCase()).length > MAX_ID_CHARACTERS)
    throw invalidBody("resourceId", "must be the ID of a resource whose keys the service can rotate");
  if (kind.reportOnly !== undefined) throw new Problem("notRotatable", kind.reportOnly);
  return kind;
}

/**
 * Returns the key that the places store. The other key of its pair can be regenerated, because no known place stores it.
 *
 * @throws {Problem} notRotatable if that is not certain.
 */
function keyInUse(
  kind: KeyKind,
  compared: readonly ComparedPlace[],
  { pair: wanted, requestedPlace }: ResourceKeyRequest,
): string {
  const fail = (text: string): never => {
    throw new Problem("notRotatable", text);
  };
  if (wanted !== undefined && !kind.pairs.some((pair) => pair.includes(wanted))) {
    throw invalidBody("pair", `must be a key of a ${kind.title}: ${kind.pairs.flat().join(", ")}`);
  }
  const requestedKey =
    requestedPlace === undefined
      ? undefined
      : compared.find((one) => placeKey(one) === placeKey(requestedPlace))?.keyName;
  const keyOfPair = wanted ?? requestedKey;
  const held = kind.pairs
    .filter((pair) => keyOfPair === undefined || pair.includes(keyOfPair))
    .map((pair) => compared.filter(({ keyName }) => keyName !== undefined && pair.includes(keyName)))
    .filter((holders) => holders.length > 0);
  const [holders] = held;
  if (holders === undefined) {
    const other = compared.filter(({ otherResource }) => otherResource);
    return fail(
      other.length > 0
        ? `${other.map(placeOf).join(", ")} stores a key of this ${kind.title} in a connection string of another resource, and no other vault secret stores a key. Correct the connection string first.`
        : `No known vault secret stores a current key of this ${kind.title}, so it is unknown which key is in use. Name the vault secrets that store it (targets), or discover the credentials again.`,
    );
  }
  if (held.length > 1) {
    const pairs = held.map(([first]) => first!.keyName).join(" and ");
    return fail(`Vault secrets store keys of several pairs: ${pairs}. Name the key to rotate (pair).`);
  }
  const names = [...new Set(holders.map(({ keyName }) => keyName!))];
  if (names.length > 1) {
    const texts = names.map((name) => {
      const places = holders.filter(({ keyName }) => keyName === name).map(placeOf);
      return `${places.join(", ")} ${places.length === 1 ? "stores" : "store"} ${name}`;
    });
    return fail(
      `Both keys of this ${kind.title} are in use: ${texts.join("; ")}. A rotation regenerates one of them, so it would cause an outage. Write the same key to all these vault secrets first.`,
    );
  }
  const unread = compared.filter(({ unreadable }) => unreadable);
  if (unread.length > 0) {
    return fail(
      `${unread.map(placeOf).join(", ")} can't be read and may store the key to regenerate. Give the service access to the vault, or delete the secret if nothing uses it.`,
    );
  }
  const keyName = names[0]!;
  const newKeyId = otherKey(kind, keyName);
  const users = compared.filter(({ contained }) => contained.includes(newKeyId));
  if (users.length > 0) {
    return fail(
      `${users.map(placeOf).join(", ")} contains ${newKeyId}, which a rotation would regenerate, with other text around it or beside the name of another resource. Write ${keyName} to that vault secret, or delete the secret if nothing uses it.`,
    );
  }
  return keyName;
}

/**
 * Returns where consumers may have the key to regenerate: settings that contained it when they were last compared, and earlier
 * versions of the places, each with the consumers that are pinned to a version or have a copy. The two keys alternate, so such a
 * version can be valid again.
 */
async function usersOfOtherKey(
  { consumers, vaults }: PlanDependencies,
  publications: readonly Publication[],
  keys: readonly ListedKey[],
  newKeyId: string,
): Promise<string[]> {
  const found = await consumers.findConsumers({ places: publications });
  const users: string[] = [];
  for (const publication of publications) {
    const { vaultName, vaultUri, secretName, plannedVersion } = publication;
    const fixed = found.consumers.filter(
      (one) => (one.how === "willBreak" || one.copy === true) && placeKey(one) === placeKey(publication),
    );
    if (fixed.length === 0) continue;
    const literal = fixed.filter(({ keyNames }) => keyNames?.includes(newKeyId));
    users.push(...literal.map(({ kind, name, evidence }) => `${kind} ${name} (${evidence})`));
    if (literal.length > 0) continue;
    const vault = vaults.open({ name: vaultName, vaultUri });
    for (const { version } of (await vault.versions(secretName)).slice(0, MAX_EARLIER_VERSIONS)) {
      if (version === plannedVersion) continue;
      const earlier = await unlessDisabled(vault.read(secretName, version));
      if (earlier === undefined || !containedKeys(earlier.value, keys).includes(newKeyId)) continue;
      const names = fixed.map(({ kind, name }) => `${kind} ${name}`).join(", ");
      users.push(`Version ${version} of ${placeOf(publication)}, which ${names} may use,`);
      break;
    }
  }
  return users;
}

function noteOf(place: ComparedPlace, newKeyId: string): string[] {
  if (place.otherResource)
    return [`${placeOf(place)} stores a key of the resource in a connection string of another resource.`];
  if (place.keyName === undefined && place.contained.length > 0)
    return [`${placeOf(place)} contains ${place.contained.join(" and ")} and is not updated.`];
  if (place.unanswered !== undefined)
    return [`${placeOf(place)} could not be read. Its tags name the resource, so it may store ${newKeyId}.`];
  return [];
}
