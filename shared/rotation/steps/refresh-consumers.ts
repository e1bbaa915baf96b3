import { CloudFailure } from "../../platform/azure/failure.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { auditedEffect } from "../audited-effect.ts";
import type { RefreshResult } from "../consumer.ts";
import { expectedVersionOf, publicationOf } from "../expected-version.ts";
import { keyOf, placesToRead, toRotationConsumer } from "../plan-consumers.ts";
import { isPassing } from "../problems.ts";
import { placeOf } from "../publications.ts";
import { isToRestore, isVaultSecret, type RotationConsumer, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../step-errors.ts";
import { afterCheck, checkConsumer, checkConsumers, currentConsumers } from "./check-consumers.ts";

/**
 * A refreshed consumer must hold the new value within this time. Otherwise the rotation rolls back. Part of the documented
 * behavior.
 */
const VERIFIED_WITHIN_MS = 5 * MINUTE_MS;
/** Minimum number of checks, even if the service was down in the meantime. */
const MIN_CHECKS = 3;
/** Seconds between checks of a consumer that does not hold the value yet. */
const CHECK_WAITS_SECONDS = [5, 10, 20, 30, 60];
/** Number of checks of a consumer that takes the value without help, evenly spread over its slowest time. */
const CHECKS_WHILE_WAITING = 4;
const MIN_PAUSE_MS = MINUTE_MS;

/**
 * Refreshes the consumers that need it, one after the other, and checks that each holds the new value. Then sets the end of the
 * overlap period. @throws {Later} while consumers remain; {GoBack} if a consumer does not take the value.
 */
export async function refreshConsumers(context: StepContext): Promise<void> {
  await ensureConsumers(context);
  const { consumers = [], skipVerification } = context.record;
  const failed = consumers.find(({ state }) => state === "failed");
  if (failed) throw refreshFailed(failed);
  const next = consumers.find((one) => one.included && one.how === "action" && !isSettled(one));
  if (next !== undefined) {
    const problem = await refreshAndCheck(context, next, { looks: !skipVerification });
    if (problem === undefined) {
      await saveConsumer(context, next, { state: skipVerification ? "unverified" : "verified" });
      throw new ContinueLater(0);
    }
    await saveConsumer(context, next, { state: "failed", problem });
    throw refreshFailed({ ...next, problem });
  }
  const slowest = Math.max(
    0,
    ...context.record.consumers!.filter((one) => isAwaited(context.record, one)).map(slowestMs),
  );
  const lastsMs = Math.max(context.record.overlapDays * DAY_MS, slowest);
  const overlapEndsAt = new Date(context.now().getTime() + lastsMs).toISOString();
  await context.save(() => ({ overlapEndsAt }));
}

/** Refreshes consumers so that they take the previous value again. @throws {Later} while consumers remain. */
export async function restoreConsumers(context: StepContext): Promise<void> {
  const left = (context.record.consumers ?? []).filter(isToRestore);
  const next = left.find(({ problem, state }) => state !== "restoring" || problem === undefined);
  if (next !== undefined) {
    const one: RotationConsumer = next.state === "restoring" ? next : { ...next, ...CLEARED, state: "restoring" };
    if (one !== next) await saveConsumer(context, next, one);
    const problem = await refreshAndCheck(context, one, { looks: true });
    const untouched = problem !== undefined && (await keptOldValue(context, next));
    await saveConsumer(
      context,
      next,
      problem === undefined || untouched ? { state: "restored", problem: undefined } : { problem },
    );
    throw new ContinueLater(0);
  }
  const [stuck] = left;
  if (stuck === undefined) return;
  throw new NeedsAttention(
    "consumerNotRestored",
    `${left.map(({ kind, name }) => `${kind} ${name}`).join(", ")} may still hold the new value. ${stuck.problem}`,
    "The previous value is the current version in the vault, so refresh each consumer to restore it. If that is impossible, for example because a consumer was deleted, finish with force: the consumers are then left as they are.",
  );
}

/** Resets consumers whose restore failed, so that it is tried again. */
export const resetFailedRestores = (consumers: readonly RotationConsumer[]): RotationConsumer[] =>
  consumers.map((one) => (one.state === "restoring" ? { ...one, ...CLEARED } : one));

/** Clears the results of an earlier attempt. */
const CLEARED = {
  problem: undefined,
  since: undefined,
  actedAt: undefined,
  mark: undefined,
  looks: undefined,
} as const;

const isSettled = ({ state }: RotationConsumer): boolean => state === "verified" || state === "unverified";

/** Returns whether the old value must stay valid until this consumer has had its slowest time. */
const isAwaited = (record: RotationRecord, { state, included, how }: RotationConsumer): boolean =>
  state !== "verified" && how !== "willBreak" && (included || !isVaultSecret(record));

const slowestMs = ({ slowestSeconds }: RotationConsumer): number => slowestSeconds * SECOND_MS;

const refreshFailed = ({ kind, name, problem = "" }: RotationConsumer): RollBack =>
  new RollBack(
    "consumerFailed",
    `${kind} ${name} did not take the new value. ${problem}`,
    "Check why, then start a new rotation.",
  );

/** Finds the consumers if the rotation was created by an earlier version, which stored none in the plan. */
async function ensureConsumers(context: StepContext): Promise<void> {
  if (context.record.consumers !== undefined) return;
  const { consumers, coverage } = await context.deps.consumers.of(placesToRead(context.record));
  await context.save(() => ({
    consumers: consumers.map((one) => toRotationConsumer(one, one.how !== "willBreak")),
    coverage,
  }));
}

/** Stores the progress of a consumer. */
const saveConsumer = (context: StepContext, one: RotationConsumer, change: Partial<RotationConsumer>): Promise<void> =>
  context.save(({ consumers = [] }) => ({
    consumers: consumers.map((other) => (keyOf(other) === keyOf(one) ? { ...other, ...change } : other)),
  }));

/**
 * Refreshes a consumer and checks that it has the expected version.
 *
 * @returns Undefined if the consumer has it, otherwise the reason why not.
 * @throws {Later} while the consumer may still take it; {CloudFailure} that is transient, within the consumer's time.
 */
async function refreshAndCheck(
  context: StepContext,
  consumer: RotationConsumer,
  { looks }: { looks: boolean },
): Promise<string | undefined> {
  const since = consumer.since ?? context.now().toISOString();
  const late = context.now().getTime() - Date.parse(since) > VERIFIED_WITHIN_MS;
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
      if (changedMeanwhile.length > 0) throw changed(consumer, changedMeanwhile);
      if (looks) throw new ContinueLater(0);
      return undefined;
    }
    const { holds, problem } = await checkConsumer(context, consumer);
    const before = consumer.looks ?? 0;
    await saveConsumer(context, consumer, { holds, looks: before + 1 });
    if (holds === "new" || holds === "gone") return undefined;
    if (late && before + 1 >= MIN_CHECKS) {
      const minutes = VERIFIED_WITHIN_MS / MINUTE_MS;
      return problem ?? `The consumer did not hold the value within ${minutes} minutes after its refresh.`;
    }
  } catch (error) {
    if (error instanceof RollBack) return error.message;
    if (!(error instanceof CloudFailure)) throw error;
    // A rejected refresh has changed nothing.
    if (consumer.actedAt === undefined && !error.unclear)
      await saveConsumer(context, consumer, { touchedAt: consumer.touchedAt });
    if (isPassing(error) && !late) throw error;
    return `${error.message} ${error.remedy}`;
  }
  throw new ContinueLater(CHECK_WAITS_SECONDS[Math.min(consumer.looks ?? 0, CHECK_WAITS_SECONDS.length - 1)]!);
}

/** Audited, because a refresh restarts some consumers. */
async function refresh(context: StepContext, consumer: RotationConsumer): Promise<RefreshResult> {
  const { id, kind, vaultName, secretName, state } = consumer;
  const wanted = expectedVersionOf(context, consumer);
  if (wanted === undefined) throw new Error(`${id} uses nothing that was written.`);
  const { version, value } = wanted;
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

const changed = ({ kind, name }: RotationConsumer, members: readonly string[]): NeedsAttention =>
  new NeedsAttention(
    "consumerChangedMeanwhile",
    `Another writer changed ${members.join(", ")} of ${kind} ${name} at the same time, and that change may be lost.`,
    "Check these properties and restore what was lost.",
  );

/** Returns whether a consumer that could not be restored never took the new value. */
async function keptOldValue(context: StepContext, consumer: RotationConsumer): Promise<boolean> {
  if (consumer.copy) return consumer.touchedAt === undefined;
  const publication = publicationOf(context.record, consumer);
  if (publication?.writtenVersion === undefined) return false;
  try {
    const since = new Date(publication.writtenAt ?? context.record.createdAt);
    const unmarked = { ...consumer, mark: undefined };
    const { holds } = await context.deps.consumers.check(unmarked, publication.writtenVersion, since);
    return holds === "old" || holds === "gone";
  } catch (error) {
    if (error instanceof CloudFailure && !isPassing(error)) return false;
    throw error;
  }
}

/**
 * Checks the consumers that take the new value without help and whose next check is due.
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
    const sight = await checkConsumer(context, one).catch((error: unknown) => {
      if (error instanceof CloudFailure)
        return { holds: "unknown" as const, problem: `${error.message} ${error.remedy}` };
      throw error;
    });
    await saveConsumer(context, one, { ...afterCheck(one, sight), looks: (one.looks ?? 0) + 1 });
  }
  const next = Math.min(...waiting().map((one) => nextCheckTime(context.record, one)));
  return Number.isFinite(next) ? Math.max(1, Math.ceil((next - now) / SECOND_MS)) : undefined;
}

function nextCheckTime(record: RotationRecord, consumer: RotationConsumer): number {
  const publication = publicationOf(record, consumer);
  const pause = Math.max(MIN_PAUSE_MS, slowestMs(consumer) / CHECKS_WHILE_WAITING);
  return Date.parse(publication?.writtenAt ?? record.createdAt) + pause * ((consumer.looks ?? 0) + 1);
}

/**
 * Returns the names of consumers that may have the new value although their place has the previous one again: consumers that
 * can't be checked, consumers that were left as they are, and consumers that did not show the previous value within their
 * slowest time.
 *
 * @throws {Later} while a consumer still has time.
 */
export async function consumersOfNewValue(context: StepContext): Promise<string[]> {
  const written = new Set(
    context.record.publications.filter(({ writtenAt }) => writtenAt !== undefined).map((one) => placeOf(one)),
  );
  // A rotation of an earlier version may not have stored its consumers.
  const all = context.record.consumers ?? (await currentConsumers(context));
  const isLeft = ({ state }: RotationConsumer) => state === "left";
  const open = all.filter(
    (one) => !isLeft(one) && one.state !== "restored" && one.how !== "willBreak" && written.has(placeOf(one)),
  );
  const users = all.filter(isLeft);
  let wait = 0;
  for (const one of await checkConsumers(context, open)) {
    if (one.how !== "blind" && (one.holds === "new" || one.holds === "gone" || (await keptOldValue(context, one))))
      continue;
    const publication = publicationOf(context.record, one);
    const until = Date.parse(publication?.restoredAt ?? context.record.createdAt) + slowestMs(one);
    const left = one.how === "blind" ? 0 : until - context.now().getTime();
    if (left > 0) wait = Math.max(wait, Math.min(left, Math.max(MIN_PAUSE_MS, slowestMs(one) / CHECKS_WHILE_WAITING)));
    else users.push(one);
  }
  if (wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
  return users.map(({ kind, name }) => `${kind} ${name}`);
}
