import { randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Tier } from "../platform/http/endpoint.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { type Decision, decide } from "./decide.ts";
import type { RecordIndexes } from "./indexes.ts";
import { INSPECT_MS, type InspectedRecord, type Plans } from "./inspect.ts";
import { type Lease, takeLease } from "./leases.ts";
import type { Outcome, Outcomes } from "./outcomes.ts";
import { markId } from "./providers/ownership-mark.ts";
import { SyncFailure, type Written } from "./providers/provider.ts";
import { DueRows, dueKey, Records, RUN_QUEUE, SYNC, type SyncRecord, sourceOf, targetOf } from "./record.ts";
import { recordTarget, type SyncRecords, type Tampered } from "./records.ts";
import { failOnSide, RunFailed } from "./run-failure.ts";
import type { Sources } from "./sources.ts";

/** Allows a worker whose clock is slightly behind to run what another worker's clock made due. */
const CLOCK_SLACK_MS = MINUTE_MS;
/** A follow-up that arrives within this time may be the current message, handled by a worker whose clock is slightly behind. */
const FOLLOW_UP_SLACK_MS = 5 * SECOND_MS;
/** Wait after a target was recovered, because its name works only after some seconds. */
const RECOVERY_SECONDS = 20;

/**
 * Runs sync records: reads the states of source and target, decides what to do, and writes the target. A lease makes sure that
 * only one worker runs a record.
 */
export interface Runs {
  /**
   * Runs a record if it is due and PRO is licensed. Writes a source version once if the provider reports what the target holds.
   * Otherwise a crash can write it twice.
   */
  run(recordId: string): Promise<void>;
  /** Handles a message that failed five times: records an internal failure, and the record waits for its schedule. */
  failRun(recordId: string): Promise<void>;
}

export function createRuns(deps: {
  tables: Tables;
  queues: Queues;
  licensing: { tier(): Promise<Tier> };
  audit: Pick<Audit, "append">;
  indexes: RecordIndexes;
  records: SyncRecords;
  plans: Plans;
  sources: Sources;
  outcomes: Outcomes;
  clock: Clock;
  log: Logger;
}): Runs {
  const { tables, queues, licensing, audit, indexes, records, plans, sources, outcomes, clock, log } = deps;

  const isDue = ({ nextRunAt }: SyncRecord): boolean =>
    nextRunAt !== undefined && Date.parse(nextRunAt) <= clock.now().getTime() + CLOCK_SLACK_MS;

  /** Runs a record under a lease and returns the outcome. @throws {RunFailed}; {LeaseLost} */
  async function work(record: SyncRecord, lease: Lease): Promise<Outcome> {
    const signal = AbortSignal.timeout(INSPECT_MS);
    const inspected = await plans.inspect(record, signal);
    const { source, mark, state } = inspected;
    const decision = await failOnSide("target", async () => decide(record, inspected, lease.interruptedWrite));
    const at = clock.now().toISOString();
    const afterCheck = {
      place: inspected.place,
      sourceIdentity: source.vault,
      targetIdentity: inspected.targetVault,
      tiedVersions: source.tiedVersions,
      // Stored only while several source versions have the same second: then Key Vault does not say which one is current.
      currentVersion: source.tiedVersions && source.version,
      lastCheckedAt: at,
      failure: undefined,
      failedRuns: 0,
    };
    const afterWrite = { targetOwned: true, lastSourceVersion: source.version, targetMark: markId(mark) };

    if (decision.action === "report") {
      // The history gets one entry when drift begins, not one for each run.
      const entry = record.state === "drifted" ? undefined : { kind: decision.kind!, sourceVersion: source.version };
      return { change: { ...afterCheck, state: "drifted" }, entry };
    }
    if (decision.undelete) {
      const event = { ...eventOf(record, source.version, decision), type: "syncTarget.recovered" };
      await audited(audit, event, () => plans.onTarget(inspected, () => inspected.target.undelete!(record.targetName)));
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
    const { version } = await audited(audit, event, () => writeTarget(record, inspected, decision, lease, signal));
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
  ): Promise<Pick<Written, "version">> {
    const { target, mark, source, service } = inspected;
    const { targetName: name } = record;
    const announce = async () => {
      if (!(await lease.announce(source.version, !inspected.state.exists))) throw new LeaseLost();
    };
    let { state } = inspected;
    if (decision.adopt && target.adopt) {
      await announce();
      await plans.onTarget(inspected, () => target.adopt!(name, mark, signal));
      state = await plans.onTarget(inspected, () => target.describe(name, signal));
    }
    if (decision.action === "restore") {
      await announce();
      const restored = await confirmWrite(inspected, name, () => target.restoreVersion!(name, mark, state, signal));
      if (restored) return restored;
    }
    const value = await failOnSide("source", () => sources.read(record, source.version, signal));
    const bytes = Buffer.byteLength(value);
    if (bytes > service.maxBytes) throw new RunFailed("target", tooLarge(bytes, service.maxBytes));
    // Renewed last before the write, so that all calls of the write end within the lease.
    await announce();
    return (await confirmWrite(inspected, name, () => target.put(name, value, mark, state, signal))) ?? {};
  }

  /** Runs a write. After an unclear answer it reads the target to see whether the write happened. */
  async function confirmWrite(
    inspected: InspectedRecord,
    name: string,
    write: () => Promise<Written | undefined>,
  ): Promise<Pick<Written, "version"> | undefined> {
    try {
      return await plans.onTarget(inspected, write);
    } catch (error) {
      if (!(error instanceof RunFailed && error.unclear && inspected.service.marks)) throw error;
      const now = await inspected.target.describe(name, AbortSignal.timeout(INSPECT_MS)).catch((failure: unknown) => {
        // The result stays unclear. The next run reads the target again.
        if (failure instanceof SyncFailure) return undefined;
        throw failure;
      });
      if (now?.holds === markId(inspected.mark)) return { version: now.version };
      throw error;
    }
  }

  /** Runs work under a lease, stores the outcome, and ends the lease. Failures become outcomes. */
  async function underLease(record: SyncRecord, lease: Lease, work: () => Promise<Outcome>): Promise<void> {
    let outcome: Outcome;
    try {
      outcome = await work().catch((error: unknown) => {
        if (!(error instanceof RunFailed)) throw error;
        const failed = outcomes.failed(record, error);
        // The target may have been created. Then the next run treats it as its own.
        if (error.unclear && lease.creating) failed.change.targetOwned = true;
        return failed;
      });
    } catch (error) {
      await lease.release();
      if (!(error instanceof LeaseLost)) throw error;
      log.warn("Another worker has taken over a sync record", { recordId: record.recordId });
      return;
    }
    if (!(await outcomes.settle(record, outcome, lease))) {
      log.warn("Another worker has taken over a sync record", { recordId: record.recordId });
    }
  }

  /**
   * Handles a tampered record: writes one history entry, and lets the timer check the record once a day. The record continues
   * when its row is valid again, for example after the signing keys are back.
   */
  async function suspendTampered({ recordId }: Tampered): Promise<void> {
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
    const entryOperations = await outcomes.entryOfUnreadable(recordId, { kind: "failed", failure });
    const aside = { aside: true, sentAt: clock.now().toISOString() };
    await tables.transaction(Records.table, SYNC, [
      merge(DueRows, remaining.rowKey, aside, remaining.etag),
      ...entryOperations,
    ]);
  }

  /**
   * Takes the lease of a record. If another worker has it, sends a message for a later attempt and returns undefined. All messages
   * that come during the lease send one together, so that duplicates don't multiply.
   */
  async function leaseOrRequeue(record: SyncRecord): Promise<Lease | undefined> {
    const { recordId } = record;
    const taken = await takeLease(tables, recordId, randomUUID());
    if (taken.lease) return taken.lease;
    // The other worker may have crashed. Then this message continues its work.
    const delaySeconds = Math.ceil(taken.waitMs / SECOND_MS) + 1;
    if (await claimFollowUp(record, delaySeconds)) await queues.send(RUN_QUEUE, { recordId }, { delaySeconds });
    return undefined;
  }

  /**
   * Claims the follow-up in the record's due row. Returns false if another message has one that is still to arrive. If the caller
   * crashes before it sends the follow-up, the timer sends a message.
   */
  async function claimFollowUp({ recordId, nextRunAt }: SyncRecord, delaySeconds: number): Promise<boolean> {
    const now = clock.now().getTime();
    const due = nextRunAt === undefined ? undefined : await tables.get(DueRows, SYNC, dueKey(nextRunAt, recordId));
    // The record changed since it was read. This is too rare for messages to multiply.
    if (!due) return true;
    if (due.sentAt !== undefined && Date.parse(due.sentAt) > now + FOLLOW_UP_SLACK_MS) return false;
    try {
      await tables.replace(DueRows, { ...due, sentAt: new Date(now + delaySeconds * SECOND_MS).toISOString() });
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  }

  return {
    async run(recordId) {
      const { row: record, broken } = await records.readRow(recordId);
      if (broken) return await repeatOnConflict(() => suspendTampered(broken));
      if (!record || !isDue(record)) return;
      // The record stays due. The timer sends its message again once there is a license.
      if ((await licensing.tier()) !== "pro") {
        return log.warn("Sync record skipped: no PRO license", { recordId });
      }
      const lease = await leaseOrRequeue(record);
      if (lease) await underLease(record, lease, () => work(record, lease));
    },

    async failRun(recordId) {
      const { row: record } = await records.readRow(recordId);
      const lease = record && isDue(record) ? await leaseOrRequeue(record) : undefined;
      if (!record || !lease) return;
      const failure = {
        code: "internal",
        side: "service" as const,
        message: "The run failed five times with an internal error.",
        remedy: "GET /system/failed-messages and the log have details. The record runs again by its schedule.",
      };
      const failed = outcomes.failed(record, { failure, isTransient: false, retryAfterSeconds: undefined });
      await underLease(record, lease, async () => failed);
    },
  };
}

function eventOf(record: SyncRecord, sourceVersion: string, { action, why }: Decision) {
  const { recordId } = record;
  const details = { source: sourceOf(record), target: targetOf(record), sourceVersion, action, why };
  const caller = { actor: "system", requestId: recordId };
  return { type: "syncTarget.written", caller, target: recordTarget(recordId), details };
}

/** Another worker has taken the lease, so this one must not write anymore. */
class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

const tooLarge = (bytes: number, most: number) =>
  new SyncFailure("tooLarge", `The value has ${bytes} bytes; the target accepts at most ${most}.`, {
    remedy: "Shorten the secret, or choose a target with a higher limit.",
  });
