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

/** A consumer that was acted on holds the new value within this time, or everything is put back: the contract's figure. */
const VERIFIED_WITHIN_MS = 5 * MINUTE_MS;
/** Looks that one gets even if the service stood still meanwhile. */
const LEAST_LOOKS = 3;
/** Seconds to the next look while one does not hold it. */
const LOOK_WAITS = [5, 10, 20, 30, 60];
/** Looks at one that takes the value by itself, evenly spread over its slowest time. */
const LOOKS_WHILE_WAITING = 4;
const LEAST_PAUSE_MS = MINUTE_MS;

/**
 * Has those with an action take the new value, one after the other, and sees that they hold it; then sets when the old value
 * need not live any more. @throws {Later} while there are more; {GoBack} when one does not take it.
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

/** Has those that were acted on take the value from before again. @throws {Later} while there are more. */
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
    "The value from before is the current one in the vault, so a refresh of each brings it back. Where that can't be, since one is gone, finish with force: it is then left as it is.",
  );
}

/** Those that could not be brought back are tried again. */
export const triedAgain = (consumers: readonly RotationConsumer[]): RotationConsumer[] =>
  consumers.map((one) => (one.state === "restoring" ? { ...one, ...AGAIN } : one));

/** What an earlier try to bring one to a version left. */
const AGAIN = {
  problem: undefined,
  since: undefined,
  actedAt: undefined,
  mark: undefined,
  looks: undefined,
} as const;

const isSettled = ({ state }: RotationConsumer): boolean => state === "verified" || state === "unverified";

/** Whether the old value must live until one has had the time that it takes by itself. */
const isAwaited = (record: RotationRecord, { state, included, how }: RotationConsumer): boolean =>
  state !== "verified" && how !== "willBreak" && (included || !isVaultSecret(record));

const slowestMs = ({ slowestSeconds }: RotationConsumer): number => slowestSeconds * SECOND_MS;

const notTaken = ({ kind, name, problem = "" }: RotationConsumer): GoBack =>
  new GoBack(
    "consumerFailed",
    `${kind} ${name} did not take the new value. ${problem}`,
    "See why it does not take it, then begin a new rotation.",
  );

/** A rotation of an earlier version knows no consumers yet. */
async function askedFor(turn: Turn): Promise<void> {
  if (turn.record.consumers !== undefined) return;
  const { consumers, coverage } = await turn.world.consumers.of(readBy(turn.record));
  await turn.save(() => ({ consumers: consumers.map((one) => planned(one, one.how !== "willBreak")), coverage }));
}

/** Writes down how far a consumer is. */
const note = (turn: Turn, one: RotationConsumer, change: Partial<RotationConsumer>): Promise<void> =>
  turn.save(({ consumers = [] }) => ({
    consumers: consumers.map((other) => (keyOf(other) === keyOf(one) ? { ...other, ...change } : other)),
  }));

/**
 * Has one take the version that is to be held now, and looks whether it does.
 *
 * @returns Undefined once it holds it, else why it does not.
 * @throws {Later} while it may still come to hold it; {CloudFailure} that may pass within its time.
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
      return problem ?? `It was not seen to hold it within ${minutes} minutes of being told to.`;
    }
  } catch (error) {
    if (error instanceof GoBack) return error.message;
    if (!(error instanceof CloudFailure)) throw error;
    // What was refused has not happened.
    if (consumer.actedAt === undefined && !error.unclear) await note(turn, consumer, { touchedAt: consumer.touchedAt });
    if (isPassing(error) && !late) throw error;
    return `${error.message} ${error.remedy}`;
  }
  throw new Later(LOOK_WAITS[Math.min(consumer.looks ?? 0, LOOK_WAITS.length - 1)]!);
}

/** With its entries in the audit log: a refresh restarts some. */
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
    `Somebody else changed ${members.join(", ")} of ${kind} ${name} in the same moment, and that may be lost.`,
    "Look at it and mend what was lost.",
  );

/** Whether one that can't be brought back has not got the new value either. */
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
 * Looks at those that take the new value by themselves and whose time for a look has come.
 *
 * @returns Seconds until the next one's; undefined when there is none.
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
 * Who may hold the new value although the one from before is back in its place, by name: those whom nobody can see, those
 * that were left as they are, and those that had their slowest time and were not seen to have it back.
 *
 * @throws {Later} while one has still time.
 */
export async function usersOfNew(turn: Turn): Promise<string[]> {
  const written = new Set(
    turn.record.publications.filter(({ writtenAt }) => writtenAt !== undefined).map((one) => placeOf(one)),
  );
  // A rotation of an earlier version may not have asked for them.
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
