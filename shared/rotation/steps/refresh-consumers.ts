import { CloudFailure } from "../../platform/azure/failure.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { auditedEffect } from "../audited-effect.ts";
import type { RefreshResult } from "../consumer.ts";
import { expectedVersionOf, laterVersionOf, publicationOf } from "../expected-version.ts";
import { consumerKey, placesToRead, recheckProblems, toRotationConsumer } from "../plan-consumers.ts";
import { isTransientFailure } from "../problems.ts";
import { openVault, placeOf } from "../publications.ts";
import { isToRestore, isVaultSecret, type RotationConsumer, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../step-errors.ts";
import { afterCheck, checkConsumer, checkConsumers, currentConsumers } from "./check-consumers.ts";

// The steps `verify` and `restore`: refresh the consumers (resources that use the secret) one after the other and check their value.
// The step `overlap` also checks the consumers that read the value by themselves.

/**
 * Time within which a refreshed consumer must have the new value. Otherwise the rotation rolls back. docs/rotation.md states
 * this time.
 */
const VERIFIED_WITHIN_MS = 5 * MINUTE_MS;
/** Minimum number of checks, even if the service was down in the meantime. */
const MIN_CHECKS = 3;
/** Seconds between checks of a refreshed consumer that does not have the value yet. */
const CHECK_WAITS_SECONDS = [5, 10, 20, 30, 60];
/** Number of checks of a consumer that reads the value by itself, evenly spread over its longest time for that. */
const CHECKS_WHILE_WAITING = 4;
const MIN_PAUSE_MS = MINUTE_MS;

/**
 * Refreshes the consumers that need it, one after the other, and checks that each has the new value. Then sets the end of the
 * overlap period.
 *
 * @throws {ContinueLater} while consumers remain; {RollBack} if a consumer does not get the value.
 */
export async function refreshConsumers(context: StepContext): Promise<void> {
  await ensureConsumers(context);
  const { consumers = [], skipVerification } = context.record;
  const failed = consumers.find(({ state }) => state === "failed");
  if (failed) throw refreshFailed(failed);
  const next = consumers.find((one) => one.included && one.how === "action" && !isSettled(one));
  if (next !== undefined) {
    const problem = await refreshAndCheck(context, next, { withCheck: !skipVerification });
    if (problem === undefined) {
      await saveConsumer(
        context,
        next,
        skipVerification ? { state: "unverified" } : { state: "verified", unclearBefore: undefined },
      );
      throw new ContinueLater(0);
    }
    if (next.unclearBefore) {
      // An unclear consumer makes the rotation fail only if it can use the secret now, so `recheckProblems` reads it again. If the
      // service may not read it, it stays unclear and keeps the old secret from being removed.
      const [updated] = (await recheckProblems(context.deps.consumers, [next])) as [RotationConsumer];
      const { brokenBefore, unclearBefore } = updated;
      if (brokenBefore || unclearBefore) {
        await saveConsumer(context, next, { state: "unverified", brokenBefore, unclearBefore, problem });
        throw new ContinueLater(0);
      }
    }
    await saveConsumer(context, next, { state: "failed", problem });
    throw refreshFailed({ ...next, problem });
  }
  const longestReadMs = Math.max(
    0,
    ...context.record.consumers!.filter((one) => isAwaited(context.record, one)).map(slowestMs),
  );
  const overlapMs = Math.max(context.record.overlapDays * DAY_MS, longestReadMs);
  const overlapEndsAt = new Date(context.now().getTime() + overlapMs).toISOString();
  await context.save(() => ({ overlapEndsAt }));
}

/** Refreshes consumers so that they have the previous value again. @throws {ContinueLater} while consumers remain. */
export async function restoreConsumers(context: StepContext): Promise<void> {
  const toRestore = (context.record.consumers ?? []).filter(isToRestore);
  // A consumer that is `restoring` and has a problem could not be restored. It waits for a user.
  const next = toRestore.find(({ problem, state }) => state !== "restoring" || problem === undefined);
  if (next !== undefined) {
    const restoring: RotationConsumer =
      next.state === "restoring" ? next : { ...next, ...CLEARED_RESULTS, state: "restoring" };
    if (restoring !== next) await saveConsumer(context, next, restoring);
    // Also with `skipVerification`, because a later step of the rollback removes the new client secret.
    const problem = await refreshAndCheck(context, restoring, { withCheck: true });
    // A consumer that could not be refreshed, but never had the new value, counts as restored.
    const keptOldValue = problem !== undefined && (await neverTookNewValue(context, next));
    await saveConsumer(
      context,
      next,
      problem === undefined || keptOldValue ? { state: "restored", problem: undefined } : { problem },
    );
    throw new ContinueLater(0);
  }
  const [unrestored] = toRestore;
  if (unrestored === undefined) return;
  throw new NeedsAttention(
    "consumerNotRestored",
    `${toRestore.map(({ kind, name }) => `${kind} ${name}`).join(", ")} may still hold the new value. ${unrestored.problem}`,
    "The previous value is the current version in the vault, so refresh each consumer to restore it. If that is impossible, for example because a consumer was deleted, finish with force: the consumers are then left as they are.",
  );
}

/** Resets consumers whose restore failed, so that it is tried again. */
export const resetFailedRestores = (consumers: readonly RotationConsumer[]): RotationConsumer[] =>
  consumers.map((one) => (one.state === "restoring" ? { ...one, ...CLEARED_RESULTS } : one));

/** Clears the results of an earlier attempt. `mark` is what its refresh returned, and `looks` the number of its checks. */
const CLEARED_RESULTS = {
  problem: undefined,
  since: undefined,
  actedAt: undefined,
  mark: undefined,
  looks: undefined,
} as const;

const isSettled = ({ state }: RotationConsumer): boolean => state === "verified" || state === "unverified";

/**
 * Returns whether the old value must stay valid until this consumer has had its longest time to read the new one. For a client
 * secret also excluded consumers count, because they fail without the old secret.
 */
const isAwaited = (record: RotationRecord, { state, included, how, brokenBefore }: RotationConsumer): boolean =>
  state !== "verified" && how !== "willBreak" && !brokenBefore && (included || !isVaultSecret(record));

const slowestMs = ({ slowestSeconds }: RotationConsumer): number => slowestSeconds * SECOND_MS;

const refreshFailed = ({ kind, name, problem = "" }: RotationConsumer): RollBack =>
  new RollBack(
    "consumerFailed",
    `${kind} ${name} did not take the new value. ${problem}`,
    "Check why, then start a new rotation.",
  );

/** Finds the consumers if an earlier release of the service created the rotation, which stored no consumers in the plan. */
async function ensureConsumers(context: StepContext): Promise<void> {
  if (context.record.consumers !== undefined) return;
  const { consumers, coverage } = await context.deps.consumers.findConsumers(placesToRead(context.record));
  await context.save(() => ({
    consumers: consumers.map((one) => toRotationConsumer(one, one.how !== "willBreak")),
    coverage,
  }));
}

/** Stores the progress of a consumer. */
const saveConsumer = (context: StepContext, one: RotationConsumer, change: Partial<RotationConsumer>): Promise<void> =>
  context.save(({ consumers = [] }) => ({
    consumers: consumers.map((other) => (consumerKey(other) === consumerKey(one) ? { ...other, ...change } : other)),
  }));

/**
 * Refreshes a consumer and checks that it has the expected version. The first call refreshes it and stores `actedAt`. Each
 * further call makes one check and counts it in `looks`. `touchedAt` stays from the first refresh, also in a rollback.
 *
 * @returns Undefined if the consumer has the version, otherwise the reason why not.
 * @throws {ContinueLater} while the consumer may still take the version.
 * @throws {CloudFailure} if a transient failure occurs before the consumer's time is over.
 */
async function refreshAndCheck(
  context: StepContext,
  consumer: RotationConsumer,
  { withCheck }: { withCheck: boolean },
): Promise<string | undefined> {
  const since = consumer.since ?? context.now().toISOString();
  const isLate = context.now().getTime() - Date.parse(since) > VERIFIED_WITHIN_MS;
  try {
    if (consumer.actedAt === undefined) {
      await saveConsumer(context, consumer, {
        since,
        touchedAt: consumer.touchedAt ?? since,
        ...(consumer.state === "waiting" && { state: "acting" }),
      });
      const { changedMeanwhile, mark } = await refresh(context, consumer);
      await saveConsumer(context, consumer, {
        mark,
        actedAt: context.now().toISOString(),
        ...(consumer.state !== "restoring" && { state: "acted" }),
      });
      if (changedMeanwhile.length > 0) throw consumerChangedFailure(consumer, changedMeanwhile);
      if (withCheck) throw new ContinueLater(0);
      return undefined;
    }
    const { holds, problem } = await checkConsumer(context, consumer);
    const checksBefore = consumer.looks ?? 0;
    await saveConsumer(context, consumer, { holds, looks: checksBefore + 1 });
    if (holds === "new" || holds === "gone") return undefined;
    if (isLate && checksBefore + 1 >= MIN_CHECKS) {
      const minutes = VERIFIED_WITHIN_MS / MINUTE_MS;
      return problem ?? `The consumer did not hold the value within ${minutes} minutes after its refresh.`;
    }
  } catch (error) {
    if (error instanceof RollBack) return error.message;
    if (!(error instanceof CloudFailure)) throw error;
    // A refresh that was rejected has changed nothing, so the consumer does not count as touched.
    if (consumer.actedAt === undefined && !error.unclear)
      await saveConsumer(context, consumer, { touchedAt: consumer.touchedAt });
    if (isTransientFailure(error) && !isLate) throw error;
    return `${error.message} ${error.remedy}`;
  }
  throw new ContinueLater(CHECK_WAITS_SECONDS[Math.min(consumer.looks ?? 0, CHECK_WAITS_SECONDS.length - 1)]!);
}

/** Refreshes a consumer, with an audit entry because a refresh restarts some consumers. */
async function refresh(context: StepContext, consumer: RotationConsumer): Promise<RefreshResult> {
  const { id, kind, vaultName, secretName, state } = consumer;
  const expected = expectedVersionOf(context, consumer);
  if (expected === undefined) throw new Error(`${id} uses no secret that this rotation wrote.`);
  const { value } = expected;
  const later = await laterVersionOf(context, publicationOf(context.record, consumer), expected.version);
  const version = later ?? expected.version;
  const details = { consumer: id, kind, vaultName, secretName, version, back: state === "restoring" };
  const restart = context.record.restartApps ?? true;
  return await auditedEffect(
    context,
    "rotation.consumerRefreshed",
    details,
    () => context.withHeartbeat(() => context.deps.consumers.refresh(consumer, { version, value, restart })),
    ({ changedMeanwhile }) => (changedMeanwhile.length > 0 ? { changedMeanwhile } : {}),
  );
}

const consumerChangedFailure = ({ kind, name }: RotationConsumer, members: readonly string[]): NeedsAttention =>
  new NeedsAttention(
    "consumerChangedMeanwhile",
    `Another writer changed ${members.join(", ")} of ${kind} ${name} at the same time, and that change may be lost.`,
    "Check these properties and restore what was lost.",
  );

/** Returns whether the consumer certainly does not have the new value, so that it need not be restored. */
async function neverTookNewValue(context: StepContext, consumer: RotationConsumer): Promise<boolean> {
  if (consumer.copy) return consumer.touchedAt === undefined;
  const publication = publicationOf(context.record, consumer);
  if (publication?.writtenVersion === undefined) return false;
  try {
    const since = new Date(publication.writtenAt ?? context.record.createdAt);
    // Without `mark`, which a refresh returned, the check compares the version itself.
    const withoutMark = { ...consumer, mark: undefined };
    const { holds } = await context.deps.consumers.check(withoutMark, publication.writtenVersion, since);
    if (holds !== "old") return holds === "gone";
    // A delayed write can have added another version with the new value, which the consumer may have.
    const versions = await openVault(context, publication).versions(publication.secretName);
    return !versions.some(
      ({ version, tags }) =>
        version !== publication.writtenVersion && tags["rotation-id"] === context.record.rotationId,
    );
  } catch (error) {
    if (error instanceof CloudFailure && !isTransientFailure(error)) return false;
    throw error;
  }
}

/**
 * Checks the consumers that read the new value by themselves and whose next check is due.
 *
 * @returns Seconds until the next check; undefined if there is none.
 */
export async function checkWaitingConsumers(context: StepContext): Promise<number | undefined> {
  const now = context.now().getTime();
  const waiting = () =>
    (context.record.consumers ?? []).filter(
      ({ state, looks = 0 }) => state === "waiting" && looks < CHECKS_WHILE_WAITING,
    );
  const due = waiting().filter((one) => nextCheckTime(context.record, one) <= now);
  for (const one of due) {
    const checkResult = await checkConsumer(context, one).catch((error: unknown) => {
      if (error instanceof CloudFailure)
        return { holds: "unknown" as const, problem: `${error.message} ${error.remedy}` };
      throw error;
    });
    await saveConsumer(context, one, { ...afterCheck(one, checkResult), looks: (one.looks ?? 0) + 1 });
  }
  const next = Math.min(...waiting().map((one) => nextCheckTime(context.record, one)));
  return Number.isFinite(next) ? Math.max(1, Math.ceil((next - now) / SECOND_MS)) : undefined;
}

/** Returns when a consumer that reads the value by itself is checked next, in milliseconds since 1970. */
function nextCheckTime(record: RotationRecord, consumer: RotationConsumer): number {
  const publication = publicationOf(record, consumer);
  const pause = Math.max(MIN_PAUSE_MS, slowestMs(consumer) / CHECKS_WHILE_WAITING);
  return Date.parse(publication?.writtenAt ?? record.createdAt) + pause * ((consumer.looks ?? 0) + 1);
}

/**
 * Returns the names of consumers that may have the new value although their place has the previous one again: consumers that
 * can't be checked, consumers that were left unchanged, and consumers that did not have the previous value after their longest
 * time.
 *
 * @throws {ContinueLater} while a consumer still has time.
 */
export async function consumersOfNewValue(context: StepContext): Promise<string[]> {
  const written = new Set(
    context.record.publications.filter(({ writtenAt }) => writtenAt !== undefined).map((one) => placeOf(one)),
  );
  // A rotation of an earlier release may not have stored its consumers.
  const { consumers: stored } = context.record;
  const all =
    stored === undefined
      ? (await currentConsumers(context)).consumers
      : await recheckProblems(context.deps.consumers, stored);
  const isLeft = ({ state }: RotationConsumer) => state === "left";
  const toCheck = all.filter(
    (one) =>
      !isLeft(one) &&
      !one.brokenBefore &&
      one.state !== "restored" &&
      one.how !== "willBreak" &&
      written.has(placeOf(one)),
  );
  const mayHaveNewValue = all.filter(isLeft);
  let waitMs = 0;
  // In a rollback the expected version is the previous one, so `holds: "new"` means that the consumer has the previous value.
  for (const one of await checkConsumers(context, toCheck)) {
    if (one.how !== "blind" && (one.holds === "new" || one.holds === "gone" || (await neverTookNewValue(context, one))))
      continue;
    const publication = publicationOf(context.record, one);
    const mustHaveReadAt = Date.parse(publication?.restoredAt ?? context.record.createdAt) + slowestMs(one);
    // No wait helps for a `blind` consumer, because no API shows its value.
    const timeLeftMs = one.how === "blind" ? 0 : mustHaveReadAt - context.now().getTime();
    const pauseMs = Math.max(MIN_PAUSE_MS, slowestMs(one) / CHECKS_WHILE_WAITING);
    if (timeLeftMs > 0) waitMs = Math.max(waitMs, Math.min(timeLeftMs, pauseMs));
    else mayHaveNewValue.push(one);
  }
  if (waitMs > 0) throw new ContinueLater(Math.ceil(waitMs / SECOND_MS));
  return mayHaveNewValue.map(({ kind, name }) => `${kind} ${name}`);
}
