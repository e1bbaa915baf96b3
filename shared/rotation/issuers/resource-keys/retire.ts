import { readHeldCopy, readHeldValue } from "../../held-copies.ts";
import { placeOf } from "../../publications.ts";
import type { ListedKey } from "../../resource-keys/kinds.ts";
import { type RotationRecord, resourceKeyOf } from "../../rotation.ts";
import type { StepContext, StepDependencies } from "../../step-context.ts";
import { NeedsAttention } from "../../step-errors.ts";
import { placeKey, type Target } from "../../targets.ts";
import type { ReasonsToKeepOld } from "../issuer.ts";
import { listKeys, previousCopyOf, regenerateOnce, SETTLE_TIME_MS, withAttempt } from "./create.ts";

/**
 * Regenerates the old key if the request asked for that, and discards its new value. Otherwise the old key stays valid until the
 * next rotation of the resource regenerates it.
 */
export async function retireOldKey(context: StepContext): Promise<void> {
  if (!context.record.regenerateOld) return;
  const { oldKeyId } = resourceKeyOf(context.record);
  // True if an earlier worker crashed after it stored that the key is regenerated.
  if (context.record.attempts.some(({ keyId, state }) => keyId === oldKeyId && state === "made")) return;
  await regenerateOnce(context, oldKeyId, "old", (keys) => requireReplaced(context, keys));
  await context.save((record) => ({ attempts: withAttempt(record, oldKeyId, { state: "made" }) }));
}

/**
 * Immediately before the old key is regenerated: no known place may contain it, and every place must store the new key.
 *
 * @throws {NeedsAttention} otherwise.
 */
async function requireReplaced(context: StepContext, keys: readonly ListedKey[]): Promise<void> {
  const { record, deps } = context;
  const { resourceId, oldKeyId } = resourceKeyOf(record);
  const compared = await deps.keyLinks.comparePlaces(resourceId, keys, record.publications);
  const isNew = (place: (typeof record.publications)[number]) =>
    compared.some((one) => placeKey(one) === placeKey(place) && one.keyName === record.newKeyId);
  const users = compared.filter(
    (one) =>
      (one.contained.includes(oldKeyId) || one.unreadable === true) &&
      (isWritten(record, one) || !ignoresOtherPlaces(record)),
  );
  const unwritten = record.publications.filter((place) => !isNew(place));
  const named = [...new Set([...users, ...unwritten].map(placeOf))];
  if (named.length === 0) return;
  throw new NeedsAttention(
    "stillInUse",
    `The key ${oldKeyId} was not regenerated: ${named.join(", ")} contains it, does not store ${record.newKeyId}, or can't be read.`,
    `Give the service access to that vault secret, write ${record.newKeyId} to it, or delete the secret if nothing uses it.`,
  );
}

const isWritten = ({ publications }: RotationRecord, place: Target): boolean =>
  publications.some((one) => placeKey(one) === placeKey(place));

/**
 * Returns whether the old key is regenerated although places that the rotation does not write store it, or may store it. An attacker
 * could keep a compromised key valid by storing it in a vault. With `force`, a user has seen which places store it.
 */
const ignoresOtherPlaces = ({ reason, finish }: RotationRecord): boolean =>
  reason === "compromised" || finish?.force === true;

/**
 * Returns whether the resource still has the old key, although its regeneration was requested. A user can then cancel the rotation.
 * False while the request can still take effect, and if the held copy of the key's previous value is missing.
 */
export async function isOldKeyKept(deps: StepDependencies, record: RotationRecord): Promise<boolean> {
  const { oldKeyId } = resourceKeyOf(record);
  const askedAt = record.attempts.find(({ keyId }) => keyId === oldKeyId)?.askedAt;
  if (askedAt !== undefined && deps.clock.now().getTime() - Date.parse(askedAt) < SETTLE_TIME_MS) return false;
  const previous = await readHeldValue({ deps, record }, previousCopyOf(oldKeyId));
  const listed = (await listKeys({ deps, record })).find(({ name }) => name === oldKeyId);
  return previous !== undefined && listed?.value === previous;
}

/** Returns the places that store the old key now. */
export async function findTargets(context: StepContext): Promise<Target[]> {
  const { resourceId, oldKeyId } = resourceKeyOf(context.record);
  const compared = await context.deps.keyLinks.comparePlaces(resourceId, await listKeys(context));
  return compared.filter(({ keyName }) => keyName === oldKeyId);
}

/** Returns why the rotation should not end: the new key has another value, or other places store the old key. */
export async function reasonsToKeepOld(context: StepContext): Promise<ReasonsToKeepOld> {
  const { record } = context;
  const { oldKeyId } = resourceKeyOf(record);
  const { newKeyId = "" } = record;
  const heldCopy = await readHeldCopy(context);
  const listed = (await listKeys(context)).find(({ name }) => name === newKeyId)?.value;
  const reasons =
    listed === undefined || (heldCopy !== undefined && heldCopy !== listed)
      ? [`${newKeyId} no longer has the value that this rotation gave it.`]
      : [];
  if (record.reason === "compromised") return { reasons, targets: [] };
  const others = (await findTargets(context)).filter((place) => !isWritten(record, place));
  const otherPlaces = others.map(
    (place) =>
      `${placeOf(place)} stores ${oldKeyId} and was not updated. Write ${newKeyId} to it, or delete the secret if nothing uses it. Until then the next rotation of this resource can't start.`,
  );
  return { reasons: [...reasons, ...otherPlaces], targets: [] };
}
