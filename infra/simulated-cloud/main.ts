import { commandLine, usedWrong } from "../build/command-line.ts";

const HELP = `node infra/simulated-cloud/main.ts --data DIR [options]

Runs the stand-in cloud until it is ended. Its README says what can be asked of it, changed and made to fail.

  --data DIR         the folder of its data
  --port N           where it serves (any free port)
  --control-port N   where its control API does (any free port)
  --company NAME     acme (default), small, a JSON file, or a size such as vaults=100,secrets=50
  --seed N           what a company of a size is drawn by
  --ready-json       one line of JSON on standard output when ready`;

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
if (values.data === undefined) usedWrong("Name a folder for its data: --data DIR");

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
      cloud.stop().then(() => process.exit(0), endWith);
    });
  }
  if (values["ready-json"]) {
    const { environment, controlUrl, app, oidc, workspaceIds } = cloud;
    console.log(JSON.stringify({ environment, controlUrl, app, oidc, workspaceIds }));
  } else {
    console.log(`The stand-in cloud serves; its control API is ${cloud.controlUrl}`);
  }
} catch (error) {
  endWith(error);
}

function endWith(error: unknown): never {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}

function number<N extends string>(name: N, text: string | undefined): Partial<Record<N, number>> {
  if (text === undefined) return {};
  if (!/^\d+$/.test(text)) usedWrong(`--${name} takes a number, not "${text}"`);
  return { [name]: Number(text) } as Record<N, number>;
}
