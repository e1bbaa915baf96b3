/** `npm run check`: runs the static checks in parallel, as many at the same time as the machine has processors. */
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import path from "node:path";
import pMap from "p-map";
import { commandLine } from "./command-line.ts";

const HELP = `npm run check

Runs all static checks of the project: types, format, lint, unused code and imports. Prints the duration of each check and
the output of failed ones. Exits with 1 if a check fails.`;

/**
 * The commands of a check run one after the other. The slowest checks are first, so that short ones fill the gaps. The compiler
 * keeps its results in .local/, so that only changed files and those that depend on them are checked again.
 */
export const CHECKS: Record<string, string[]> = {
  "lint of types": ["oxlint --type-aware"],
  "unused code": ["knip"],
  types: ["tsc -p . --incremental --tsBuildInfoFile .local/types.tsbuildinfo"],
  "types of the page": [
    "node infra/build/page-types.ts",
    "tsc -p functions/web --incremental --tsBuildInfoFile .local/page-types.tsbuildinfo",
  ],
  "format and lint": ["biome check ."],
  imports: ["node infra/build/imports.ts"],
  wording: ["node infra/build/wording.ts"],
};

const root = path.resolve(import.meta.dirname, "../..");

const failedChecks: string[] = [];

async function check(name: string, commands: readonly string[]): Promise<void> {
  const startMs = performance.now();
  for (const command of commands) {
    const { code, output } = await run(command);
    if (code !== 0) {
      console.error(`\n${command} failed:\n${output}`);
      failedChecks.push(name);
      return;
    }
  }
  console.log(`${name}: ${((performance.now() - startMs) / 1000).toFixed(1)} s`);
}

/** Runs a command. Programs of the project's packages are found because npm adds them to PATH. */
function run(command: string): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, { cwd: root, shell: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, output }));
  });
}

if (import.meta.main) {
  commandLine(HELP, {});
  await pMap(Object.entries(CHECKS), ([name, commands]) => check(name, commands), {
    concurrency: availableParallelism(),
  });
  if (failedChecks.length > 0) {
    console.error(`\nFailed: ${failedChecks.join(", ")}`);
    process.exitCode = 1;
  }
}
