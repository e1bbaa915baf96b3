import { CloudFailure } from "../../platform/azure/failure.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import type { Acted } from "../consumer.ts";
import { entered } from "../effect.ts";
import { keyOf, planned, readBy } from "../plan-consumers.ts";
import { isPassing } from "../problems.ts";
import { placeOf } from "../publications.ts";
import { isToRestore, isVaultSecret, type RotationConsumer, type RotationRecord } from "../rotation.ts";
import { GoBack, Later, NeedsPerson } from "../stop.ts";
import type { Turn } from "../turn.ts";
import { publicationOf, wantedOf } from "../wanted.ts";
import { knownConsumers, looked, seen, sightOf } from "./sights.ts";

/**
 * A refreshed consumer must hold the new value within this time. Otherwise the rotation rolls back. Part of the documented
 * behavior.
 */
const VERIFIED_WITHIN_MS = 5 * MINUTE_MS;
/** Minimum number of checks, even if the service was down in the meantime. */
const LEAST_LOOKS = 3;
/** Seconds between checks of a consumer that does not hold the value yet. */
const LOOK_WAITS = [5, 10, 20, 30, 60];
/** Number of checks of a consumer that takes the value without help, evenly spread over its slowest time. */
const LOOKS_WHILE_WAITING = 4;
const LEAST_PAUSE_MS = MINUTE_MS;

/**
 * Refreshes the consumers that need it, one after the other, and checks that each holds the new value. Then sets the end of the
 * overlap period. @throws {Later} while consumers remain; {GoBack} if a consumer does not take the value.
 */
export async function verify(turn: Turn): Promise<void> {
  await askedFor(turn);
  const { consumers = [], skipVerification } = turn.record;
  const failed = consumers.find(({ state }) => state === "failed");
  if (failed) throw notTaken(failed);
  const next = consumers.find((one) => one.included && one.how === "action" && !isSettled(one));
  if (next !== undefined) {
    const problem = await bring(turn, next, { looks: !skipVerification });
    if (problem === undefined) {
      await note(turn, next, { state: skipVerification ? "unverified" : "verified" });
      throw new Later(0);
    }
    await note(turn, next, { state: "failed", problem });
    throw notTaken({ ...next, problem });
  }
  const slowest = Math.max(0, ...turn.record.consumers!.filter((one) => isAwaited(turn.record, one)).map(slowestMs));
  const lastsMs = Math.max(turn.record.overlapDays * DAY_MS, slowest);
  const overlapEndsAt = new Date(turn.now().getTime() + lastsMs).toISOString();
  await turn.save(() => ({ overlapEndsAt }));
}

/** Refreshes consumers so that they take the previous value again. @throws {Later} while consumers remain. */
export async function restore(turn: Turn): Promise<void> {
  const left = (turn.record.consumers ?? []).filter(isToRestore);
  const next = left.find(({ problem, state }) => state !== "restoring" || problem === undefined);
  if (next !== undefined) {
    const one: RotationConsumer = next.state === "restoring" ? next : { ...next, ...AGAIN, state: "restoring" };
    if (one !== next) await note(turn, next, one);
    const problem = await bring(turn, one, { looks: true });
    const untouched = problem !== undefined && (await tookNothing(turn, next));
    await note(
      turn,
      next,
      problem === undefined || untouched ? { state: "restored", problem: undefined } : { problem },
    );
    throw new Later(0);
  }
  const [stuck] = left;
  if (stuck === undefined) return;
  throw new NeedsPerson(
    "consumerNotRestored",
    `${left.map(({ kind, name }) => `${kind} ${name}`).join(", ")} may still hold the new value. ${stuck.problem}`,
    "The previous value is the current version in the vault, so refresh each consumer to restore it. If that is impossible, for example because a consumer was deleted, finish with force: the consumers are then left as they are.",
  );
}

/** Resets consumers whose restore failed, so that it is tried again. */
export const triedAgain = (consumers: readonly RotationConsumer[]): RotationConsumer[] =>
  consumers.map((one) => (one.state === "restoring" ? { ...one, ...AGAIN } : one));

/** Clears the results of an earlier attempt. */
const AGAIN = {
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

const notTaken = ({ kind, name, problem = "" }: RotationConsumer): GoBack =>
  new GoBack(
    "consumerFailed",
    `${kind} ${name} did not take the new value. ${problem}`,
    "Check why, then start a new rotation.",
  );

/** Finds the consumers if the rotation was created by an earlier version, which stored none in the plan. */
async function askedFor(turn: Turn): Promise<void> {
  if (turn.record.consumers !== undefined) return;
  const { consumers, coverage } = await turn.world.consumers.of(readBy(turn.record));
  await turn.save(() => ({ consumers: consumers.map((one) => planned(one, one.how !== "willBreak")), coverage }));
}

/** Stores the progress of a consumer. */
const note = (turn: Turn, one: RotationConsumer, change: Partial<RotationConsumer>): Promise<void> =>
  turn.save(({ consumers = [] }) => ({
    consumers: consumers.map((other) => (keyOf(other) === keyOf(one) ? { ...other, ...change } : other)),
  }));

/**
 * Refreshes a consumer and checks that it has the expected version.
 *
 * @returns Undefined if the consumer has it, otherwise the reason why not.
 * @throws {Later} while the consumer may still take it; {CloudFailure} that is transient, within the consumer's time.
 */
async function bring(
  turn: Turn,
  consumer: RotationConsumer,
  { looks }: { looks: boolean },
): Promise<string | undefined> {
  const since = consumer.since ?? turn.now().toISOString();
  const late = turn.now().getTime() - Date.parse(since) > VERIFIED_WITHIN_MS;
  try {
    if (consumer.actedAt === undefined) {
      await note(turn, consumer, {
        since,
        touchedAt: consumer.touchedAt ?? since,
        ...(consumer.state === "waiting" && { state: "acting" }),
      });
      const { changedMeanwhile, mark } = await act(turn, consumer);
      await note(turn, consumer, {
        mark,
        actedAt: turn.now().toISOString(),
        ...(consumer.state !== "restoring" && { state: "acted" }),
      });
      if (changedMeanwhile.length > 0) throw changed(consumer, changedMeanwhile);
      if (looks) throw new Later(0);
      return undefined;
    }
    const { holds, problem } = await sightOf(turn, consumer);
    const before = consumer.looks ?? 0;
    await note(turn, consumer, { holds, looks: before + 1 });
    if (holds === "new" || holds === "gone") return undefined;
    if (late && before + 1 >= LEAST_LOOKS) {
      const minutes = VERIFIED_WITHIN_MS / MINUTE_MS;
      return problem ?? `The consumer did not hold the value within ${minutes} minutes after its refresh.`;
    }
  } catch (error) {
    if (error instanceof GoBack) return error.message;
    if (!(error instanceof CloudFailure)) throw error;
    // A rejected refresh has changed nothing.
    if (consumer.actedAt === undefined && !error.unclear) await note(turn, consumer, { touchedAt: consumer.touchedAt });
    if (isPassing(error) && !late) throw error;
    return `${error.message} ${error.remedy}`;
  }
  throw new Later(LOOK_WAITS[Math.min(consumer.looks ?? 0, LOOK_WAITS.length - 1)]!);
}

/** Audited, because a refresh restarts some consumers. */
async function act(turn: Turn, consumer: RotationConsumer): Promise<Acted> {
  const { id, kind, vaultName, secretName, state } = consumer;
  const wanted = wantedOf(turn, consumer);
  if (wanted === undefined) throw new Error(`${id} uses nothing that was written.`);
  const { version, value } = wanted;
  const details = { consumer: id, kind, vaultName, secretName, version, back: state === "restoring" };
  const restart = turn.record.restartApps ?? true;
  return await entered(
    turn,
    "rotation.consumerRefreshed",
    details,
    () => turn.keeping(() => turn.world.consumers.act(consumer, { version, value, restart })),
    ({ changedMeanwhile }) => (changedMeanwhile.length > 0 ? { changedMeanwhile } : {}),
  );
}

const changed = ({ kind, name }: RotationConsumer, members: readonly string[]): NeedsPerson =>
  new NeedsPerson(
    "consumerChangedMeanwhile",
    `Another writer changed ${members.join(", ")} of ${kind} ${name} at the same time, and that change may be lost.`,
    "Check these properties and restore what was lost.",
  );

/** Returns whether a consumer that could not be restored never took the new value. */
async function tookNothing(turn: Turn, consumer: RotationConsumer): Promise<boolean> {
  if (consumer.copy) return consumer.touchedAt === undefined;
  const publication = publicationOf(turn.record, consumer);
  if (publication?.writtenVersion === undefined) return false;
  try {
    const since = new Date(publication.writtenAt ?? turn.record.createdAt);
    const unmarked = { ...consumer, mark: undefined };
    const { holds } = await turn.world.consumers.look(unmarked, publication.writtenVersion, since);
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
export async function lookAtWaiting(turn: Turn): Promise<number | undefined> {
  const now = turn.now().getTime();
  const waiting = () =>
    (turn.record.consumers ?? []).filter(({ state, looks = 0 }) => state === "waiting" && looks < LOOKS_WHILE_WAITING);
  const due = waiting().filter((one) => nextLook(turn.record, one) <= now);
  for (const one of due) {
    const sight = await sightOf(turn, one).catch((error: unknown) => {
      if (error instanceof CloudFailure)
        return { holds: "unknown" as const, problem: `${error.message} ${error.remedy}` };
      throw error;
    });
    await note(turn, one, { ...seen(one, sight), looks: (one.looks ?? 0) + 1 });
  }
  const next = Math.min(...waiting().map((one) => nextLook(turn.record, one)));
  return Number.isFinite(next) ? Math.max(1, Math.ceil((next - now) / SECOND_MS)) : undefined;
}

function nextLook(record: RotationRecord, consumer: RotationConsumer): number {
  const publication = publicationOf(record, consumer);
  const pause = Math.max(LEAST_PAUSE_MS, slowestMs(consumer) / LOOKS_WHILE_WAITING);
  return Date.parse(publication?.writtenAt ?? record.createdAt) + pause * ((consumer.looks ?? 0) + 1);
}

/**
 * Returns the names of consumers that may have the new value although their place has the previous one again: consumers that
 * can't be checked, consumers that were left as they are, and consumers that did not show the previous value within their
 * slowest time.
 *
 * @throws {Later} while a consumer still has time.
 */
export async function usersOfNew(turn: Turn): Promise<string[]> {
  const written = new Set(
    turn.record.publications.filter(({ writtenAt }) => writtenAt !== undefined).map((one) => placeOf(one)),
  );
  // A rotation of an earlier version may not have stored its consumers.
  const all = turn.record.consumers ?? (await knownConsumers(turn));
  const isLeft = ({ state }: RotationConsumer) => state === "left";
  const open = all.filter(
    (one) => !isLeft(one) && one.state !== "restored" && one.how !== "willBreak" && written.has(placeOf(one)),
  );
  const users = all.filter(isLeft);
  let wait = 0;
  for (const one of await looked(turn, open)) {
    if (one.how !== "blind" && (one.holds === "new" || one.holds === "gone" || (await tookNothing(turn, one))))
      continue;
    const publication = publicationOf(turn.record, one);
    const until = Date.parse(publication?.restoredAt ?? turn.record.createdAt) + slowestMs(one);
    const left = one.how === "blind" ? 0 : until - turn.now().getTime();
    if (left > 0) wait = Math.max(wait, Math.min(left, Math.max(LEAST_PAUSE_MS, slowestMs(one) / LOOKS_WHILE_WAITING)));
    else users.push(one);
  }
  if (wait > 0) throw new Later(Math.ceil(wait / SECOND_MS));
  return users.map(({ kind, name }) => `${kind} ${name}`);
}
