import { Problem } from "../http/problem.ts";
import { placeOf } from "./publications.ts";
import type { LeftOutReason, RotationRecord } from "./rotation.ts";
import { isCertain, type Place, placeKey, type Target } from "./targets.ts";

/** What decides which places a rotation of a client secret writes. */
export interface PlacesRequest {
  /** Writes to these only. A person, or a policy that an administrator set, names them and so answers for them. */
  targets?: readonly Place[] | undefined;
  /** The vault's secret by whose id the rotation was asked for: the person who asked answers for it. */
  asked?: Place | undefined;
  /** `compromised`: places that are not named may belong to a thief of the value. */
  reason?: RotationRecord["reason"];
  /** Whether a policy asks for it and no person has seen the plan. */
  automatic?: boolean | undefined;
}

type LeftOut = RotationRecord["notUpdated"][number];

/**
 * Chooses the places that get the new value. That a value signs in does not make its place a target: whoever once had the
 * value could put it anywhere. So a rotation writes the places that were named, that a person confirmed, or that an earlier
 * rotation wrote. Where there is none, and a person asks, it writes the certain place that has held the value longest.
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
      `${unproved.map(placeOf).join(", ")} ${unproved.length === 1 ? "is" : "are"} not known for certain to hold this client secret. Verify or confirm the match first.`,
    );
  }
  if (certain.length === 0) {
    throw new Problem(
      "notRotatable",
      "No key vault secret is known for certain to hold this client secret, so nobody would get the new one. Confirm a match, or send updateKeyVaults: false to have it handed over.",
    );
  }
  const allowed = certain.filter((target) => isNamed(target) || (only === undefined && !isNew(target)));
  if (allowed.length === 0 && automatic) throw new Problem("notRotatable", needsConfirmation(certain));
  const written = allowed.length > 0 ? allowed : [longestHolder(certain)];
  const leftOut = targets
    .filter((target) => !written.includes(target))
    .map((target): LeftOut => {
      const { vaultName, secretName, confidence } = target;
      return { vaultName, secretName, confidence, reason: reasonFor(target, request) };
    });
  return { written, leftOut };
}

/** Why an automatic rotation does not start: says which places a person may confirm. */
export const needsConfirmation = (certain: readonly Target[]): string =>
  `${certain.map(placeOf).join(", ")} ${certain.length === 1 ? "holds" : "hold"} this client secret, but no person confirmed that and no rotation wrote it. An automatic rotation writes to no such place.`;

const isNew = ({ standing }: Target): boolean => standing === "new";

/** By Key Vault's own date of the version, which a later copy can't have; by name where two are of one second. */
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
