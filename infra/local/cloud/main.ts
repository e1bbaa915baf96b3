import { parseArgs } from "node:util";
import { startCloud } from "./cloud.ts";

/**
 *     node infra/local/cloud/main.ts --data DIR [--port N] [--control-port N] [--company NAME] [--seed N] [--ready-json]
 *
 * NAME is `acme` (default), `small`, a JSON file, or a size such as `vaults=100,secrets=50` (see company/load.ts).
 * Stops on SIGINT and SIGTERM.
 */
const { values } = parseArgs({
  options: {
    data: { type: "string" },
    port: { type: "string" },
    "control-port": { type: "string" },
    company: { type: "string" },
    seed: { type: "string" },
    "ready-json": { type: "boolean", default: false },
  },
});

try {
  if (values.data === undefined) throw new Error("Name a folder for its data: --data DIR");
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
    const { environment, controlUrl, app, oidc } = cloud;
    console.log(JSON.stringify({ environment, controlUrl, app, oidc }));
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
  if (!/^\d+$/.test(text)) throw new Error(`--${name} takes a number, not "${text}"`);
  return { [name]: Number(text) } as Record<N, number>;
}
