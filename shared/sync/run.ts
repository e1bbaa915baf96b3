import { randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Tier } from "../platform/http/endpoint.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { type Decision, decide } from "./decide.ts";
import type { SyncHistory } from "./history.ts";
import type { RecordIndexes } from "./indexes.ts";
import { INSPECT_MS, type InspectedRecord, type Plans } from "./inspect.ts";
import { changeLease, type Lease, leaseEnd, mayHaveCreated, takeRecordLease } from "./leases.ts";
import { entryOfUnreadable, failedOutcome, type Outcome, settle } from "./outcomes.ts";
import { markId } from "./providers/ownership-mark.ts";
import { SyncFailure, type Written } from "./providers/provider.ts";
import {
  DueRows,
  dueKey,
  Records,
  RUN_QUEUE,
  SYNC,
  type SyncRecord,
  type SyncRecordRow,
  sourceOf,
  targetOf,
} from "./record.ts";
import { recordTarget, type SyncRecords, type Tampered } from "./records.ts";
import { failOnSide, RunFailed } from "./run-failure.ts";
import type { Sources } from "./sources.ts";

/**
 * Runs of sync records. A run reads the states of source and target, decides what to do (decide.ts), writes the target, and
 * stores the outcome (outcomes.ts). It has the record's lease meanwhile (leases.ts), so that only one worker runs a record.
 */

/** Allows a worker whose clock is slightly behind to run what another worker's clock made due. */
const CLOCK_SLACK_MS = MINUTE_MS;
/** A follow-up that arrives within this time may be the current message, handled by a worker whose clock is slightly behind. */
const FOLLOW_UP_SLACK_MS = 5 * SECOND_MS;
/** Wait after a target was recovered, because its name works only after some seconds. */
const RECOVERY_SECONDS = 20;

/** Services that runs use. */
export interface RunDeps {
  tables: Tables;
  queues: Queues;
  licensing: { tier(): Promise<Tier> };
  audit: Pick<Audit, "append">;
  indexes: RecordIndexes;
  records: SyncRecords;
  plans: Plans;
  sources: Sources;
  history: SyncHistory;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * Runs a record if it is due and PRO is licensed. Writes a source version only once if the target stores the mark of its value.
 * Otherwise a crash can write it twice.
 */
export async function runRecord(recordId: string, deps: RunDeps): Promise<void> {
  const { records, licensing, log } = deps;
  const { row, broken } = await records.readRow(recordId);
  if (broken) return await repeatOnConflict(() => suspendTampered(broken, deps));
  if (!row || !isDue(row, deps)) return;
  // The record stays due. The timer sends its message again once there is a license.
  if ((await licensing.tier()) !== "pro") return log.warn("Sync record skipped: no PRO license", { recordId });
  await underLease(row, (record, lease) => copy(record, lease, deps), deps);
}

/** Handles a message that failed five times: records an internal failure, and the record waits for its schedule. */
export async function failRun(recordId: string, deps: RunDeps): Promise<void> {
  const { row } = await deps.records.readRow(recordId);
  if (!row || !isDue(row, deps)) return;
  const failure = {
    code: "internal",
    side: "service" as const,
    message: "The run failed five times with an internal error.",
    remedy: "GET /system/failed-messages and the log have details. The record runs again by its schedule.",
  };
  const failed = { failure, isTransient: false, retryAfterSeconds: undefined };
  await underLease(row, async (record) => failedOutcome(record, failed, deps.clock.now()), deps);
}

const isDue = ({ nextRunAt }: SyncRecord, { clock }: RunDeps): boolean =>
  nextRunAt !== undefined && Date.parse(nextRunAt) <= clock.now().getTime() + CLOCK_SLACK_MS;

/**
 * Takes the lease of a record. If another worker has the lease, sends a follow-up, a message for a later attempt, and returns
 * undefined. All messages that arrive during the lease send one follow-up together, so that duplicates don't multiply.
 */
async function leaseOrRequeue(record: SyncRecord, deps: RunDeps): Promise<Lease | undefined> {
  const { recordId } = record;
  const taken = await takeRecordLease(deps.tables, recordId, randomUUID());
  if (!("waitMs" in taken)) return taken;
  // The other worker may have crashed. Then this message continues its work.
  await sendFollowUp(record, Math.ceil(taken.waitMs / SECOND_MS) + 1, deps);
  return undefined;
}

/**
 * Sends a follow-up for a record, unless one was sent that has not arrived yet. Before that, writes the follow-up's time to the
 * record's due row, so that no other worker sends one too. If the worker crashes between the two steps, the timer sends a
 * message some minutes after the follow-up's time.
 */
async function sendFollowUp(
  { recordId, nextRunAt }: SyncRecord,
  delaySeconds: number,
  { tables, queues, clock }: RunDeps,
): Promise<void> {
  const send = () => queues.send(RUN_QUEUE, { recordId }, { delaySeconds });
  const now = clock.now().getTime();
  const due = nextRunAt === undefined ? undefined : await tables.get(DueRows, SYNC, dueKey(nextRunAt, recordId));
  // The record changed since it was read. This is too rare for messages to multiply.
  if (!due) return await send();
  if (due.sentAt !== undefined && Date.parse(due.sentAt) > now + FOLLOW_UP_SLACK_MS) return;
  const sentAt = new Date(now + delaySeconds * SECOND_MS).toISOString();
  const claimed = await undefinedIfChanged(tables.replace(DueRows, { ...due, sentAt, followUp: true }));
  if (!claimed) return;
  try {
    await send();
  } catch (error) {
    // Releases the claim, so that the redelivered message sends the follow-up.
    await undefinedIfChanged(tables.replace(DueRows, { ...due, etag: claimed.etag }));
    throw error;
  }
}

/**
 * Runs work under the lease of a record, stores the outcome, and ends the lease. Failures become outcomes. Does nothing if
 * another worker has the lease, or has just run the record.
 */
async function underLease(
  dueRecord: SyncRecordRow,
  work: (record: SyncRecord, lease: Lease) => Promise<Outcome>,
  deps: RunDeps,
): Promise<void> {
  const { recordId } = dueRecord;
  const lease = await leaseOrRequeue(dueRecord, deps);
  if (!lease) return;
  const leaseAtStart = lease.row;
  let isSettled: boolean;
  try {
    // Read again under the lease, because another worker may have stored its outcome since the first read.
    const { row: record } = await deps.records.readRow(recordId);
    // The record was deleted meanwhile, so its lease row goes too.
    if (!record) return void (await deps.indexes.submit([leaseEnd(lease)]));
    if (!isDue(record, deps)) return await changeLease(lease, { type: "released" });
    const outcome = await work(record, lease).catch((error: unknown) => {
      if (!(error instanceof RunFailed)) throw error;
      const failed = failedOutcome(record, error, deps.clock.now());
      // The target may have been created. Then the next run treats it as its own.
      if (mayHaveCreated(leaseAtStart, lease.row, error.unclear)) failed.change.targetOwned = true;
      return failed;
    });
    isSettled = await settle(record, outcome, lease, deps);
  } catch (error) {
    // `aborted`: another worker has taken the lease. Any other error, also a conflict in another row, fails the message, which
    // the queue then redelivers.
    if (!lease.signal.aborted) {
      await undefinedIfChanged(changeLease(lease, { type: "released" }));
      throw error;
    }
    isSettled = false;
  }
  if (!isSettled) deps.log.warn("Another worker has taken over a sync record", { recordId });
}

/**
 * Copies the source of a record to its target, if needed, and returns the outcome. The `mark` of a write names the record and
 * the source version. If the provider can (`service.storesMark`), the target stores the mark's ID (`markId`) beside the value.
 *
 * @throws {RunFailed}; a conflict if another worker has taken the lease
 */
async function copy(record: SyncRecord, lease: Lease, deps: RunDeps): Promise<Outcome> {
  const { plans, audit, clock } = deps;
  const { writing, creating = false } = lease.row;
  const interrupted = writing === undefined ? undefined : { writing, creating };
  // Passed to the calls of the write too, so that a write is not based on older states.
  const signal = AbortSignal.timeout(INSPECT_MS);
  const inspected = await plans.inspect(record, signal);
  const { source, mark, state } = inspected;
  const decision = await failOnSide("target", async () => decide(record, inspected, interrupted));
  const at = clock.now().toISOString();
  const afterCheck = {
    place: inspected.location,
    sourceIdentity: source.vault,
    targetIdentity: inspected.targetVault,
    tiedVersions: source.tiedVersions,
    // Stored only while several source versions were created in the same second: then Key Vault does not say which is current.
    currentVersion: source.tiedVersions && source.version,
    lastCheckedAt: at,
    failure: undefined,
    failedRuns: 0,
  };
  const afterWrite = { targetOwned: true, lastSourceVersion: source.version, targetMark: markId(mark) };

  if (decision.action === "report") {
    // The history gets one entry when the drift is first found, not one for each run.
    const entry = record.state === "drifted" ? undefined : { kind: decision.kind!, sourceVersion: source.version };
    return { change: { ...afterCheck, state: "drifted" }, entry };
  }
  if (decision.undelete) {
    const event = { ...eventOf(record, source.version, decision), type: "syncTarget.recovered" };
    await audited(audit, event, () =>
      plans.onTarget(record, inspected, () => inspected.target.undelete!(record.targetName)),
    );
    return { change: { ...afterCheck, state: "pending" }, againInSeconds: RECOVERY_SECONDS };
  }
  const inSync = { ...afterCheck, ...afterWrite, state: "inSync" as const };
  if (decision.action === "none") {
    if (decision.kind === undefined) {
      return { change: inSync, entry: record.failure && { kind: "recovered", sourceVersion: source.version } };
    }
    // The worker that wrote the target crashed before it stored the outcome.
    await audit.append({ ...eventOf(record, source.version, decision), outcome: "success" });
    const entry = { kind: decision.kind, sourceVersion: source.version, targetVersion: state.version };
    return { change: { ...inSync, lastSyncedAt: at }, entry };
  }
  const event = eventOf(record, source.version, decision);
  const { version } = await audited(audit, event, () => writeTarget(record, inspected, decision, lease, signal, deps));
  const entry = { kind: decision.kind!, sourceVersion: source.version, targetVersion: version };
  return { change: { ...inSync, lastSyncedAt: clock.now().toISOString() }, entry };
}

/** Writes the source's version to the target, or restores it there. */
async function writeTarget(
  record: SyncRecord,
  inspected: InspectedRecord,
  decision: Decision,
  lease: Lease,
  signal: AbortSignal,
  { plans, sources }: RunDeps,
): Promise<Pick<Written, "version">> {
  const { target, mark, source, service } = inspected;
  const { targetName: name } = record;
  const announcement = { writing: source.version, creating: !inspected.state.exists };
  const announce = () => changeLease(lease, { type: "announced", ...announcement });
  let { state } = inspected;
  if (decision.adopt && target.adopt) {
    await announce();
    await plans.onTarget(record, inspected, () => target.adopt!(name, mark, signal));
    // Taking over can change the target's version, which a conditional write compares.
    state = await plans.onTarget(record, inspected, () => target.describe(name, signal));
  }
  if (decision.action === "restore") {
    await announce();
    const restored = await confirmWrite(record, inspected, plans, () =>
      target.restoreVersion!(name, mark, state, signal),
    );
    if (restored) return restored;
    // The target no longer has that version, so the value is written.
  }
  const value = await failOnSide("source", () => sources.read(record, source.version, signal));
  const bytes = Buffer.byteLength(value);
  if (bytes > service.maxBytes) throw new RunFailed("target", tooLarge(bytes, service.maxBytes));
  // Renewed last before the write, so that all calls of the write end within the lease.
  await announce();
  return (await confirmWrite(record, inspected, plans, () => target.put(name, value, mark, state, signal))) ?? {};
}

/** Runs a write. After an unclear answer it reads the target to see whether the write happened. */
async function confirmWrite(
  record: SyncRecord,
  inspected: InspectedRecord,
  plans: Plans,
  write: () => Promise<Written | undefined>,
): Promise<Pick<Written, "version"> | undefined> {
  try {
    return await plans.onTarget(record, inspected, write);
  } catch (error) {
    if (!(error instanceof RunFailed && error.unclear && inspected.service.storesMark)) throw error;
    const now = await inspected.target
      .describe(record.targetName, AbortSignal.timeout(INSPECT_MS))
      .catch((failure: unknown) => {
        // The result stays unclear. The next run reads the target again.
        if (failure instanceof SyncFailure) return undefined;
        throw failure;
      });
    if (now?.currentMarkId === markId(inspected.mark)) return { version: now.version };
    throw error;
  }
}

function eventOf(record: SyncRecord, sourceVersion: string, { action, why }: Decision) {
  const { recordId } = record;
  const details = { source: sourceOf(record), target: targetOf(record), sourceVersion, action, why };
  const caller = { actor: "system", requestId: recordId };
  return { type: "syncTarget.written", caller, target: recordTarget(recordId), details };
}

const tooLarge = (bytes: number, most: number) =>
  new SyncFailure("tooLarge", `The value has ${bytes} bytes; the target accepts at most ${most}.`, {
    remedy: "Shorten the secret, or choose a target with a higher limit.",
  });

/**
 * Handles a tampered record: writes one history entry, and lets the timer check the record once a day. The record continues
 * when its row is valid again, for example after the signing keys are back.
 */
async function suspendTampered({ recordId }: Tampered, deps: RunDeps): Promise<void> {
  const { tables, indexes, clock } = deps;
  const due = await indexes.dueRowsOf(recordId);
  // One due row remains, marked with `aside`. The program that changed the record may have added others.
  const remaining = due.find(({ aside }) => aside) ?? due[0];
  if (!remaining) return;
  const superfluous = due.filter((row) => row !== remaining);
  if (superfluous.length > 0) {
    const removals = superfluous.map(({ rowKey }) => remove(DueRows, rowKey));
    await tables.write(DueRows.table, SYNC, removals);
  }
  if (remaining.aside) return;
  const failure = {
    code: "tampered",
    side: "service" as const,
    message: "The record's row was changed by another program and is not used.",
    remedy: "Find out who can write this service's tables; then delete the record and create it again.",
    since: clock.now().toISOString(),
  };
  const entryOperations = await entryOfUnreadable(recordId, { kind: "failed", failure }, deps);
  const checkedDaily = { aside: true, sentAt: clock.now().toISOString() };
  await tables.transaction(Records.table, SYNC, [
    merge(DueRows, remaining.rowKey, checkedDaily, remaining.etag),
    ...entryOperations,
  ]);
}
