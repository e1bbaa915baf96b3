import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { VaultKeysClients } from "../platform/azure/vault-keys.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { HEARTBEAT_LEASE, type LeasedRow, takeLease, type WorkKind } from "../platform/runs/leased-row.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, HOUR_SECONDS, MINUTE_MS, MINUTE_SECONDS, SECOND_MS } from "../platform/time.ts";
import type { KeyConsumerReader } from "./consumers.ts";
import { createVersion } from "./create-version.ts";
import { RunFailed, RunLater } from "./errors.ts";
import {
  ActiveRuns,
  activeKey,
  isOver,
  KEY_ROTATIONS,
  QUEUE,
  type RunFailure,
  type RunRecord,
  Runs,
  runKey,
} from "./run.ts";
import { statusAfterCheck } from "./transitions.ts";

/** First and longest pause after a failed attempt. Each further pause doubles. */
const PAUSE_SECONDS = { first: 15, longest: 10 * MINUTE_SECONDS };
/** Failed attempts, over about two hours, after which a rotation without a new version fails. */
const MAX_FAILURES = 18;
/** Wait before the first check of the consumers, between checks, and between checks of a late rotation. */
const CHECK_SECONDS = { first: MINUTE_SECONDS, waiting: HOUR_SECONDS, late: 6 * HOUR_SECONDS };
/** Time without a completed discovery of dependencies after which a rotation is late. */
const NEVER_SEARCHED_MS = DAY_MS;
/** A longer wait needs no message: the timer continues the run. */
const LONGEST_MESSAGE_WAIT_MS = 15 * MINUTE_MS;

/** A message that arrives within this time before the step is due runs the step. */
const EARLY_MS = 5 * SECOND_MS;

export interface WorkerDeps {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  vaults: VaultKeysClients;
  consumers: KeyConsumerReader;
  /** Called when a version was added, so that the inventory reads the vault again. */
  vaultChanged: (vaultName: string) => Promise<unknown>;
  /** Called when a run ended or became late, so that alerts are evaluated. */
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Runs the steps of rotations of keys. */
export interface Worker {
  /** Sends the message that runs the next step at its time. */
  schedule(run: Pick<RunRecord, "runId" | "dueAt">): Promise<void>;
  /** Runs the due step of a run. Handler of the queue. */
  work(runId: string, caller: Caller): Promise<void>;
  /** Ends a run whose messages failed permanently. A run that already has a new version is continued by the timer. */
  giveUp(runId: string, caller: Caller): Promise<void>;
}

export function createWorker(deps: WorkerDeps): Worker {
  const { tables, queues, audit, clock, randomness, log } = deps;
  const keysOf = (runId: string) => ({ partitionKey: KEY_ROTATIONS, rowKey: runKey(runId) });
  const dueIn = (seconds: number): string => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();

  /** A run is leased while it has a worker. It can be leased when its next step is due. */
  const workKind: WorkKind<RunRecord> = {
    ...HEARTBEAT_LEASE,
    entity: Runs,
    isLeased: ({ status, worker }) => !isOver(status) && worker !== undefined,
    take: (run, { worker, abandoned }) =>
      run === undefined || isOver(run.status) || (run.worker !== undefined && !abandoned)
        ? undefined
        : { ...run, worker },
  };

  async function schedule({ runId, dueAt }: Pick<RunRecord, "runId" | "dueAt">): Promise<void> {
    const wait = Date.parse(dueAt) - clock.now().getTime();
    if (wait > LONGEST_MESSAGE_WAIT_MS) return;
    await queues.send(QUEUE, { runId }, { delaySeconds: Math.max(0, Math.ceil(wait / SECOND_MS)) });
  }

  /** Stores the result of a step, ends the lease, and schedules the next step. */
  async function finishStep(leased: LeasedRow<RunRecord>, change: Partial<RunRecord>): Promise<void> {
    await leased.end((row) => tables.replace(Runs, { ...row, ...change, worker: undefined }));
    await schedule({ ...leased.row, ...change });
  }

  /**
   * Ends a run. The end is first decided (`ending`), then recorded in the audit log under the ID that was stored with the decision,
   * and then stored. After a crash the next worker continues there.
   */
  async function endRun(leased: LeasedRow<RunRecord>, status: "done" | "failed", change: Partial<RunRecord>) {
    await leased.change({ ...change, ending: { status, entryId: randomness.ulid(clock.now()) } });
    await completeEnd(leased);
  }

  async function completeEnd(leased: LeasedRow<RunRecord>): Promise<void> {
    const { runId, ending, vaultName, name, oldVersion, newVersion, failure, requestId } = leased.row;
    const { status, entryId } = ending!;
    const event = {
      id: entryId,
      type: "keyRotation.ended",
      caller: { actor: "system", requestId },
      outcome: status === "done" ? ("success" as const) : ("failure" as const),
      target: { type: "keyRotation", id: runId },
      details: { vaultName, key: name, oldVersion, newVersion, ...(failure && { reason: failure.code }) },
    };
    const storeEntryId = (id: string) => leased.change({ ending: { status, entryId: id } });
    await recordRunEnd(audit, event, { storeEntryId, clock, randomness });
    await leased.end((row) => storeEnd(row, { status, ending: undefined }));
    await deps.ended();
  }

  /** Stores the end of a run and removes the row that names it as the unfinished run of the key. */
  async function storeEnd(row: Row<RunRecord>, change: Partial<RunRecord>): Promise<void> {
    const { rowKey, etag } = row;
    const ended = { ...withoutKeys(row), ...change, worker: undefined, endedAt: clock.now().toISOString() };
    await tables.transaction(Runs.table, KEY_ROTATIONS, [
      replace(Runs, rowKey, ended, etag),
      remove(ActiveRuns, activeKey(row)),
    ]);
  }

  async function runStep(leased: LeasedRow<RunRecord>, caller: Caller): Promise<void> {
    const { row } = leased;
    if (row.ending !== undefined) return await completeEnd(leased);
    const vault = deps.vaults.open({
      name: row.vaultName,
      vaultUri: row.vaultUri,
      subscriptionId: row.subscriptionId,
    });
    if (row.newVersion === undefined) {
      const { version, createdElsewhere } = await createVersion(leased, { vault, audit, caller, clock });
      // Before the step is stored as done, so that a crash loses no request.
      await deps.vaultChanged(row.vaultName);
      return await finishStep(leased, {
        status: "waiting",
        newVersion: version,
        rotatedAt: clock.now().toISOString(),
        ...(createdElsewhere && { createdElsewhere }),
        requestedAt: undefined,
        failures: 0,
        failure: undefined,
        dueAt: dueIn(CHECK_SECONDS.first),
      });
    }
    await checkConsumers(leased, row.newVersion, await currentVersion(vault, row));
  }

  /** Returns the current version of the key, which can be newer than the rotation. Undefined if it can't be read now. */
  async function currentVersion(
    vault: ReturnType<VaultKeysClients["open"]>,
    { name }: RunRecord,
  ): Promise<string | undefined> {
    try {
      return (await vault.current(name))?.version;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      return undefined;
    }
  }

  async function checkConsumers(leased: LeasedRow<RunRecord>, newVersion: string, current: string | undefined) {
    const { row } = leased;
    const now = clock.now();
    const rotatedAt = new Date(row.rotatedAt!);
    // A disabled or deleted newer version can make the old version the current one again. It is no new version.
    const newVersions = [newVersion, ...(current === undefined || current === row.oldVersion ? [] : [current])];
    const expected = { newVersions, rotatedAt, now, known: row.consumers };
    const { consumers, incompleteReason } = await deps.consumers.read(row, expected);
    const status = statusAfterCheck(
      { consumers, incompleteReason },
      now,
      new Date(rotatedAt.getTime() + NEVER_SEARCHED_MS),
    );
    const seen = { consumers, incompleteReason, failures: 0, failure: undefined };
    if (status === "done") return await endRun(leased, "done", seen);
    const becameLate = status === "late" && row.lateSince === undefined;
    await finishStep(leased, {
      ...seen,
      status,
      ...(becameLate && { lateSince: now.toISOString() }),
      ...(status === "waiting" && { lateSince: undefined }),
      dueAt: dueIn(CHECK_SECONDS[status]),
    });
    if (becameLate) await deps.ended();
  }

  /** Stores that an attempt failed, and retries it later. After too many attempts the run fails, unless it has a new version. */
  async function retryLater(leased: LeasedRow<RunRecord>, error: RunLater): Promise<void> {
    const { row } = leased;
    const failures = row.failures + (error.isFailure ? 1 : 0);
    if (failures >= MAX_FAILURES && row.newVersion === undefined)
      return await endRun(leased, "failed", { failures, failure: gaveUp(row, error.failure) });
    // While the outcome of a request is unknown, the versions are compared soon.
    const doubles = error.isFailure && row.requestedAt === undefined;
    const pause = doubles ? Math.min(PAUSE_SECONDS.longest, PAUSE_SECONDS.first * 2 ** row.failures) : 1;
    const dueAt = dueIn(Math.max(error.seconds, pause));
    await finishStep(leased, { failures, ...(error.failure && { failure: error.failure }), dueAt });
  }

  return {
    schedule,

    async work(runId, caller) {
      const run = await tables.get(Runs, KEY_ROTATIONS, runKey(runId));
      if (run === undefined || isOver(run.status)) return;
      // A duplicate of an earlier message ends here. Messages have whole seconds, and clocks differ a little.
      if (Date.parse(run.dueAt) > clock.now().getTime() + EARLY_MS) return;
      const worker = randomness.ulid(clock.now());
      const leased = await takeLease(tables, workKind, keysOf(runId), worker);
      // Another worker has the lease, and schedules the next step. If that worker has crashed, the queue delivers its message again,
      // or the timer sends one. So a message is never replaced, and duplicates don't multiply.
      if (leased === undefined || "waitMs" in leased) return;
      log.info("A rotation of a key continues", { runId, status: leased.row.status });
      try {
        await runStep(leased, caller);
      } catch (error) {
        if (error instanceof RunFailed) await endRun(leased, "failed", { failure: error.failure });
        else if (error instanceof RunLater) await retryLater(leased, error);
        // Another worker, or the next rotation of the key, has the run.
        else if (!isConflict(error)) {
          await leased.end((row) => tables.replace(Runs, { ...row, worker: undefined }));
          throw error;
        }
      }
    },

    async giveUp(runId, caller) {
      const worker = randomness.ulid(clock.now());
      const leased = await takeLease(tables, workKind, keysOf(runId), worker);
      if (leased === undefined || "waitMs" in leased) return;
      log.warn("The messages of a rotation of a key failed", { runId, actor: caller.actor });
      if (leased.row.newVersion === undefined && leased.row.ending === undefined)
        await endRun(leased, "failed", { failure: gaveUp(leased.row, undefined) });
      else await finishStep(leased, { dueAt: dueIn(CHECK_SECONDS.waiting) });
    },
  };
}

/** Returns the failure of a run that never saw a new version, although it may have asked for one. */
const gaveUp = ({ requestedAt }: RunRecord, last: RunFailure | undefined): RunFailure => ({
  code: last?.code ?? "unreachable",
  message: `${last?.message ?? "Key Vault gave no clear answer."}${requestedAt === undefined ? " No version was added." : " A version may have been added nevertheless."}`,
  remedy: `${last?.remedy ?? "Check https://status.azure.com for an outage of Key Vault."} Then start another rotation.`,
});
