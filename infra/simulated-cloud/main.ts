// Command that runs the simulated cloud as a process. See HELP.

import { commandLine, exitWithUsageError } from "../build/command-line.ts";

const HELP = `node infra/simulated-cloud/main.ts --data DIR [options]

Runs the simulated cloud until SIGINT or SIGTERM. README.md describes its protocols, its control API and its faults.

  --data DIR         folder that stores the state (required)
  --port N           port of the TLS endpoints (default: the port of the last start, or any free port)
  --control-port N   port of the control API (default: the port of the last start, or any free port)
  --company NAME     acme (default), small, a JSON file, or a size such as vaults=100,secrets=50
  --seed N           seed of the sample data
  --ready-json       print one line of JSON on standard output when ready`;

const { values } = commandLine(HELP, {
  options: {
    data: { type: "string" },
    port: { type: "string" },
    "control-port": { type: "string" },
    company: { type: "string" },
    seed: { type: "string" },
    "ready-json": { type: "boolean", default: false },
  },
});
if (values.data === undefined) exitWithUsageError("The option --data DIR is required");

try {
  const { startCloud } = await import("./cloud.ts");
  const cloud = await startCloud({
    data: values.data,
    ...number("port", values.port),
    ...number("controlPort", values["control-port"]),
    ...number("seed", values.seed),
    ...(values.company !== undefined && { company: values.company }),
  });
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      cloud.stop().then(() => process.exit(0), exitWithError);
    });
  }
  if (values["ready-json"]) {
    const { environment, controlUrl, app, oidc, workspaceIds } = cloud;
    console.log(JSON.stringify({ environment, controlUrl, app, oidc, workspaceIds }));
  } else {
    console.log(`The simulated cloud is running. Control API: ${cloud.controlUrl}`);
  }
} catch (error) {
  exitWithError(error);
}

/** Prints the error and exits with 1. */
function exitWithError(error: unknown): never {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}

/** Parses a numeric option. Returns an object with it, or an empty object if the option is missing. */
function number<N extends string>(name: N, text: string | undefined): Partial<Record<N, number>> {
  if (text === undefined) return {};
  if (!/^\d+$/.test(text)) exitWithUsageError(`--${name} must be a number, not "${text}"`);
  return { [name]: Number(text) } as Record<N, number>;
}
