// Runs the timer functions of an app on their schedules, in one of several hosts at a time.

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

/** `TimerListener.MaxTimerInterval`. setTimeout also has a maximum of 24.8 days. */
const MAX_WAIT_MS = 24 * 24 * 60 * 60_000;

export interface TimerOptions {
  /** Resolves when the listeners start. */
  begin: Promise<void>;
  /** Whether timers fire on their schedule. */
  schedules: boolean;
  store: TimerStatusStore;
  lease: TimerLease;
  /** Seconds of the lease. It is renewed after half this time. */
  leaseSeconds: number;
  /** Milliseconds after which a host without the lease tries again. */
  leasePolling: number;
  executor: Executor;
  log: Log;
}

export interface TimerListeners {
  /** Runs a timer now. Its schedule does not change. */
  fire(name: string): Promise<Outcome>;
  /** Starts no more runs. Resolves when the running ones have finished. */
  stop(): Promise<void>;
}

interface Timer {
  target: AppFunction;
  schedule: Schedule;
  /** Whether the status is stored: not for a schedule that fires more than once a minute. */
  monitored: boolean;
}

export function startTimers(functions: AppFunction[], options: TimerOptions): TimerListeners {
  const stop = new AbortController();
  const listeners: Promise<void>[] = [];
  for (const target of functions) {
    if (target.disabled || !options.schedules) continue;
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

/** Runs the schedule while the host holds the lease, otherwise waits for the lease. */
async function listenTo(timer: Timer, options: TimerOptions, stop: AbortSignal): Promise<void> {
  await options.begin;
  const { name } = timer.target;
  const warn = (what: string) => (error: unknown) => {
    options.log("warning", `Function.${name}`, `${what}: ${(error as Error).message}`);
    return false;
  };
  while (!stop.aborted) {
    const held = await options.lease.acquire(name).catch(warn("Cannot acquire the timer's lease, retrying"));
    if (!held) {
      await pause(options.leasePolling, stop);
      continue;
    }
    const lost = new AbortController();
    const until = AbortSignal.any([stop, lost.signal]);
    const renewal = renew(timer, options, until).finally(() => lost.abort());
    // Only the data folder can fail here. The host releases the lease, and the loop starts again.
    await runSchedule(timer, options, until).catch(async (error: unknown) => {
      options.log(
        "error",
        `Function.${name}`,
        `The timer's status cannot be stored, retrying: ${describeError(error)}`,
      );
      await pause(options.leasePolling, stop);
    });
    lost.abort();
    await renewal;
    await options.lease.release(name).catch(warn("The timer's lease could not be released"));
  }
}

async function renew({ target }: Timer, { lease, leaseSeconds, log }: TimerOptions, until: AbortSignal): Promise<void> {
  for (;;) {
    await pause((leaseSeconds * 1000) / 2, until);
    if (until.aborted) return;
    const held = await lease.acquire(target.name).catch((error: Error) => {
      log("warning", `Function.${target.name}`, `The timer's lease could not be renewed: ${error.message}`);
      return false;
    });
    if (!held) return;
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
  let atOnce = pastDue || target.trigger.runOnStartup === true;

  while (!stop.aborted) {
    const wait = atOnce ? 0 : Date.parse(status.Next) - Date.now();
    if (wait > 0) {
      await pause(Math.min(wait, MAX_WAIT_MS), stop);
      continue;
    }
    const now = new Date();
    await run(target, monitored ? status : undefined, pastDue, options, stop);
    // setTimeout can fire a moment early. The timer must not fire again at its intended time.
    const started = atOnce || now > new Date(status.Next) ? now : new Date(status.Next);
    status = statusAfter(started, schedule);
    pastDue = false;
    atOnce = false;
    if (monitored) await options.store.write(target.name, status);
  }
}

/** Runs the function. An error is logged and does not stop the schedule. */
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
