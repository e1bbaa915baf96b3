import { CloudFailure } from "../../../platform/azure/failure.ts";
import { MINUTE_MS, SECOND_MS } from "../../../platform/time.ts";
import { auditedEffect } from "../../audited-effect.ts";
import { holdValue, readHeldValue } from "../../held-copies.ts";
import { placeOf } from "../../publications.ts";
import { type KeyKind, kindNamed, type ListedKey, otherKey } from "../../resource-keys/kinds.ts";
import { type Attempt, type RotationRecord, resourceKeyOf } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../../step-errors.ts";
import { placeKey } from "../../targets.ts";
import { tagsOf } from "./tags.ts";

/** Time after which a request without a response has no further effect. */
export const SETTLE_TIME_MS = 10 * MINUTE_MS;
const RETRY_SECONDS = 60;

/** Returns the kind of the rotated resource. @throws {Error} for a rotation of another kind, which is a programming error. */
export function kindOf(record: RotationRecord): KeyKind {
  const { keyKind } = resourceKeyOf(record);
  const kind = kindNamed(keyKind);
  if (kind === undefined) throw new Error(`The kind ${keyKind} is unknown.`);
  return kind;
}

/** Returns the name of the key that the rotation regenerates and that the places get. */
export const newKeyOf = (record: RotationRecord): string => otherKey(kindOf(record), resourceKeyOf(record).oldKeyId);

/** Lists the keys of the rotated resource. @throws {CloudFailure} */
export const listKeys = ({ deps, record }: Pick<StepContext, "deps" | "record">): Promise<ListedKey[]> =>
  deps.keys.keys(resourceKeyOf(record).resourceId, kindOf(record));

/** Returns the key ID of the held copy of the value that a key had before this rotation regenerated it. */
export const previousCopyOf = (keyName: string): string => `${keyName} previous`;

/** Regenerates the key that nothing uses, and stores the held copy of its new value. */
export async function createKey(context: StepContext): Promise<void> {
  // True if an earlier worker crashed after it stored the new key.
  if (context.record.newKeyId !== undefined) return;
  const keyName = newKeyOf(context.record);
  const created = await regenerateOnce(context, keyName, "new", (keys) => requireUnused(context, keys));
  await holdValue(context, keyName, created.value, Object.fromEntries(tagsOf(context.record, keyName)));
  await context.save((record) => ({
    newKeyId: keyName,
    ...(created.id !== created.name && { newKeyReference: created.id }),
    attempts: withAttempt(record, keyName, { state: "made" }),
  }));
}

const attemptOf = ({ attempts }: RotationRecord, keyName: string): Attempt | undefined =>
  attempts.find(({ keyId }) => keyId === keyName);

/** Returns the attempts with a change of the one that regenerates a key. Each key has one attempt. */
export const withAttempt = ({ attempts }: RotationRecord, keyName: string, change: Partial<Attempt>): Attempt[] =>
  attempts.map((one) => (one.keyId === keyName ? { ...one, ...change } : one));

/**
 * Regenerates a key at most once, regardless of crashes, lost responses and duplicate deliveries. A held copy of the value that
 * the key had before is stored first. If the key has another value, a request of an earlier worker regenerated it.
 *
 * @param requireAllowed - Called with the keys immediately before each request. Throws if the key must not be regenerated.
 * @throws {ContinueLater} while a request of an earlier worker can still have an effect.
 */
export async function regenerateOnce(
  context: StepContext,
  keyName: string,
  which: "new" | "old",
  requireAllowed: (keys: readonly ListedKey[]) => Promise<void>,
): Promise<ListedKey> {
  const { resourceId } = resourceKeyOf(context.record);
  const kind = kindOf(context.record);
  const keys = await listKeys(context);
  const present = keys.find(({ name }) => name === keyName);
  // The new key is regenerated before any place is written, so the rotation can roll back. The old key is regenerated last. A
  // rollback would restore a key that is gone, so a user must act.
  const Stop = which === "new" ? RollBack : NeedsAttention;
  if (present === undefined)
    throw new Stop("keyGone", `The resource does not list the key ${keyName}.`, CHECK_RESOURCE);
  const earlierAttempt = attemptOf(context.record, keyName);
  let previous = await readHeldValue(context, previousCopyOf(keyName));
  if (earlierAttempt?.state === "asked") {
    if (previous === undefined) {
      const message = `The copy of the value that ${keyName} had before is no longer in the service's own key vault, so it is unknown whether the key was regenerated.`;
      throw new Stop("valueLost", message, "Check who deleted it, then start a new rotation.");
    }
    if (present.value !== previous) return present;
    const wait = Date.parse(earlierAttempt.askedAt) + SETTLE_TIME_MS - context.now().getTime();
    if (wait > 0) throw new ContinueLater(Math.min(RETRY_SECONDS, Math.ceil(wait / SECOND_MS)));
  }
  await requireAllowed(keys);
  if (previous !== present.value) {
    const tags = Object.fromEntries(tagsOf(context.record, keyName));
    await holdValue(context, previousCopyOf(keyName), present.value, tags);
    previous = present.value;
  }
  const attempt = {
    displayName: keyName,
    keyId: keyName,
    askedAt: context.now().toISOString(),
    state: "asked" as const,
  };
  await context.save(({ attempts }) => ({
    attempts: [...attempts.filter(({ keyId }) => keyId !== keyName), attempt],
    ...(which === "old" && { revokingSince: context.record.revokingSince ?? attempt.askedAt }),
  }));
  // By this, `regenerate` recognizes whether the key was already regenerated, also by an earlier request.
  const isOld = (value: string) => value === previous;
  const regenerate = () => context.deps.keys.regenerate(resourceId, kind, keyName, isOld);
  const details = { keyId: keyName, which };
  return await auditedEffect(context, "rotation.keyRegenerated", details, () =>
    context.withHeartbeat(regenerate),
  ).catch(async (error: unknown) => {
    // The request was rejected. Every other failure leaves it unclear whether the key was regenerated. Also after a `conflict`: an
    // earlier request that regenerates this key may still be in progress.
    if (error instanceof CloudFailure && !error.unclear && error.code !== "conflict")
      await context.save((record) => ({ attempts: withAttempt(record, keyName, { state: "refused" }) }));
    throw error;
  });
}

const CHECK_RESOURCE = "Check the resource in the Azure portal, then start a new rotation.";

/**
 * Immediately before the request: the places must store the key in use, and no known place may store the key that is regenerated.
 *
 * @throws {RollBack} otherwise; {CloudFailure}
 */
async function requireUnused(context: StepContext, keys: readonly ListedKey[]): Promise<void> {
  const { record, deps } = context;
  const { resourceId, oldKeyId } = resourceKeyOf(record);
  const keyName = newKeyOf(record);
  const compared = await deps.keyLinks.comparePlaces(resourceId, keys, record.publications);
  for (const publication of record.publications) {
    const place = compared.find((one) => placeKey(one) === placeKey(publication));
    if (place?.keyName === oldKeyId && isSameVault(place, publication)) continue;
    const message = `${placeOf(publication)} does not store ${oldKeyId} any more, so it is not certain which key is in use. No key was regenerated.`;
    throw new RollBack(
      "targetHoldsOther",
      message,
      "Check who changed the key or the vault secret, then start a new rotation.",
    );
  }
  const users = compared.filter(({ contained }) => contained.includes(keyName));
  if (users.length > 0) {
    const message = `${users.map(placeOf).join(", ")} contains ${keyName}, which this rotation would regenerate. No key was regenerated.`;
    throw new RollBack("keyInUse", message, `Write ${oldKeyId} to that vault secret, then start a new rotation.`);
  }
  const unread = compared.filter(({ unreadable }) => unreadable);
  if (unread.length === 0) return;
  const message = `${unread.map(placeOf).join(", ")} can't be read and may store ${keyName}. No key was regenerated.`;
  throw new RollBack("placeUnreadable", message, "Give the service access to the vault, then start a new rotation.");
}

/** Another vault may have got the name of the planned one. */
const isSameVault = (place: { vaultId: string }, { vaultId }: { vaultId?: string | undefined }): boolean =>
  vaultId === undefined || vaultId.toLowerCase() === place.vaultId.toLowerCase();
