import { CloudFailure } from "../platform/azure/failure.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import { NameServersUnreachable } from "../platform/outgoing/name-servers.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { RowChanged, StorageCorrupt } from "../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { AcmeFailure, LONGEST_RATE_LIMIT_SECONDS } from "./acme.ts";
import {
  finishStep,
  giveUpStep,
  isOver,
  nextStep,
  QUEUE,
  type RenewalFailure,
  type RenewalRecord,
  resumeCompleted,
  type StepName,
  startRollback,
  startStep,
} from "./renewal.ts";
import type { RenewalRows } from "./rows.ts";
import {
  ContinueLater,
  RenewalFailed,
  STEP_FUNCTIONS,
  type StepContext,
  type StepDependencies,
  VersionCompleted,
} from "./steps.ts";

/**
 * A worker has the lease of a renewal until it has not written the renewal for this time. It is then considered crashed. One call
 * to the cloud ends within 4 minutes, including its retries (`CALL_LIMITS`).
 */
const LEASE_MS = 5 * MINUTE_MS;
const HEARTBEAT_MS = MINUTE_MS;
/** Longest delay of a queue message. For longer waits no message is sent, and the timer continues the renewal. */
const LONGEST_MESSAGE_WAIT_MS = HOUR_MS;
/** Consecutive transient failures (about an hour with their pauses) after which a step fails. A rollback has no such limit. */
const MAX_FAILURES = 10;
/** Limits of the waits of a step. An authority that is connected to the vault may ask a person, so `issue` may take longer. */
const MAX_STEP_MS = DAY_MS;
const MAX_ISSUE_MS = 7 * DAY_MS;
/** Time after which a step of the rollback, or the clean-up, is given up. */
const MAX_CLEAN_UP_MS = 7 * DAY_MS;
const FIRST_PAUSE_SECONDS = 5;
const LONGEST_PAUSE_SECONDS = 600;

/** Thrown if another worker took over the renewal. The current worker must then stop. */
class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

/** Runs the steps of renewals. Each queue message runs one step of one renewal. */
export interface StepRunner {
  /** Runs the due step of a renewal. Safe to repeat and to run concurrently: the lease permits one worker at a time. */
  runDueStep(runId: string, requestId: string): Promise<void>;
  /** Enqueues the next step for `dueAt`. If that is more than an hour ahead, the timer enqueues it. */
  scheduleNext(record: Pick<RenewalRecord, "runId" | "dueAt">): Promise<void>;
}

export function createStepRunner(
  deps: StepDependencies & { rows: RenewalRows; queues: Queues; ended: (record: RenewalRecord) => Promise<void> },
): StepRunner {
  const { rows, queues, budgets, clock, randomness, log } = deps;

  async function scheduleNext({ runId, dueAt }: Pick<RenewalRecord, "runId" | "dueAt">): Promise<void> {
    const waitMs = Date.parse(dueAt) - clock.now().getTime();
    if (waitMs > LONGEST_MESSAGE_WAIT_MS) return;
    await queues.send(QUEUE, { runId }, { delaySeconds: Math.max(0, Math.ceil(waitMs / SECOND_MS)) });
  }

  const dueIn = (seconds: number): string => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();

  /** Creates the context of one run of a step. `leased`: the renewal as this worker wrote it when it took the lease. */
  function createContext(leased: Row<RenewalRecord>, caller: Caller) {
    let row = leased;
    /** Writes run one after the other, because each needs the ETag of the previous one. */
    let writing: Promise<unknown> = Promise.resolve();
    const save = (change: Partial<RenewalRecord>): Promise<void> => {
      const write = writing.then(async () => {
        try {
          row = await rows.save(row, { ...row, ...change });
        } catch (error) {
          throw error instanceof RowChanged ? new LeaseLost() : error;
        }
      });
      // The caller of this write handles its error. The next write must start all the same.
      writing = write.catch(() => {});
      return write;
    };
    const context: StepContext = {
      deps,
      caller,
      get record() {
        return row;
      },
      save,
    };
    return context;
  }

  /** Runs a leased step, stores how it ended, and schedules the next one. */
  async function run(context: StepContext, name: StepName): Promise<void> {
    const released = { working: undefined, failures: 0 };
    const heartbeat = startHeartbeat(HEARTBEAT_MS, () => context.save({}));
    let unexpected: unknown;
    let change: Partial<RenewalRecord>;
    try {
      await STEP_FUNCTIONS[name](context);
      change = { ...released, ...finishStep(context.record, name, clock.now()), dueAt: dueIn(0) };
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      if (error instanceof ContinueLater) change = afterWait(context.record, name, error);
      else if (error instanceof VersionCompleted)
        change = { ...released, ...resumeCompleted(context.record), dueAt: dueIn(0) };
      else {
        change = await changeAfterFailure(context, name, error);
        if (!isExpected(error)) unexpected = error;
      }
    } finally {
      await heartbeat.stop();
    }
    await context.save(change);
    if (isOver(context.record.status)) await deps.ended(context.record);
    else await scheduleNext(context.record);
    // Bugs and failures of storage are thrown, so that the functions host logs them.
    if (unexpected !== undefined) throw unexpected;
  }

  /** Returns the change after a step that must wait: the next attempt, or the rollback once the step has waited too long. */
  function afterWait(record: RenewalRecord, name: StepName, wait: ContinueLater): Partial<RenewalRecord> {
    const limitMs = name === "issue" ? MAX_ISSUE_MS : MAX_STEP_MS;
    if (record.status === "running" && waitedMs(record, name) > limitMs) {
      const failure = {
        code: "stepTimeout",
        message: `The step ${name} did not end within ${limitMs / HOUR_MS} hours.`,
        remedy:
          "Find out at the authority, or in the vault, what the order waits for, then renew the certificate again.",
      };
      return {
        working: undefined,
        failures: 0,
        ...startRollback(record, name, failure, clock.now()),
        dueAt: dueIn(0),
      };
    }
    return { working: undefined, failures: wait.afterFailure ? record.failures : 0, dueAt: dueIn(wait.seconds) };
  }

  /** Returns the time since a step started first. */
  const waitedMs = ({ steps }: RenewalRecord, name: StepName): number => {
    const startedAt = steps.findLast((step) => step.name === name)?.startedAt;
    return startedAt === undefined ? 0 : clock.now().getTime() - Date.parse(startedAt);
  };

  /** Returns the change after a failure: a later attempt, or the start of the rollback. */
  async function changeAfterFailure(
    context: StepContext,
    name: StepName,
    error: unknown,
  ): Promise<Partial<RenewalRecord>> {
    const { status, failures, authorityId } = context.record;
    const failure = failureOf(error);
    const wait = (error as { retryAfterSeconds?: number }).retryAfterSeconds;
    const isRateLimit = error instanceof AcmeFailure && error.type === "rateLimited";
    if (isRateLimit && authorityId !== undefined && wait !== undefined)
      await budgets.pause(authorityId, new Date(clock.now().getTime() + wait * SECOND_MS));
    const isTooLong = isRateLimit && (wait ?? 0) > LONGEST_RATE_LIMIT_SECONDS;
    const mayPass = isTransient(error) && !isTooLong && failures + 1 < MAX_FAILURES;
    // Once the vault has the version, nothing is rolled back: only records and the inventory are left.
    if (status === "running" && !mayPass && name !== "cleanUp")
      return {
        working: undefined,
        failures: 0,
        ...startRollback(context.record, name, failure, clock.now()),
        dueAt: dueIn(0),
      };
    // Someone must then do what is left. The renewal ends, because no other one of the certificate can start before.
    if (!mayPass && waitedMs(context.record, name) > MAX_CLEAN_UP_MS)
      return {
        working: undefined,
        failures: 0,
        ...giveUpStep(context.record, name, failure, clock.now()),
        dueAt: dueIn(0),
      };
    // Rollback and clean-up are repeated, so that no record and no operation stays.
    const pause = Math.min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** Math.min(failures, MAX_FAILURES));
    return {
      working: undefined,
      failures: failures + 1,
      steps: context.record.steps.map((step) => (step.name === name ? { ...step, failure } : step)),
      dueAt: dueIn(Math.max(pause, wait ?? 0)),
    };
  }

  return {
    scheduleNext,

    async runDueStep(runId, requestId) {
      const stored = await rows.getWithAge(runId);
      if (stored === undefined || isOver(stored.row.status)) return;
      const { row, ageMs } = stored;
      const msUntilDue = Date.parse(row.dueAt) - clock.now().getTime();
      // The timer continues a renewal whose worker crashed. The message of the worker that has the lease continues any other.
      if (row.working !== undefined && ageMs < LEASE_MS) return;
      if (msUntilDue > 0) return await scheduleNext(row);
      const caller: Caller = { actor: "system", requestId };
      const working = randomness.ulid(clock.now());
      try {
        const leased = await rows.save(row, { ...row, ...startStep(row, clock.now()), working });
        const name = nextStep(leased);
        log.info("A renewal of a certificate continues", { runId, status: leased.status, step: name });
        await run(createContext(leased, caller), name);
      } catch (error) {
        // Another worker has the renewal.
        if (error instanceof LeaseLost || error instanceof RowChanged) return;
        throw error;
      }
    },
  };
}

const isExpected = (error: unknown): boolean =>
  error instanceof CloudFailure ||
  error instanceof AcmeFailure ||
  error instanceof RenewalFailed ||
  error instanceof NameServersUnreachable ||
  error instanceof Problem;

function isTransient(error: unknown): boolean {
  if (error instanceof AcmeFailure) return error.isTransient;
  if (error instanceof CloudFailure)
    return ["throttled", "unreachable", "timedOut", "conflict", "concurrency"].includes(error.code);
  if (error instanceof RenewalFailed || error instanceof StorageCorrupt) return false;
  return !(error instanceof Problem) || error.status >= 500;
}

function failureOf(error: unknown): RenewalFailure {
  if (error instanceof RenewalFailed) return error.failure;
  if (error instanceof CloudFailure) return { code: error.code, message: error.message, remedy: error.remedy };
  if (error instanceof AcmeFailure)
    return {
      code: error.type,
      message: error.message,
      remedy: "Fix what the authority names, or wait, then renew the certificate again.",
    };
  if (error instanceof NameServersUnreachable)
    return {
      code: "nameServersUnreachable",
      message: error.message,
      remedy: "Allow DNS to the zone's name servers, or set ACME_DNS_SERVERS.",
    };
  if (error instanceof Problem)
    return { code: error.code, message: error.message, remedy: "Fix what the message names, then renew again." };
  if (error instanceof StorageCorrupt)
    return {
      code: "rowUnreadable",
      message: "A stored row that the renewal needs was changed outside of this service.",
      remedy: "Find the row in the audit log (storage.rowUnreadable), and save the policy or the authority again.",
    };
  return {
    code: "internal",
    message: "The service failed at this step.",
    remedy: "Find the errors in the service's log by the ID of this renewal. Report them if their cause is unclear.",
  };
}
