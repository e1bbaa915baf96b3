import { resolve } from "node:path";
import { commandLine, usedWrong } from "../build/command-line.ts";
import { startHost } from "./host.ts";
import type { Environment } from "./settings.ts";

const HELP = `npm run host -- --app DIR [--port N] [options]

Runs a built Azure Functions app on this machine as the platform does.

  --app DIR            the folder with package.json and host.json
  --port N             0 for any free port (default 7071)
  --environment NAME   Development (default) or Production
  --data DIR           where the timers' status is kept (default: .local/host in the app's folder)
  --lease SECONDS      how long a received queue message stays invisible unless renewed (default 600)
  --timer-lease SECONDS  how long a killed host keeps its timers from others (default 15, Production 60)
  --listeners-after SECONDS  until queues and timers are listened to (default 0.3)
  --answer-limit SECONDS how long an HTTP caller waits at most (default 230)
  --quiet              only warnings and errors
  --log-file FILE      entries go there instead of standard output
  --ready-json         one line of JSON on standard output when ready: {"port":7071,"functions":[...]}
  --no-schedules       no timer runs by itself, only when it is told to
  --inspect-modules    opens GET /__host/modules and POST /__host/timers/{name}`;

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

function number(name: "port" | "lease" | "timer-lease" | "listeners-after" | "answer-limit"): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!(value >= 0)) usedWrong(`--${name} must be a number`);
  return value;
}

function fail(reason: string): never {
  console.error(reason);
  process.exit(1);
}

if (values.app === undefined) usedWrong("Name the app's folder: --app DIR");
if (values.environment !== "Development" && values.environment !== "Production")
  usedWrong("--environment is Development or Production");

// The platform would start the worker anew after these; here whoever started the host has to.
process.on("uncaughtException", (error) => fail(`The app threw outside of any invocation: ${error?.stack ?? error}`));

const lease = number("lease");
const timerLease = number("timer-lease");
const listenersAfter = number("listeners-after");
const answerLimit = number("answer-limit");
const app = resolve(values.app);
const options = {
  app,
  port: number("port")!,
  environment: values.environment as Environment,
  quiet: values.quiet,
  schedules: !values["no-schedules"],
  inspect: values["inspect-modules"],
  ...(values.data !== undefined && { data: resolve(values.data) }),
  ...(values["log-file"] !== undefined && { logFile: resolve(values["log-file"]) }),
  ...(lease !== undefined && { lease }),
  ...(timerLease !== undefined && { timerLease }),
  ...(listenersAfter !== undefined && { listenersAfter }),
  ...(answerLimit !== undefined && { answerLimit }),
};
// The worker's working folder is the app's.
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
