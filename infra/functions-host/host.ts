import { join, resolve } from "node:path";
import { type AppFunction, indexFunctions, isTrigger } from "./app-functions.ts";
import { createExecutor } from "./executor.ts";
import { installCore } from "./functions-core.ts";
import { adminRoute, diagnosticsRoute, recordModules } from "./host-routes.ts";
import { createHttpHandler, HTTP_ANSWER_LIMIT_MS, listen } from "./http.ts";
import { describeError, loadApp } from "./load-app.ts";
import { createLog } from "./log.ts";
import { pause } from "./pause.ts";
import { RECEIVE_LEASE_SECONDS, startQueues } from "./queues.ts";
import { applyLocalSettings, applyPlatformSettings, type Environment, hostId, readHostJson } from "./settings.ts";
import { createTimerLease } from "./timer-lease.ts";
import { createTimerStatusStore } from "./timer-status.ts";
import { startTimers } from "./timers.ts";

/**
 * Time for running invocations to finish after a stop. The platform waits for minutes, which is too long on a developer's
 * machine.
 */
const STOP_GRACE_MS = 5_000;
/**
 * Delay of the listeners. On the platform they run in another process. Here their libraries load in the app's process and would
 * delay the first request.
 */
const LISTENERS_AFTER_SECONDS = 0.3;
/** `SingletonOptions.ListenerLockPeriod`, seconds. */
const TIMER_LEASE_SECONDS = { Development: 15, Production: 60 };
/**
 * The platform's `SingletonOptions.ListenerLockRecoveryPollingInterval` is one minute. In Development the lease is shorter than
 * that.
 */
const LEASE_POLLING_MS = { Development: 5_000, Production: 60_000 };

export interface HostOptions {
  /** Folder that contains package.json and host.json. */
  app: string;
  /** Port. 0 for any free port. */
  port: number;
  environment?: Environment;
  /** Seconds for which a received queue message stays invisible unless renewed. Default: the platform's 600. */
  lease?: number;
  /** Seconds of a timer's lease. Default: the platform's values, 15 in Development and 60 in Production. */
  timerLease?: number;
  /** False: timers run only on request (`host-routes.ts`). */
  schedules?: boolean;
  /** Seconds until the listeners of queues and timers start. Default: 0.3. */
  listenersAfter?: number;
  /** Seconds until an HTTP caller gets a 504. Default: the platform's 230. */
  answerLimit?: number;
  /** Folder of the timers' status files. Default: `.local/host` in the app folder. */
  data?: string;
  quiet?: boolean;
  logFile?: string;
  /** Enables the diagnostic routes (`host-routes.ts`). */
  inspect?: boolean;
}

export interface Host {
  port: number;
  functions: { name: string; trigger: string; route?: string; methods?: string[] }[];
  /** Stops: accepts no more work, lets running invocations finish for a few seconds and runs the appTerminate hooks. */
  stop(): Promise<void>;
}

/**
 * Runs a built Azure Functions app (v4 programming model, Node) as the platform does. One host per process, because the app and
 * its `@azure/functions` keep the state of their first load.
 * @throws Error that says why the app can't run: settings, load errors, or no functions.
 */
export async function startHost(options: HostOptions): Promise<Host> {
  const app = resolve(options.app);
  const environment = options.environment ?? "Development";
  await applyLocalSettings(app);
  const hostJson = await readHostJson(app, environment);
  const { log, close: closeLog } = createLog({
    levels: hostJson.logLevels,
    ...(options.quiet !== undefined && { quiet: options.quiet }),
    ...(options.logFile !== undefined && { file: options.logFile }),
  });
  const server = await listen(options.port, log);
  applyPlatformSettings(app, server.port, environment);

  const loaded = options.inspect === true ? recordModules(app) : undefined;
  const core = installCore(log);
  await loadApp(app);
  await core.finishStart(app);
  const functions = indexFunctions(core, log);
  if (functions.length === 0) throw new Error(`no functions found in ${app}`);

  const executor = createExecutor(core, hostJson.functionTimeout, log);
  const ofKind = (kind: "http" | "timer" | "queue") => functions.filter(({ trigger }) => isTrigger(trigger, kind));
  const stopping = new AbortController();
  const begin = pause((options.listenersAfter ?? LISTENERS_AFTER_SECONDS) * 1000, stopping.signal);
  const queues = startQueues(ofKind("queue"), {
    begin,
    settings: hostJson.queues,
    lease: options.lease ?? RECEIVE_LEASE_SECONDS,
    executor,
    log,
  });
  const leaseSeconds = options.timerLease ?? TIMER_LEASE_SECONDS[environment];
  const timers = startTimers(ofKind("timer"), {
    begin,
    schedules: options.schedules ?? true,
    store: createTimerStatusStore(options.data ?? join(app, ".local", "host"), hostId(app)),
    lease: createTimerLease(process.env.AzureWebJobsStorage, hostId(app), leaseSeconds),
    leaseSeconds,
    leasePolling: Math.min(LEASE_POLLING_MS[environment], leaseSeconds * 1000),
    executor,
    log,
  });

  const listeners = { functions, timers, queues };
  const { handler, served } = createHttpHandler(ofKind("http"), {
    hostJson,
    executor,
    log,
    hostRoutes: [adminRoute(listeners), ...(loaded === undefined ? [] : [diagnosticsRoute(listeners, loaded)])],
    answerLimit: (options.answerLimit ?? HTTP_ANSWER_LIMIT_MS / 1000) * 1000,
  });
  server.serve(handler);
  log("information", "Host.Startup", `Host started with ${functions.length} functions on port ${server.port}`);

  const stop = async () => {
    log("information", "Host", "Stopping");
    stopping.abort();
    const finished = Promise.all([server.drain(), queues.stop(), timers.stop(), executor.idle()]);
    let grace: NodeJS.Timeout | undefined;
    const inTime = await Promise.race([
      finished.then(() => true),
      new Promise<false>((expire) => {
        grace = setTimeout(() => expire(false), STOP_GRACE_MS);
      }),
    ]);
    clearTimeout(grace);
    if (!inTime) log("warning", "Host", `Some work was still running after ${STOP_GRACE_MS / 1000} s`);
    server.close();
    try {
      await core.terminate();
    } catch (error) {
      log("error", "Host", `An appTerminate hook failed: ${describeError(error)}`);
    }
    await closeLog();
  };
  const known = new Set(served.map(({ name }) => name));
  return { port: server.port, functions: functions.filter((each) => runs(each, known)).map(describe), stop };
}

function runs({ name, trigger }: AppFunction, served: Set<string>): boolean {
  return !isTrigger(trigger, "http") || served.has(name);
}

function describe({ name, trigger }: AppFunction): Host["functions"][number] {
  if (!isTrigger(trigger, "http")) return { name, trigger: trigger.type };
  const { route, methods } = trigger as { route?: string; methods?: string[] };
  return {
    name,
    trigger: trigger.type,
    route: route || name,
    ...(methods !== undefined && { methods }),
  };
}
