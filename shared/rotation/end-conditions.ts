import { DAY_SECONDS, HOUR_SECONDS } from "../platform/time.ts";
import { laterVersionOf } from "./expected-version.ts";
import { readHeldCopy } from "./held-copies.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { inspectPlace } from "./place-content.ts";
import { instantText, isTransientFailure, throwIfTransient } from "./problems.ts";
import { placeOf } from "./publications.ts";
import { isVaultSecret, type RotationConsumer, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";
import { checkConsumers, currentConsumers, isUncheckable } from "./steps/check-consumers.ts";
import { isCertain, placeKey, type Target } from "./targets.ts";

/**
 * Result of the check whether the overlap period can end. Afterwards the issuer retires the old credential. The rotation of a vault
 * secret only ends.
 */
export interface Conditions {
  /** Reasons against the end, as sentences for users. Empty if the overlap period can end. */
  reasons: string[];
  /** Seconds until the next check. */
  nextCheckSeconds: number;
  /** Consumers with the results of their check. */
  consumers: RotationConsumer[];
}

/**
 * Checks places, directory, consumers and logs for reasons to keep the old value valid.
 *
 * @param options.isUserRequest - Whether a user requested the end, and vouches for the consumers that can't be checked.
 * @throws {CloudFailure} if a failure is transient and fewer than `RETRIED_FAILURES` occurred in a row.
 */
export async function reasonsAgainstEnd(
  context: StepContext,
  { isUserRequest }: { isUserRequest: boolean },
): Promise<Conditions> {
  try {
    const places = await reasonsFromPlaces(context);
    const noReasons = { reasons: [], hasUnanswered: false };
    const issuer = isVaultSecret(context.record) ? noReasons : await reasonsFromIssuer(context);
    const { reasons, consumers } = await reasonsFromConsumers(context, isUserRequest);
    return {
      reasons: [...places, ...issuer.reasons, ...reasons, ...(await reasonsFromLogs(context))],
      consumers,
      // A place that could not be read now may answer soon. Other reasons need an action of a user.
      nextCheckSeconds: issuer.hasUnanswered ? HOUR_SECONDS : DAY_SECONDS,
    };
  } catch (error) {
    const failure = throwIfTransient(context, error);
    const reason = `The service can't read now which places and consumers hold the new secret: ${failure.message} ${failure.remedy}`;
    const nextCheckSeconds = isTransientFailure(failure) ? HOUR_SECONDS : DAY_SECONDS;
    return { reasons: [reason], consumers: context.record.consumers ?? [], nextCheckSeconds };
  }
}

/**
 * Returns reasons from places. A publication of the record is one place, or the handover, that the rotation writes the new
 * value to.
 */
async function reasonsFromPlaces(context: StepContext): Promise<string[]> {
  const { publications } = context.record;
  const reasons: string[] = [];
  if (!publications.some(({ kind, state }) => kind !== "handover" && state === "written")) {
    reasons.push(
      "The new secret was handed over and written to no known place, so the service can't see whether it is in use.",
    );
  }
  const heldCopy = await readHeldCopy(context);
  for (const publication of publications) {
    if (publication.kind === "handover") continue;
    const { holds } = await inspectPlace(context, publication, heldCopy);
    if (holds !== "new") reasons.push(`${placeOf(publication)} no longer stores the new secret.`);
  }
  return reasons;
}

/** Returns reasons from the issuer, and from places that store the old value and are not written. */
async function reasonsFromIssuer(context: StepContext): Promise<{ reasons: string[]; hasUnanswered: boolean }> {
  const { record } = context;
  const { reasons, targets } = await issuerOf(record).reasonsToKeepOld(context);
  const written = new Set(record.publications.map(placeKey));
  const unwritten = targets.filter((target) => !written.has(placeKey(target)));
  return {
    reasons: [...reasons, ...unwritten.flatMap((target) => reasonsFromTarget(record, target))],
    hasUnanswered: unwritten.some(({ unanswered }) => unanswered !== undefined),
  };
}

/** Returns the reason from a place that the rotation does not write. Places that only possibly store the value give none. */
function reasonsFromTarget({ updateKeyVaults }: RotationRecord, target: Target): string[] {
  const place = placeOf(target);
  if (!isCertain(target))
    return target.confidence === "likely" ? [`${place} probably stores the old secret and was not updated.`] : [];
  if (target.knownAs !== "new" || !updateKeyVaults) return [`${place} stores the old secret and was not updated.`];
  return [
    `${place} stores the old secret, is new to this service and was not updated. Confirm the match to have it updated, or finish the rotation with force to delete the old secret anyway.`,
  ];
}

/**
 * Returns reasons from the consumers. For a client secret all known consumers count, also excluded ones, because they fail
 * without the old secret. For a vault secret only included consumers count, because the old versions stay readable. A consumer
 * that could not use the secret before counts in neither case.
 */
async function reasonsFromConsumers(
  context: StepContext,
  isUserRequest: boolean,
): Promise<Omit<Conditions, "nextCheckSeconds">> {
  const { consumers: allConsumers, unread } = await currentConsumers(context);
  const counted = allConsumers.filter(
    ({ included, brokenBefore }) => !brokenBefore && (included || !isVaultSecret(context.record)),
  );
  const checked = await checkConsumers(context, counted);
  const reasons = checked.flatMap((one) => {
    const { kind, name, holds, problem } = one;
    if (holds === "new" || holds === "gone") return [];
    if (isUncheckable(one))
      return isUserRequest
        ? []
        : [
            `The service can't tell which value ${kind} ${name} uses. Check that it uses the new value, then finish the rotation.`,
          ];
    const problemText = problem === undefined ? "" : ` ${problem}`;
    return [`${kind} ${name} ${holds === "old" ? "still uses" : "may still use"} the old value.${problemText}`];
  });
  // `unread` are sentences about known consumers that could not be read. A user who ends the overlap period vouches for them. A
  // vault secret keeps its old versions, so they can't fail.
  const unreadReasons = isUserRequest || isVaultSecret(context.record) ? [] : unread;
  return {
    reasons: [...reasons, ...unreadReasons],
    // A consumer that was not checked keeps its earlier result.
    consumers: allConsumers.map((one) => checked.find((other) => other === one || isSameConsumer(other, one)) ?? one),
  };
}

/**
 * Returns reasons from logs: reads of places, and sign-ins or other uses that the issuer finds. Logs can only delay the removal,
 * because an empty log does not prove that the old value is unused.
 */
async function reasonsFromLogs(context: StepContext): Promise<string[]> {
  const { deps, record } = context;
  const reasons: string[] = [];
  for (const publication of record.publications) {
    const { vaultName, secretName, kind, writtenVersion: version, writtenAt } = publication;
    if (kind === "handover" || version === undefined || writtenAt === undefined) continue;
    const written = { vaultName, secretName, version, since: new Date(writtenAt) };
    // Reads of any version except the written one.
    const readers = await deps.usage.readersOfOldVersion(written);
    const later = readers.length > 0 ? await laterVersionOf(context, publication, version) : undefined;
    for (const { caller, version: oldVersion, at } of readers) {
      // Not an old version: a repeated write of the new value added it.
      if (oldVersion === later) continue;
      reasons.push(
        `${caller} read the old version ${oldVersion} of ${placeOf(publication)} at ${instantText(at)}, after the new one was written, and has not read that one since.`,
      );
    }
  }
  // The issuer's logs show sign-ins. Those with a compromised secret may be the attacker's, and must not delay its removal.
  if (isVaultSecret(record) || record.reason === "compromised") return reasons;
  return [...reasons, ...((await issuerOf(record).reasonsFromLogs?.(context)) ?? [])];
}

const isSameConsumer = (a: RotationConsumer, b: RotationConsumer): boolean =>
  a.id === b.id && placeOf(a) === placeOf(b);
