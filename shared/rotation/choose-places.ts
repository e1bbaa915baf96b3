import { Problem } from "../platform/http/problem.ts";
import { type OnObstacle, remedies } from "./obstacles.ts";
import { placeOf } from "./publications.ts";
import type { LeftOutReason, RotationRecord } from "./rotation.ts";
import { isCertain, type Place, placeKey, type Target } from "./targets.ts";

/** The parts of a request that decide which places (vault secrets that store the client secret) a rotation writes. */
export interface PlacesRequest {
  /** If set, the plan writes only these places. The user or policy that names a place vouches for it. */
  targets?: readonly Place[] | undefined;
  /** Vault secret whose asset ID the request names. The user who sends the request vouches for it. */
  requestedPlace?: Place | undefined;
  /** `compromised`: an attacker may have the value, so places that the request does not name are not written. */
  reason?: RotationRecord["reason"];
  /** Whether a policy starts the rotation, so that no user has seen the plan. */
  automatic?: boolean | undefined;
}

type LeftOut = RotationRecord["notUpdated"][number];

/**
 * Chooses the places that get the new value. It is not enough that the value of a place signs in, because anyone who once had
 * the value could store it in their own vault. So a rotation writes the places that were named, that a user confirmed, or that
 * an earlier rotation wrote. If there is none, a rotation that a user requests writes the certain place that has stored the
 * value longest.
 *
 * @param onObstacle - Called if there is no place to write, or a named place is not a certain match (notRotatable).
 * @throws {CloudFailure} if the test of a named place gave no clear answer. If no place can be written otherwise, an unclear
 * answer of any place throws too, because that place could be one to write.
 */
export function choosePlaces(
  targets: readonly Target[],
  request: PlacesRequest,
  onObstacle: OnObstacle,
): { written: Target[]; leftOut: LeftOut[] } {
  const { targets: namedTargets, requestedPlace, automatic } = request;
  const certain = targets.filter(isCertain);
  const places = [...(namedTargets ?? []), ...(requestedPlace === undefined ? [] : [requestedPlace])];
  const named = new Set(places.map(placeKey));
  const isNamed = (target: Target) => named.has(placeKey(target));
  const unansweredPlace = targets.find((target) => target.unanswered !== undefined && isNamed(target));
  if (unansweredPlace?.unanswered !== undefined) throw unansweredPlace.unanswered;
  const unproven = places.filter((place) => !certain.some((target) => placeKey(target) === placeKey(place)));
  if (unproven.length > 0) {
    onObstacle(
      new Problem(
        "notRotatable",
        `${unproven.map(placeOf).join(", ")} ${unproven.length === 1 ? "is" : "are"} not proven to store this client secret. Test or confirm the match first.`,
      ),
    );
  }
  const allowed = certain.filter((target) => isNamed(target) || (namedTargets === undefined && !isNew(target)));
  const unanswered = targets.find((target) => target.unanswered !== undefined)?.unanswered;
  if (allowed.length === 0 && unanswered !== undefined) throw unanswered;
  if (certain.length === 0) {
    // If named places are not proven, that obstacle was reported above.
    if (unproven.length === 0) {
      onObstacle(
        new Problem(
          "notRotatable",
          "No key vault secret is proven to store this client secret, so no key vault would receive the new one. Test or confirm a match, or rotate without saving to Key Vault (updateKeyVaults: false) and collect the new secret from the handover vault.",
        ),
      );
    }
    return { written: [], leftOut: leftOutOf(targets, request) };
  }
  // A policy has no user who sees the plan and would vouch for a new place.
  if (allowed.length === 0 && automatic) onObstacle(new Problem("notRotatable", needsConfirmation(certain)));
  const unreadable = targets.filter((target) => target.unreadable);
  if (allowed.length === 0 && unreadable.length > 0) {
    onObstacle(
      new Problem(
        "notRotatable",
        `${unreadable.map(placeOf).join(", ")} can't be read and may hold this client secret, so the place that has held it longest is unknown. Name the places to write in targets, confirm one, or let the service read the vault.`,
        // The remedy proposes no places: no user has confirmed one, and anyone may have copied the secret into their own vault.
        remedies({ targets: null }),
      ),
    );
  }
  // If places were named and none of them is proven, a dry run plans no place.
  const fallback = namedTargets === undefined ? [longestHolder(certain)] : [];
  const written = allowed.length > 0 ? allowed : fallback;
  const others = targets.filter((target) => !written.includes(target));
  return { written, leftOut: leftOutOf(others, request) };
}

const leftOutOf = (targets: readonly Target[], request: PlacesRequest): LeftOut[] =>
  targets.map((target) => {
    const { vaultName, secretName, confidence } = target;
    return { vaultName, secretName, confidence, reason: reasonFor(target, request) };
  });

/** Returns why an automatic rotation does not start, with the places to confirm. */
export const needsConfirmation = (certain: readonly Target[]): string =>
  `${certain.map(placeOf).join(", ")} ${certain.length === 1 ? "holds" : "hold"} this client secret, but no user confirmed that and no rotation wrote it. An automatic rotation does not write such places.`;

/** Returns whether the place is not a known place: no user confirmed it, and no earlier rotation wrote it. */
const isNew = ({ knownAs }: Target): boolean => knownAs === "new";

/** Returns the place with the oldest current version. A copy is always newer than its original. Ties are broken by name. */
const longestHolder = (certain: readonly Target[]): Target =>
  certain.toSorted(
    (a, b) =>
      (a.heldSince ?? Number.POSITIVE_INFINITY) - (b.heldSince ?? Number.POSITIVE_INFINITY) ||
      (placeKey(a) < placeKey(b) ? -1 : 1),
  )[0]!;

function reasonFor(target: Target, { targets: namedTargets, reason }: PlacesRequest): LeftOutReason {
  const isNewPlace = isCertain(target) && isNew(target);
  // `newPlace` asks a user to confirm the place during the overlap period. With `compromised` a confirmation would add no
  // place.
  if (namedTargets !== undefined && (reason === "compromised" || !isNewPlace)) return "notNamed";
  if (isNewPlace) return "newPlace";
  if (target.unanswered !== undefined) return "unanswered";
  return target.unreadable ? "unreadable" : "uncertain";
}
