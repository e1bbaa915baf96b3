import { CloudFailure } from "../platform/azure/failure.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { RowChanged, StorageCorrupt } from "../platform/storage/tables.ts";
import { HOUR_MS, SECOND_MS } from "../platform/time.ts";
import { LEASE_MS } from "../rotation/directory-lease.ts";
import { isTransientFailure } from "../rotation/problems.ts";
import {
  FORWARD_STEPS,
  isOver,
  ROLLBACK_STEPS,
  type RunFailure,
  type RunRecord,
  type RunStep,
  SECRETLESS_QUEUE,
  type StepRecord,
} from "../rotation/secretless-run.ts";
import { ContinueLater, LeaseLost, NeedsAttention, RollBack } from "../rotation/step-errors.ts";
import { createRunContext, type RunContext, type RunDependencies } from "./run-context.ts";
import { STEP_FUNCTIONS } from "./run-steps.ts";

/** Longest delay of a queue message. For longer waits no message is sent, and the timer continues the run. */
const LONGEST_MESSAGE_WAIT_MS = HOUR_MS / 2;
/** Number of consecutive transient failures after which the step fails permanently. */
const MAX_FAILURES = 10;
const FIRST_PAUSE_SECONDS = 10;
const LONGEST_PAUSE_SECONDS = 600;
/** Steps before a workload can switch. Their permanent failure undoes the run. */
const REVERSIBLE_STEPS: readonly RunStep[] = ["check", "add", "prove"];

/** Runs the steps of runs. Each queue message runs one step of one run. */
export interface RunRunner {
  /** Runs the due step of a run. Safe to repeat and to run concurrently: the lease permits one worker at a time. */
  runDueStep(runId: string, requestId: string): Promise<void>;
  scheduleNext(record: Pick<RunRecord, "runId" | "dueAt">): Promise<void>;
  /** Sends a message if the run is due and no worker runs it. */
  sendDue(runId: string): Promise<void>;
  /** Handler of the poison queue: the run then needs the attention of a person. */
  giveUp(runId: string): Promise<void>;
}

/** Returns the step that runs next. Undefined if all are done. */
export function nextStep({
  steps,
  status,
  resume,
}: Pick<RunRecord, "steps" | "status" | "resume">): RunStep | undefined {
  const names = status === "rollingBack" || resume === "rollingBack" ? ROLLBACK_STEPS : FORWARD_STEPS;
  return names.find((name) => steps.find((one) => one.name === name)?.status !== "done");
}

const changeStep = (steps: readonly StepRecord[], name: RunStep, change: Partial<StepRecord>): StepRecord[] => {
  const all = steps.some((one) => one.name === name)
    ? steps
    : [...steps, { name, status: "waiting" as const, attempts: 0 }];
  return all.map((one) => (one.name === name ? { ...one, ...change } : one));
};

/** Starts the rollback. Steps that have not ended are skipped. */
export const startRollback = ({ steps }: RunRecord): Partial<RunRecord> => ({
  status: "rollingBack",
  resume: undefined,
  steps: steps.map((one) => (one.status === "done" || one.status === "failed" ? one : { ...one, status: "skipped" })),
});

/** Returns whether a person requested a rollback that has not started. Not while the secret is being removed. */
const isRollbackDue = ({ rollback, status, removingSince }: RunRecord): boolean =>
  rollback !== undefined && status === "running" && removingSince === undefined;

/** Clocks of workers may differ by this time. */
const CLOCK_SLACK_MS = 5 * SECOND_MS;

export function createRunRunner(deps: RunDependencies, queues: Queues): RunRunner {
  const { rows, clock, randomness, log } = deps;
  const instant = () => clock.now().toISOString();
  const dueIn = (seconds: number) => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();
  const send = (runId: string, delayMs: number): Promise<void> =>
    queues.send(SECRETLESS_QUEUE, { runId }, { delaySeconds: Math.max(0, Math.ceil(delayMs / SECOND_MS)) });

  async function scheduleNext({ runId, dueAt }: Pick<RunRecord, "runId" | "dueAt">): Promise<void> {
    const wait = Date.parse(dueAt) - clock.now().getTime();
    if (wait <= LONGEST_MESSAGE_WAIT_MS) await send(runId, wait);
  }

  const attention =
    (name: RunStep, failure: RunFailure) =>
    (record: RunRecord): Partial<RunRecord> => ({
      working: undefined,
      failures: 0,
      status: "needsAttention",
      resume: record.status === "rollingBack" ? "rollingBack" : "running",
      failure,
      steps: changeStep(record.steps, name, { status: "failed", finishedAt: instant(), failure }),
    });

  const undo =
    (name: RunStep, failure: RunFailure) =>
    (record: RunRecord): Partial<RunRecord> => ({
      working: undefined,
      failures: 0,
      failure,
      dueAt: dueIn(0),
      ...startRollback({
        ...record,
        steps: changeStep(record.steps, name, { status: "failed", finishedAt: instant(), failure }),
      }),
    });

  /** A rollback that a person requested while the step ran takes effect instead of a change. */
  const unlessRolledBack =
    (change: (record: RunRecord) => Partial<RunRecord>) =>
    (record: RunRecord): Partial<RunRecord> =>
      isRollbackDue(record)
        ? { working: undefined, failures: 0, dueAt: dueIn(0), ...startRollback(record) }
        : change(record);

  /** Marks a step as done. After the last one, ends the run. */
  function finished(record: RunRecord, name: RunStep): Partial<RunRecord> {
    const steps = changeStep(record.steps, name, { status: "done", finishedAt: instant(), failure: undefined });
    const changes = { working: undefined, failures: 0, dueAt: dueIn(0), steps };
    if (nextStep({ ...record, steps }) !== undefined) return changes;
    const undone = record.rollback === undefined ? "failed" : "rolledBack";
    return { ...changes, status: record.status === "rollingBack" ? undone : "completed", endedAt: instant() };
  }

  /** Runs a leased step, stores how it ended, and schedules the next one. */
  async function run(context: RunContext, name: RunStep): Promise<void> {
    try {
      await STEP_FUNCTIONS[name](context);
      await context.save(unlessRolledBack((record) => finished(record, name)));
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      if (error instanceof ContinueLater) {
        const { seconds } = error;
        await context.save(unlessRolledBack(() => ({ working: undefined, failures: 0, dueAt: dueIn(seconds) })));
      } else if (error instanceof RollBack && context.record.status === "running")
        await context.save(undo(name, error.failure));
      else if (error instanceof NeedsAttention || error instanceof RollBack)
        await context.save(unlessRolledBack(attention(name, error.failure)));
      else await handleFailure(context, name, error);
    }
    if (!isOver(context.record.status) && context.record.status !== "needsAttention")
      await scheduleNext(context.record);
  }

  /** Handles a failure of the cloud or of this service: retry later, undo, or request attention. */
  async function handleFailure(context: RunContext, name: RunStep, error: unknown): Promise<void> {
    const failure = failureOf(error);
    const { failures, status } = context.record;
    const mayPass = !(error instanceof CloudFailure) || isTransientFailure(error);
    if (mayPass && failures + 1 < MAX_FAILURES) {
      const minimum = error instanceof CloudFailure ? (error.retryAfterSeconds ?? 0) : 0;
      const pause = Math.max(minimum, Math.min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** failures));
      await context.save((record) => ({
        working: undefined,
        failures: record.failures + 1,
        dueAt: dueIn(pause),
        steps: changeStep(record.steps, name, { failure }),
      }));
    } else
      await context.save(
        status === "running" && REVERSIBLE_STEPS.includes(name)
          ? undo(name, failure)
          : unlessRolledBack(attention(name, failure)),
      );
    // Other errors are bugs or storage failures. They are thrown, so that the host logs them and redelivers the message.
    if (!(error instanceof CloudFailure || error instanceof Problem)) throw error;
  }

  /** Returns whether a run waits for a worker: its time has come, and no worker has the lease. */
  function isDue({ row, ageMs }: { row: RunRecord; ageMs: number }, slackMs = 0): boolean {
    if (isOver(row.status) || row.status === "needsAttention") return false;
    if (row.working !== undefined && ageMs < LEASE_MS) return false;
    return Date.parse(row.dueAt) <= clock.now().getTime() + slackMs;
  }

  return {
    scheduleNext,

    async sendDue(runId) {
      try {
        const found = await rows.getWithAge(runId);
        if (found === undefined || !isDue(found)) return;
      } catch (error) {
        // The worker fails at the row, and the timer continues the other runs.
        if (!(error instanceof StorageCorrupt)) throw error;
      }
      await send(runId, 0);
    },

    async runDueStep(runId, requestId) {
      const found = await rows.getWithAge(runId);
      if (found === undefined) return;
      // The worker that has the lease sends the next message. If it dies, or this message is early, the timer sends one.
      if (!isDue(found, CLOCK_SLACK_MS)) return;
      const row = isRollbackDue(found.row) ? { ...found.row, ...startRollback(found.row) } : found.row;
      const name = nextStep(row);
      if (name === undefined) return;
      const workerId = randomness.ulid(clock.now());
      const caller: Caller = { actor: "system", requestId };
      const step = row.steps.find((one) => one.name === name);
      try {
        const steps = changeStep(row.steps, name, {
          status: "running",
          attempts: (step?.attempts ?? 0) + 1,
          startedAt: step?.startedAt ?? instant(),
        });
        const leased = await rows.save(found.row, { ...row, steps, working: workerId });
        log.info("A secretless run continues", { runId, step: name });
        await run(createRunContext(deps, leased, workerId, caller), name);
      } catch (error) {
        if (error instanceof LeaseLost) return;
        // Another worker or a person changed the run between the read and the lease.
        if (!(error instanceof RowChanged)) throw error;
        await send(runId, SECOND_MS);
      }
    },

    async giveUp(runId) {
      const row = await rows.get(runId);
      if (row === undefined || isOver(row.status) || row.status === "needsAttention") return;
      await rows.save(row, { ...row, ...attention(nextStep(row) ?? "check", failureOf(undefined))(row) });
    },
  };
}

function failureOf(error: unknown): RunFailure {
  if (error instanceof CloudFailure) return { code: error.code, message: error.message, remedy: error.remedy };
  if (error instanceof Problem)
    return { code: error.code, message: error.message, remedy: "Fix what the message names, then retry the run." };
  return {
    code: "internal",
    message: "The service failed repeatedly at this step.",
    remedy: "Find the errors in the service's log by the ID of this run. Report them if their cause is unclear.",
  };
}
