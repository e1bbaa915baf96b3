import { Problem } from "../platform/http/problem.ts";
import { placeOf } from "./publications.ts";
import type { LeftOutReason, RotationRecord } from "./rotation.ts";
import { isCertain, type Place, placeKey, type Target } from "./targets.ts";

/** The parts of a request that decide which places a rotation of a client secret writes. */
export interface PlacesRequest {
  /** If set, the plan writes only these places. The person or policy that names them is responsible for them. */
  targets?: readonly Place[] | undefined;
  /** Vault secret whose ID the request names. The person who requests the rotation is responsible for it. */
  asked?: Place | undefined;
  /** `compromised`: places that are not named may belong to an attacker who has the value. */
  reason?: RotationRecord["reason"];
  /** Whether a policy starts the rotation, so that no person has seen the plan. */
  automatic?: boolean | undefined;
}

type LeftOut = RotationRecord["notUpdated"][number];

/**
 * Chooses the places that get the new value. A value that signs in does not make its place a target: anyone who once had the
 * value could store it anywhere. So a rotation writes the places that were named, that a person confirmed, or that an earlier
 * rotation wrote. If there is none, a requested rotation writes the certain place that has held the value longest.
 *
 * @throws {Problem} notRotatable where nothing is left to write, or a named place is not certain.
 */
export function choosePlaces(
  targets: readonly Target[],
  request: PlacesRequest,
): { written: Target[]; leftOut: LeftOut[] } {
  const { targets: only, asked, automatic } = request;
  const certain = targets.filter(isCertain);
  const places = [...(only ?? []), ...(asked === undefined ? [] : [asked])];
  const named = new Set(places.map(placeKey));
  const isNamed = (target: Target) => named.has(placeKey(target));
  const unproved = places.filter((place) => !certain.some((target) => placeKey(target) === placeKey(place)));
  if (unproved.length > 0) {
    throw new Problem(
      "notRotatable",
      `${unproved.map(placeOf).join(", ")} ${unproved.length === 1 ? "is" : "are"} not a certain match of this client secret. Verify or confirm the match first.`,
    );
  }
  if (certain.length === 0) {
    throw new Problem(
      "notRotatable",
      "No key vault secret is a certain match of this client secret, so no place would receive the new secret. Confirm a match, or send updateKeyVaults: false to store it in the handover vault.",
    );
  }
  const allowed = certain.filter((target) => isNamed(target) || (only === undefined && !isNew(target)));
  if (allowed.length === 0 && automatic) throw new Problem("notRotatable", needsConfirmation(certain));
  const unreadable = targets.filter((target) => target.unreadable);
  if (allowed.length === 0 && unreadable.length > 0) {
    throw new Problem(
      "notRotatable",
      `${unreadable.map(placeOf).join(", ")} can't be read and may hold this client secret, so the place that has held it longest is unknown. Name the places to write in targets, confirm one, or let the service read the vault.`,
    );
  }
  const written = allowed.length > 0 ? allowed : [longestHolder(certain)];
  const leftOut = targets
    .filter((target) => !written.includes(target))
    .map((target): LeftOut => {
      const { vaultName, secretName, confidence } = target;
      return { vaultName, secretName, confidence, reason: reasonFor(target, request) };
    });
  return { written, leftOut };
}

/** Returns why an automatic rotation does not start, with the places to confirm. */
export const needsConfirmation = (certain: readonly Target[]): string =>
  `${certain.map(placeOf).join(", ")} ${certain.length === 1 ? "holds" : "hold"} this client secret, but no person confirmed that and no rotation wrote it. An automatic rotation does not write such places.`;

const isNew = ({ standing }: Target): boolean => standing === "new";

/** By the creation date of the version, which a later copy can't predate. Ties are broken by name. */
const longestHolder = (certain: readonly Target[]): Target =>
  certain.toSorted(
    (a, b) =>
      (a.heldSince ?? Number.POSITIVE_INFINITY) - (b.heldSince ?? Number.POSITIVE_INFINITY) ||
      (placeKey(a) < placeKey(b) ? -1 : 1),
  )[0]!;

function reasonFor(target: Target, { targets: only, reason }: PlacesRequest): LeftOutReason {
  const isNewPlace = isCertain(target) && isNew(target);
  if (only !== undefined && (reason === "compromised" || !isNewPlace)) return "notNamed";
  if (isNewPlace) return "newPlace";
  return target.unreadable ? "unreadable" : "uncertain";
}
