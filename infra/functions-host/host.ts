import { join, resolve } from "node:path";
import { type AppFunction, indexFunctions, isTrigger } from "./app-functions.ts";
import { createExecutor } from "./executor.ts";
import { installCore } from "./functions-core.ts";
import { adminRoute, diagnosticsRoute, recordModules } from "./host-routes.ts";
import { createHttpHandler, HTTP_RESPONSE_TIMEOUT_MS, listen } from "./http.ts";
import { describeError, loadApp } from "./load-app.ts";
import { createLog } from "./log.ts";
import { pause } from "./pause.ts";
import { RECEIVE_LEASE_SECONDS, startQueues } from "./queues.ts";
import { applyLocalSettings, applyPlatformSettings, type Environment, hostId, readHostJson } from "./settings.ts";
import { createTimerLease } from "./timer-lease.ts";
import { createTimerStatusStore } from "./timer-status.ts";
import { startTimers } from "./timers.ts";

/**
 * Time for running invocations to finish after `stop` is called. The platform waits for minutes, which is too long on a
 * developer's machine.
 */
const STOP_TIMEOUT_MS = 5_000;
/**
 * Delay until the queue and timer listeners start. On the platform they run in another process. Here their libraries load in
 * the app's process and would delay the first request.
 */
const LISTENER_DELAY_SECONDS = 0.3;
/**
 * Lifetime of a timer's lease, which lets only one host run the timer: the values of the platform
 * (`SingletonOptions.ListenerLockPeriod`).
 */
const TIMER_LEASE_SECONDS = { Development: 15, Production: 60 };
/**
 * Time after which a host without the lease tries again. The platform's value is one minute
 * (`SingletonOptions.ListenerLockRecoveryPollingInterval`). In Development a shorter time suits the shorter lease.
 */
const LEASE_POLLING_MS = { Development: 5_000, Production: 60_000 };

export interface HostOptions {
  /** Folder that contains package.json and host.json. */
  app: string;
  /** Port. 0 for any free port. */
  port: number;
  environment?: Environment;
  /** Seconds for which a received queue message stays invisible unless renewed. Default: the platform's 600. */
  messageLeaseSeconds?: number;
  /** Seconds of a timer's lease. Default: the platform's values, 15 in Development and 60 in Production. */
  timerLeaseSeconds?: number;
  /** False: timers run only on request (`host-routes.ts`). */
  schedulesEnabled?: boolean;
  /** Seconds until the listeners of queues and timers start. Default: 0.3. */
  listenerDelaySeconds?: number;
  /** Seconds until an HTTP caller gets a 504. Default: the platform's 230. */
  responseTimeoutSeconds?: number;
  /** Folder of the timers' status files. Default: `.local/host` in the app folder. */
  dataFolder?: string;
  /** Logs only warnings and errors. */
  quiet?: boolean;
  /** Logs to this file instead of standard output. */
  logFile?: string;
  /** Enables the diagnostic routes (`host-routes.ts`). */
  inspect?: boolean;
}

/** A running host. */
export interface Host {
  port: number;
  /** Functions that run. Omits functions with an error, such as an invalid route. */
  functions: { name: string; trigger: string; route?: string; methods?: string[] }[];
  /** Accepts no more work, waits a few seconds for running invocations, and runs the appTerminate hooks. */
  stop(): Promise<void>;
}

/**
 * Runs a built Azure Functions app (v4 programming model, Node) as the platform does. A process can run only one host, because
 * the app and its `@azure/functions` keep the state of their first load.
 * @throws Error with the reason why the app can't run: an invalid setting, an error while loading, or no functions.
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
  // Listens before the app is loaded, so that a request in the meantime gets a 503, and because the app needs the port.
  const server = await listen(options.port, log);
  applyPlatformSettings(app, server.port, environment);

  const loadedModules = options.inspect === true ? recordModules(app) : undefined;
  const core = installCore(log);
  await loadApp(app);
  await core.finishStart(app);
  const functions = indexFunctions(core, log);
  if (functions.length === 0) throw new Error(`no functions found in ${app}`);

  const executor = createExecutor(core, hostJson.functionTimeout, log);
  const functionsWithTrigger = (kind: "http" | "timer" | "queue") =>
    functions.filter(({ trigger }) => isTrigger(trigger, kind));
  const stopping = new AbortController();
  const listenerDelay = pause((options.listenerDelaySeconds ?? LISTENER_DELAY_SECONDS) * 1000, stopping.signal);
  const queues = startQueues(functionsWithTrigger("queue"), {
    startDelay: listenerDelay,
    settings: hostJson.queues,
    leaseSeconds: options.messageLeaseSeconds ?? RECEIVE_LEASE_SECONDS,
    executor,
    log,
  });
  const leaseSeconds = options.timerLeaseSeconds ?? TIMER_LEASE_SECONDS[environment];
  const timers = startTimers(functionsWithTrigger("timer"), {
    startDelay: listenerDelay,
    schedulesEnabled: options.schedulesEnabled ?? true,
    store: createTimerStatusStore(options.dataFolder ?? join(app, ".local", "host"), hostId(app)),
    lease: createTimerLease(process.env.AzureWebJobsStorage, hostId(app), leaseSeconds),
    leaseSeconds,
    leasePollingMs: Math.min(LEASE_POLLING_MS[environment], leaseSeconds * 1000),
    executor,
    log,
  });

  const listeners = { functions, timers, queues };
  const { handler, served } = createHttpHandler(functionsWithTrigger("http"), {
    hostJson,
    executor,
    log,
    hostRoutes: [
      adminRoute(listeners),
      ...(loadedModules === undefined ? [] : [diagnosticsRoute(listeners, loadedModules)]),
    ],
    responseTimeoutMs: (options.responseTimeoutSeconds ?? HTTP_RESPONSE_TIMEOUT_MS / 1000) * 1000,
  });
  server.serve(handler);
  log("information", "Host.Startup", `Host started with ${functions.length} functions on port ${server.port}`);

  const stop = async () => {
    log("information", "Host", "Stopping");
    stopping.abort();
    const finished = Promise.all([server.drain(), queues.stop(), timers.stop(), executor.waitUntilIdle()]);
    let stopTimer: NodeJS.Timeout | undefined;
    const finishedInTime = await Promise.race([
      finished.then(() => true),
      new Promise<false>((expire) => {
        stopTimer = setTimeout(() => expire(false), STOP_TIMEOUT_MS);
      }),
    ]);
    clearTimeout(stopTimer);
    if (!finishedInTime) log("warning", "Host", `Some work was still running after ${STOP_TIMEOUT_MS / 1000} s`);
    server.close();
    try {
      await core.terminate();
    } catch (error) {
      log("error", "Host", `An appTerminate hook failed: ${describeError(error)}`);
    }
    await closeLog();
  };
  const servedNames = new Set(served.map(({ name }) => name));
  return {
    port: server.port,
    functions: functions.filter((each) => isServed(each, servedNames)).map(describeFunction),
    stop,
  };
}

function isServed({ name, trigger }: AppFunction, served: Set<string>): boolean {
  return !isTrigger(trigger, "http") || served.has(name);
}

function describeFunction({ name, trigger }: AppFunction): Host["functions"][number] {
  if (!isTrigger(trigger, "http")) return { name, trigger: trigger.type };
  const { route, methods } = trigger as { route?: string; methods?: string[] };
  return {
    name,
    trigger: trigger.type,
    route: route || name,
    ...(methods !== undefined && { methods }),
  };
}
