// Runs the timer functions of an app on their schedules. If several hosts run the same app, a lease lets only one of them run a
// timer.

import type { AppFunction } from "./app-functions.ts";
import type { Executor, Outcome } from "./executor.ts";
import { describeError } from "./load-app.ts";
import type { Log } from "./log.ts";
import { pause } from "./pause.ts";
import { runWithRetry } from "./retry.ts";
import { parseSchedule, type Schedule } from "./schedule.ts";
import { resolveSettings } from "./settings.ts";
import type { TimerLease } from "./timer-lease.ts";
import { startStatus, statusAfter, type TimerStatus, type TimerStatusStore } from "./timer-status.ts";

/** Longest wait in one step: the platform's `TimerListener.MaxTimerInterval`. setTimeout also has a maximum, of 24.8 days. */
const MAX_WAIT_MS = 24 * 24 * 60 * 60_000;

export interface TimerOptions {
  /** Resolves when the listeners start. */
  startDelay: Promise<void>;
  /** Whether timers fire on their schedule. If false, they run only on request. */
  schedulesEnabled: boolean;
  store: TimerStatusStore;
  lease: TimerLease;
  /** Lifetime of a lease in seconds. The host renews its lease after half of this time. */
  leaseSeconds: number;
  /** Milliseconds after which a host without the lease tries again. */
  leasePollingMs: number;
  executor: Executor;
  log: Log;
}

export interface TimerListeners {
  /** Runs a timer now. The time of its next scheduled run does not change. */
  fire(name: string): Promise<Outcome>;
  /** Starts no more scheduled runs. Resolves when the running ones have finished. */
  stop(): Promise<void>;
}

interface Timer {
  target: AppFunction;
  schedule: Schedule;
  /** Whether the status is stored: not for a schedule that fires more than once a minute. */
  monitored: boolean;
}

/** Starts one listener per enabled timer function. Logs an error for a function whose schedule is invalid. */
export function startTimers(functions: AppFunction[], options: TimerOptions): TimerListeners {
  const stop = new AbortController();
  const listeners: Promise<void>[] = [];
  for (const target of functions) {
    if (target.disabled || !options.schedulesEnabled) continue;
    try {
      const schedule = parseSchedule(resolveSettings(String(target.trigger.schedule)), new Date());
      const monitored = target.trigger.useMonitor !== false && !schedule.frequent;
      listeners.push(listenTo({ target, schedule, monitored }, options, stop.signal));
    } catch (error) {
      const reason = (error as Error).message;
      options.log("error", "Host.Startup", `The listener for function '${target.name}' was unable to start: ${reason}`);
    }
  }
  return {
    fire: (name) => {
      const target = functions.find((each) => each.name === name)!;
      return run(target, undefined, false, options, stop.signal);
    },
    stop: async () => {
      stop.abort();
      await Promise.all(listeners);
    },
  };
}

/** Waits for the lease, then runs the schedule until the lease is lost. Repeats until stopped. */
async function listenTo(timer: Timer, options: TimerOptions, stop: AbortSignal): Promise<void> {
  await options.startDelay;
  const { name } = timer.target;
  // Returns false, because a lease that could not be requested is not acquired.
  const logWarning = (what: string) => (error: unknown) => {
    options.log("warning", `Function.${name}`, `${what}: ${(error as Error).message}`);
    return false;
  };
  while (!stop.aborted) {
    const acquired = await options.lease.acquire(name).catch(logWarning("Cannot acquire the timer's lease, retrying"));
    if (!acquired) {
      await pause(options.leasePollingMs, stop);
      continue;
    }
    const lost = new AbortController();
    const stopOrLost = AbortSignal.any([stop, lost.signal]);
    const renewal = renewLease(timer, options, stopOrLost).finally(() => lost.abort());
    // An error here is one of the data folder: errors of the function are outcomes. The loop waits for the lease again.
    await runSchedule(timer, options, stopOrLost).catch(async (error: unknown) => {
      options.log(
        "error",
        `Function.${name}`,
        `The timer's status cannot be stored, retrying: ${describeError(error)}`,
      );
      await pause(options.leasePollingMs, stop);
    });
    lost.abort();
    await renewal;
    await options.lease.release(name).catch(logWarning("The timer's lease could not be released"));
  }
}

/** Renews the lease. Returns when it is lost or `until` is aborted. */
async function renewLease(
  { target }: Timer,
  { lease, leaseSeconds, log }: TimerOptions,
  until: AbortSignal,
): Promise<void> {
  for (;;) {
    await pause((leaseSeconds * 1000) / 2, until);
    if (until.aborted) return;
    const acquired = await lease.acquire(target.name).catch((error: Error) => {
      log("warning", `Function.${target.name}`, `The timer's lease could not be renewed: ${error.message}`);
      return false;
    });
    if (!acquired) return;
  }
}

/**
 * Runs the timer, one run at a time. After an overrun, the first missed run starts immediately and the others are skipped,
 * because the next time counts from the start of a run (`TimerListener.InvokeJobFunction`).
 */
async function runSchedule({ target, schedule, monitored }: Timer, options: TimerOptions, stop: AbortSignal) {
  const recorded = monitored ? await options.store.read(target.name) : undefined;
  let { status, pastDue, changed } = startStatus(recorded, schedule, new Date());
  if (changed && monitored) await options.store.write(target.name, status);
  let runNow = pastDue || target.trigger.runOnStartup === true;

  while (!stop.aborted) {
    const wait = runNow ? 0 : Date.parse(status.Next) - Date.now();
    if (wait > 0) {
      await pause(Math.min(wait, MAX_WAIT_MS), stop);
      continue;
    }
    const now = new Date();
    await run(target, monitored ? status : undefined, pastDue, options, stop);
    // setTimeout can fire a moment early. The run then counts as started at its scheduled time, or it would fire again at that
    // time.
    const started = runNow || now > new Date(status.Next) ? now : new Date(status.Next);
    status = statusAfter(started, schedule);
    pastDue = false;
    runNow = false;
    if (monitored) await options.store.write(target.name, status);
  }
}

/** Runs the function with its retry policy. An error of the function is the outcome and does not stop the schedule. */
function run(
  target: AppFunction,
  status: TimerStatus | undefined,
  isPastDue: boolean,
  { executor, log }: TimerOptions,
  stop: AbortSignal,
): Promise<Outcome> {
  if (isPastDue)
    log("information", `Function.${target.name}`, "Trigger details: UnscheduledInvocationReason: IsPastDue");
  const timer = { Schedule: { AdjustForDST: true }, ScheduleStatus: status ?? null, IsPastDue: isPastDue };
  return runWithRetry(target.retry, stop, (retryContext) =>
    executor.run({
      name: target.name,
      reason: `Timer fired at ${new Date().toISOString()}`,
      input: { name: target.trigger.name, data: { json: JSON.stringify(timer) } },
      retryContext,
    }),
  );
}
