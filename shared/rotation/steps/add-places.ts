import { Problem } from "../../platform/http/problem.ts";
import { issuerOf } from "../issuers/issuers.ts";
import { requireConsumersFit, toRotationConsumer, withCurrentProblem } from "../plan-consumers.ts";
import { planMatch } from "../plan-places.ts";
import { throwIfTransient } from "../problems.ts";
import { openVault, placeOf } from "../publications.ts";
import { isVaultSecret, type Publication, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { NeedsAttention } from "../step-errors.ts";
import { isCertain, placeKey, type Target } from "../targets.ts";
import { storesOldValue } from "./publish.ts";
import { waitToAddPlaces } from "./wait-for-window.ts";

/**
 * Runs in the overlap period. Adds places (vault secrets) that a user confirmed since the plan, and places of earlier rotations
 * that were unreadable, together with their consumers. The rotation returns to `publishing`: it writes and verifies the added
 * places, and the overlap period restarts. In an automatic rotation, places that no user confirmed wait for the maintenance
 * window.
 *
 * @returns Whether places were added. False also if places can't be read for long, which `reasonsAgainstEnd` reports.
 * @throws {NeedsAttention} if a place can't be written; {CloudFailure} that is retried within minutes;
 * {ContinueLater} until the window opens.
 */
export async function addPlaces(context: StepContext): Promise<boolean> {
  const { placeConfirmedAt } = context.record;
  const added = mayGainPlaces(context.record) ? await placesToAdd(context) : [];
  if (added.length > 0) await waitToAddPlaces(context);
  const plan = added.length > 0 ? await planAddedPlaces(context, added) : undefined;
  if (plan === undefined && placeConfirmedAt === undefined) return false;
  const addedKeys = new Set(added.map(placeKey));
  await context.save((stored) => ({
    // If another place was confirmed in the meantime, `placeConfirmedAt` stays set, so that the next run adds that place.
    ...(stored.placeConfirmedAt === placeConfirmedAt && { placeConfirmedAt: undefined }),
    ...(plan !== undefined && {
      publications: [...stored.publications, ...plan.publications],
      consumers: [...(stored.consumers ?? []), ...plan.consumers],
      coverage: [...new Set([...stored.coverage, ...plan.coverage])],
      notUpdated: stored.notUpdated.filter((place) => !addedKeys.has(placeKey(place))),
      status: "publishing",
      needsConfirmation: false,
      reasons: [],
    }),
  }));
  return plan !== undefined;
}

/** Returns whether the rotation accepts further places during its overlap period. */
function mayGainPlaces(record: RotationRecord): boolean {
  const { updateKeyVaults, reason, finish } = record;
  return !isVaultSecret(record) && updateKeyVaults && reason !== "compromised" && !finish?.force;
}

/**
 * Returns the places that certainly store the old value, are known places and were not excluded by the request. If the request named
 * the places to write (`namedOnly`), only a confirmation adds another one.
 */
async function placesToAdd(context: StepContext): Promise<Target[]> {
  const { record } = context;
  const written = new Set(record.publications.map(placeKey));
  const excluded = new Set(record.notUpdated.filter(({ reason }) => reason === "notNamed").map(placeKey));
  const isToAdd = (target: Target) =>
    isCertain(target) &&
    (record.namedOnly ? target.knownAs === "confirmed" : target.knownAs !== "new") &&
    !written.has(placeKey(target)) &&
    !excluded.has(placeKey(target));
  try {
    return (await issuerOf(record).findTargets(context)).filter(isToAdd);
  } catch (error) {
    throwIfTransient(context, error);
    return [];
  }
}

/**
 * Plans the added places and their consumers.
 *
 * @throws {NeedsAttention} if a place can't be written.
 * @throws {CloudFailure} if a place or a consumer can't be read.
 */
async function planAddedPlaces(context: StepContext, added: readonly Target[]) {
  const { deps } = context;
  const { consumers: planned = [] } = context.record;
  try {
    const publications = await Promise.all(added.map((target) => planMatch(deps, target)));
    // The publish step rolls the rotation back if a place stores another value. A mistaken confirmation must not cause a
    // rollback.
    for (const publication of publications) await requireOldValue(context, publication);
    const { consumers: users, coverage } = await deps.consumers.findConsumers({ places: publications });
    requireConsumersFit([...planned, ...users]);
    // If the request limited the consumers, the added consumers are excluded too.
    const isLimited = planned.some(({ included }) => !included);
    const consumers = await Promise.all(
      users.map((one) => {
        const included = !isLimited && one.how !== "willBreak" && one.newPlace !== true;
        return withCurrentProblem(deps.consumers, toRotationConsumer(one, included));
      }),
    );
    return { publications, consumers, coverage };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    throw new NeedsAttention(error.code, error.message, "Fix the problem, or remove the confirmation of this match.");
  }
}

/** @throws {NeedsAttention} targetHoldsOther if a place does not store the old value. */
async function requireOldValue(context: StepContext, publication: Publication): Promise<void> {
  const current = await openVault(context, publication).read(publication.secretName);
  if (current === undefined || (await storesOldValue(context, publication, current.value))) return;
  throw new NeedsAttention(
    "targetHoldsOther",
    `${placeOf(publication)} does not hold the ${issuerOf(context.record).noun} to replace. It was not overwritten.`,
    "Remove the confirmation of this match.",
  );
}
