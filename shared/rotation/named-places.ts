import { invalidBody } from "../platform/http/problem.ts";
import { secretPlace } from "./match-candidates.ts";
import { type Place, placeKey } from "./targets.ts";

/**
 * Returns the places of the asset IDs in `targets`, without duplicates; undefined if `targets` is undefined.
 *
 * @throws {Problem} invalidRequest for an ID that is not that of a vault secret.
 */
export function namedPlaces(targets: readonly string[] | undefined): Place[] | undefined {
  if (targets === undefined) return undefined;
  const places = targets.map((target): Place => {
    const place = secretPlace(target);
    if (place === undefined) throw invalidBody("targets", `${target} must be the asset ID of a vault secret`);
    return { vaultName: place.vaultName, secretName: place.name };
  });
  return [...new Map(places.map((place) => [placeKey(place), place])).values()];
}
