import { Problem } from "../../http/problem.ts";
import { lastingFailure } from "../conditions.ts";
import { matchAt } from "../plan.ts";
import { planned, refuseTooMany } from "../plan-consumers.ts";
import { placeOf, vaultOf } from "../publications.ts";
import { clientSecretOf, isVaultSecret, type Publication, type RotationRecord } from "../rotation.ts";
import { NeedsPerson } from "../stop.ts";
import { isCertain, placeKey, type Target } from "../targets.ts";
import type { Turn } from "../turn.ts";
import { holdsOld } from "./publish.ts";

/**
 * Adds places to those that are written, with their consumers: places that a person has confirmed since the plan, and places of
 * earlier rotations that could not be read then. The rotation goes back to `publishing`, so that they are written and verified
 * as the others were, and overlap as long.
 *
 * @returns whether there was one; false also where that can't be seen for long, which the conditions of the end report.
 * @throws {NeedsPerson} when one can't be written as it is; {CloudFailure} that is retried within minutes.
 */
export async function addPlaces(turn: Turn): Promise<boolean> {
  const { placeConfirmedAt } = turn.record;
  const added = mayGainPlaces(turn.record) ? await placesToAdd(turn) : [];
  const plan = added.length > 0 ? await planFor(turn, added) : undefined;
  if (plan === undefined && placeConfirmedAt === undefined) return false;
  const keys = new Set(added.map(placeKey));
  await turn.save((now) => ({
    // A person who confirmed another place meanwhile is heard next.
    ...(now.placeConfirmedAt === placeConfirmedAt && { placeConfirmedAt: undefined }),
    ...(plan !== undefined && {
      publications: [...now.publications, ...plan.publications],
      consumers: [...(now.consumers ?? []), ...plan.consumers],
      coverage: [...new Set([...now.coverage, ...plan.coverage])],
      notUpdated: now.notUpdated.filter((place) => !keys.has(placeKey(place))),
      status: "publishing",
      needsConfirmation: false,
      reasons: [],
    }),
  }));
  return plan !== undefined;
}

/** Whether a rotation that overlaps writes further places. */
function mayGainPlaces(record: RotationRecord): boolean {
  const { updateKeyVaults, reason, finish } = record;
  return !isVaultSecret(record) && updateKeyVaults && reason !== "compromised" && !finish?.force;
}

async function placesToAdd(turn: Turn): Promise<Target[]> {
  const { record, world } = turn;
  const { objectId, oldKeyId } = clientSecretOf(record);
  const written = new Set(record.publications.map(placeKey));
  const excluded = new Set(record.notUpdated.filter(({ reason }) => reason === "notNamed").map(placeKey));
  const isToAdd = (target: Target) =>
    isCertain(target) && target.standing !== "new" && !written.has(placeKey(target)) && !excluded.has(placeKey(target));
  try {
    const app = await world.graph.application({ objectId });
    return app === undefined ? [] : (await world.matches.targetsOf(app, oldKeyId)).filter(isToAdd);
  } catch (error) {
    lastingFailure(turn, error);
    return [];
  }
}

/** @throws {NeedsPerson} when one can't be written as it is; {CloudFailure} */
async function planFor(turn: Turn, added: readonly Target[]) {
  const { world } = turn;
  const { consumers: known = [] } = turn.record;
  try {
    const publications = await Promise.all(added.map((target) => matchAt(world, target)));
    // What publishing would put everything back for: a mistaken confirmation is no reason to.
    for (const publication of publications) await refuseOther(turn, publication);
    const { consumers: users, coverage } = await world.consumers.of({ places: publications });
    refuseTooMany([...known, ...users]);
    // Where the request named the only consumers that are acted on, it named none of these.
    const isLimited = known.some(({ included }) => !included);
    const consumers = users.map((one) => planned(one, !isLimited && one.how !== "willBreak"));
    return { publications, consumers, coverage };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    throw new NeedsPerson(error.code, error.message, "Fix that, or withdraw the confirmation of this match.");
  }
}

async function refuseOther(turn: Turn, publication: Publication): Promise<void> {
  const current = await vaultOf(turn, publication).read(publication.secretName);
  if (current === undefined || (await holdsOld(turn, publication, current.value))) return;
  throw new NeedsPerson(
    "targetHoldsOther",
    `${placeOf(publication)} does not hold the client secret that is to be replaced. It was not overwritten.`,
    "Withdraw the confirmation of this match.",
  );
}
