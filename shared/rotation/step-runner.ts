import { CloudFailure } from "../platform/azure/failure.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { RowChanged, StorageCorrupt } from "../platform/storage/tables.ts";
import { HOUR_MS, SECOND_MS } from "../platform/time.ts";
import { LEASE_MS } from "./directory-lease.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { isTransientFailure } from "./problems.ts";
import {
  isOver,
  isVaultSecret,
  ROTATION_QUEUE,
  type RotationFailure,
  type RotationRecord,
  type StepName,
} from "./rotation.ts";
import { replacementUnfinished, unfinishedRunOf } from "./secretless-run.ts";
import { createStepContext, type StepContext, type StepDependencies } from "./step-context.ts";
import { ContinueLater, LeaseLost, NeedsAttention, RollBack } from "./step-errors.ts";
import { publishNext } from "./steps/publish.ts";
import { refreshConsumers, restoreConsumers } from "./steps/refresh-consumers.ts";
import { deleteLeftovers, retireOldCredential, waitForOverlap } from "./steps/retire-old-secret.ts";
import { removeNew, restorePlaces } from "./steps/roll-back.ts";
import { updateInventory } from "./steps/update-inventory.ts";
import { canRollBack, finishStep, nextStep, requestAttention, startRollback, startStep } from "./transitions.ts";

/** Longest delay of a queue message. For longer waits no message is sent, and the timer continues the rotation. */
const LONGEST_MESSAGE_WAIT_MS = HOUR_MS;
/** Number of consecutive transient failures (about an hour with their pauses) after which the step fails permanently. */
const MAX_FAILURES = 10;
const FIRST_PAUSE_SECONDS = 10;
const LONGEST_PAUSE_SECONDS = 600;

/** The function of each step. */
const STEP_FUNCTIONS: Record<StepName, (context: StepContext) => Promise<void>> = {
  async makeRoom(context) {
    await requireNoReplacement(context);
    await issuerOf(context.record).makeRoom?.(context);
  },
  async create(context) {
    await requireNoReplacement(context);
    await issuerOf(context.record).create(context);
  },
  prove: (context) => issuerOf(context.record).prove(context),
  publish: publishNext,
  verify: refreshConsumers,
  overlap: waitForOverlap,
  revoke: retireOldCredential,
  putBack: restorePlaces,
  restore: restoreConsumers,
  removeNew,
  async cleanUp(context) {
    const { record } = context;
    if (record.ending === undefined && !isVaultSecret(record)) await issuerOf(record).recordPlaces(context);
    await deleteLeftovers(context);
  },
};

/**
 * A run that replaces a client secret and a rotation of the application can be stored at the same time. Each looks for the other before
 * its first change, so that at least one of them ends.
 *
 * @throws {RollBack} replacementUnfinished
 */
async function requireNoReplacement({ deps, record: { appId } }: StepContext): Promise<void> {
  const runId = appId === undefined ? undefined : await unfinishedRunOf(deps.tables, appId);
  if (runId === undefined) return;
  throw new RollBack("replacementUnfinished", replacementUnfinished(runId), "Then start another rotation.");
}

/** Runs the steps of rotations. Each queue message runs one step of one rotation. */
export interface StepRunner {
  /** Runs the due step of a rotation. Safe to repeat and to run concurrently: the lease permits one worker at a time. */
  runDueStep(rotationId: string, requestId: string): Promise<void>;
  /** Enqueues the next step for `dueAt`. If that is more than an hour ahead, the timer enqueues it. */
  scheduleNext(record: Pick<RotationRecord, "rotationId" | "dueAt">): Promise<void>;
  /** Handler of the poison queue: marks the rotation as needing the attention of a user. */
  giveUp(rotationId: string): Promise<void>;
}

export function createStepRunner(deps: StepDependencies, queues: Queues): StepRunner {
  const { rows, clock, randomness, log } = deps;

  const send = (rotationId: string, delayMs: number): Promise<void> =>
    queues.send(ROTATION_QUEUE, { rotationId }, { delaySeconds: Math.max(0, Math.ceil(delayMs / SECOND_MS)) });

  async function scheduleNext({ rotationId, dueAt }: Pick<RotationRecord, "rotationId" | "dueAt">): Promise<void> {
    const wait = Date.parse(dueAt) - clock.now().getTime();
    if (wait <= LONGEST_MESSAGE_WAIT_MS) await send(rotationId, wait);
  }

  /**
   * Replaces a message that arrived before the rotation can continue by a delayed one, the follow-up. All such messages of a rotation
   * share one follow-up, so that duplicates don't multiply.
   */
  async function sendFollowUp(record: RotationRecord, delayMs: number): Promise<void> {
    if (delayMs > LONGEST_MESSAGE_WAIT_MS) return;
    if (!(await rows.claimFollowUp(record, new Date(clock.now().getTime() + delayMs)))) return;
    try {
      await send(record.rotationId, delayMs);
    } catch (error) {
      await rows.releaseFollowUp(record);
      throw error;
    }
  }

  /**
   * Requests that the inventory reads what a step changed. Called after the work of the step and before the step is stored as done,
   * so that a crash loses no request.
   *
   * If a row of the inventory can't be read, the rotation continues without the request. The repair of the row can take long, and
   * the next discovery or scan reads the change anyway.
   *
   * @throws {ContinueLater} if the request fails otherwise. The step then runs again and finds its work done. This does not count as
   * a failure of the step.
   */
  async function requestInventoryUpdate(context: StepContext, name: StepName): Promise<void> {
    try {
      await updateInventory(deps.inventory, context.record, name);
    } catch (error) {
      if (error instanceof StorageCorrupt) return;
      log.warn("The inventory could not be asked to follow a rotation. The step is repeated.", {
        rotationId: context.record.rotationId,
        step: name,
        reason: error instanceof Error ? error.message : "",
      });
      throw new ContinueLater(FIRST_PAUSE_SECONDS);
    }
  }

  /** Runs a leased step, stores how it ended, and schedules the next one. */
  async function run(context: StepContext, name: StepName): Promise<void> {
    const dueIn = (seconds: number) => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();
    // `working` is the ID of the worker that has the lease. Each save below also ends this worker's lease.
    const releasedLease = { working: undefined, failures: 0 };
    try {
      await STEP_FUNCTIONS[name](context);
      await requestInventoryUpdate(context, name);
      await context.save((record) => ({ ...releasedLease, ...finishStep(record, name, clock.now()), dueAt: dueIn(0) }));
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      if (error instanceof ContinueLater) {
        await context.save((record) => {
          // Shortens the wait if a user finished, cancelled or confirmed a place in the meantime.
          const isUserWaiting =
            record.finish !== undefined ||
            (record.placeConfirmedAt !== undefined && name === "overlap") ||
            (record.cancel !== undefined && record.ending === undefined);
          const seconds = isUserWaiting ? Math.min(error.seconds, FIRST_PAUSE_SECONDS) : error.seconds;
          return { ...releasedLease, dueAt: dueIn(seconds) };
        });
      } else if (error instanceof RollBack && context.record.ending === undefined) {
        await context.save((record) => ({
          ...releasedLease,
          ...startRollback(record, name, error.failure, clock.now()),
          dueAt: dueIn(0),
        }));
      } else if (error instanceof NeedsAttention || error instanceof RollBack) {
        await context.save((record) => ({
          ...releasedLease,
          ...requestAttention(record, name, error.failure, clock.now()),
        }));
      } else await handleFailure(context, name, error);
    }
    await scheduleNext(context.record);
  }

  /** Handles a failure of the cloud or of this service: retry later, roll back, or request attention. */
  async function handleFailure(context: StepContext, name: StepName, error: unknown): Promise<void> {
    const now = clock.now();
    const failure = failureOf(error);
    const { failures, ending } = context.record;
    // Unexpected errors are retried too.
    const mayPass = !(error instanceof CloudFailure) || isTransientFailure(error);
    if (mayPass && failures + 1 < MAX_FAILURES) {
      // At least the wait that the cloud service asked for (`Retry-After`).
      const minimumPause = error instanceof CloudFailure ? (error.retryAfterSeconds ?? 0) : 0;
      const pause = Math.max(minimumPause, Math.min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** failures));
      const dueAt = new Date(now.getTime() + pause * SECOND_MS).toISOString();
      await context.save(({ steps }) => ({
        working: undefined,
        failures: failures + 1,
        steps: steps.map((step) => (step.name === name ? { ...step, failure } : step)),
        dueAt,
      }));
    } else {
      const canStartRollback = ending === undefined && canRollBack(name);
      const endStep = canStartRollback ? startRollback : requestAttention;
      await context.save((record) => ({ working: undefined, failures: 0, ...endStep(record, name, failure, now) }));
    }
    // Other errors are bugs or storage failures. They are thrown, so that the Functions host logs them and redelivers the
    // message.
    if (!(error instanceof CloudFailure || error instanceof Problem)) throw error;
  }

  return {
    scheduleNext,

    async runDueStep(rotationId, requestId) {
      const rotation = await rows.getWithAge(rotationId);
      if (rotation === undefined || isOver(rotation.row.status) || rotation.row.status === "needsAttention") return;
      const { row, ageMs } = rotation;
      if (row.working !== undefined && ageMs < LEASE_MS) return await sendFollowUp(row, LEASE_MS - ageMs + SECOND_MS);
      const msUntilDue = Date.parse(row.dueAt) - clock.now().getTime();
      if (msUntilDue > 0) return await sendFollowUp(row, msUntilDue);
      const workerId = randomness.ulid(clock.now());
      const caller: Caller = { actor: "system", requestId };
      try {
        const leased = await rows.save(row, { ...row, ...startStep(row, clock.now()), working: workerId });
        log.info("A rotation continues", { rotationId, status: leased.status, step: nextStep(leased) });
        await run(createStepContext(deps, leased, workerId, caller), nextStep(leased));
      } catch (error) {
        if (error instanceof LeaseLost) return;
        // Another worker or a user changed the rotation between the read and the lease. A new message reads it again.
        if (!(error instanceof RowChanged)) throw error;
        await send(rotationId, SECOND_MS);
      }
    },

    async giveUp(rotationId) {
      const row = await rows.get(rotationId);
      if (row === undefined || isOver(row.status) || row.status === "needsAttention") return;
      await rows.save(row, {
        ...row,
        ...requestAttention(row, nextStep(row), failureOf(undefined), clock.now()),
        working: undefined,
      });
    },
  };
}

function failureOf(error: unknown): RotationFailure {
  if (error instanceof CloudFailure) return { code: error.code, message: error.message, remedy: error.remedy };
  if (error instanceof Problem)
    return { code: error.code, message: error.message, remedy: "Fix what the message names, then retry the rotation." };
  return {
    code: "internal",
    message: "The service failed repeatedly at this step.",
    remedy: "Find the errors in the service's log by this rotation's ID. Report them if their cause is unclear.",
  };
}
