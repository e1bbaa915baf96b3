// Command that runs a built Azure Functions app. See HELP.

import { resolve } from "node:path";
import { commandLine, exitWithUsageError } from "../build/command-line.ts";
import { type HostOptions, startHost } from "./host.ts";
import type { Environment } from "./settings.ts";

const HELP = `npm run host -- --app DIR [--port N] [options]

Runs a built Azure Functions app on this machine as the platform does.

  --app DIR                  folder that contains package.json and host.json (required)
  --port N                   HTTP port, 0 for any free port (default 7071)
  --environment NAME         Development (default) or Production
  --data DIR                 folder of the timers' status files (default: .local/host in the app's folder)
  --lease SECONDS            visibility timeout of received queue messages (default 600)
  --timer-lease SECONDS      lifetime of a timer's lease that is not renewed (default 15, Production 60)
  --listeners-after SECONDS  delay of the queue and timer listeners (default 0.3)
  --answer-limit SECONDS     response timeout of HTTP functions (default 230)
  --quiet                    log only warnings and errors
  --log-file FILE            log to this file instead of standard output
  --ready-json               print {"port":7071,"functions":[...]} on standard output when ready
  --no-schedules             run timers only on request
  --inspect-modules          enable GET /__host/modules (loaded modules) and POST /__host/timers/{name} (run a timer)`;

const { values } = commandLine(HELP, {
  options: {
    app: { type: "string" },
    port: { type: "string", default: "7071" },
    environment: { type: "string", default: "Development" },
    data: { type: "string" },
    lease: { type: "string" },
    "timer-lease": { type: "string" },
    "listeners-after": { type: "string" },
    "answer-limit": { type: "string" },
    quiet: { type: "boolean", default: false },
    "log-file": { type: "string" },
    "ready-json": { type: "boolean", default: false },
    "no-schedules": { type: "boolean", default: false },
    "inspect-modules": { type: "boolean", default: false },
  },
});

/** Returns the number of an option. Undefined if the option is missing and has no default here: the host then uses its own. */
function number(name: "port" | "lease" | "timer-lease" | "listeners-after" | "answer-limit"): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!(value >= 0)) exitWithUsageError(`--${name} must be a number that is not negative`);
  return value;
}

function fail(reason: string): never {
  console.error(reason);
  process.exit(1);
}

if (values.app === undefined) exitWithUsageError("The option --app DIR is required");
if (values.environment !== "Development" && values.environment !== "Production")
  exitWithUsageError("--environment must be Development or Production");

// The platform restarts the worker after these errors. Here the caller must restart the host.
process.on("uncaughtException", (error) =>
  fail(`The app threw an error outside of an invocation: ${error?.stack ?? error}`),
);

const messageLeaseSeconds = number("lease");
const timerLeaseSeconds = number("timer-lease");
const listenerDelaySeconds = number("listeners-after");
const responseTimeoutSeconds = number("answer-limit");
const app = resolve(values.app);
const options: HostOptions = {
  app,
  port: number("port")!,
  environment: values.environment as Environment,
  quiet: values.quiet,
  schedulesEnabled: !values["no-schedules"],
  inspect: values["inspect-modules"],
  ...(values.data !== undefined && { dataFolder: resolve(values.data) }),
  ...(values["log-file"] !== undefined && { logFile: resolve(values["log-file"]) }),
  ...(messageLeaseSeconds !== undefined && { messageLeaseSeconds }),
  ...(timerLeaseSeconds !== undefined && { timerLeaseSeconds }),
  ...(listenerDelaySeconds !== undefined && { listenerDelaySeconds }),
  ...(responseTimeoutSeconds !== undefined && { responseTimeoutSeconds }),
};
// The working directory of the worker is the app's folder.
process.chdir(app);
const host = await startHost(options).catch((error: Error) => fail(`The app could not be started: ${error.message}`));

let stopping = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    if (stopping) process.exit(1);
    stopping = true;
    host.stop().then(
      () => process.exit(0),
      (error: Error) => fail(`The host could not stop: ${error.stack}`),
    );
  });
}
if (values["ready-json"]) console.log(JSON.stringify({ port: host.port, functions: host.functions }));
