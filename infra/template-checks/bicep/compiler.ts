// Compiles the Bicep files with Bicep's own compiler, if this machine has one: https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-cli

import { spawnSync } from "node:child_process";
import path from "node:path";
import type { Finding } from "../expression.ts";
import { ROOT } from "../files.ts";

/** Commands that compile the file whose path follows. Each has a command that fails if the compiler is not installed. */
const COMPILERS = [
  { isInstalled: ["bicep", "--version"], build: ["bicep", "build", "--stdout"] },
  // Without the first command, `az bicep build` would download the compiler.
  { isInstalled: ["az", "bicep", "version"], build: ["az", "bicep", "build", "--stdout", "--file"] },
];
/** A message of the compiler: `/path/main.bicep(3,7) : Error BCP018: Expected …` */
const MESSAGE = /^(?:ERROR: )?(\S.*)\((\d+),\d+\) : Error (.*)$/gm;

/**
 * Compiles Bicep files, and with each the files that it calls.
 *
 * @param files - Paths from the project's root.
 * @returns The compiler's errors, without warnings. Undefined if there is no compiler.
 */
export function compileBicep(files: readonly string[], environment = process.env): Finding[] | undefined {
  const run = ([program, ...args]: readonly string[]) =>
    spawnSync(program!, args, { cwd: ROOT, env: environment, encoding: "utf8", stdio: ["ignore", "ignore", "pipe"] });
  const compiler = COMPILERS.find(({ isInstalled }) => run(isInstalled).status === 0);
  if (!compiler) return undefined;
  const findings = files.flatMap((file): Finding[] => {
    const { status, stderr } = run([...compiler.build, file]);
    const errors = [...stderr.matchAll(MESSAGE)].map(([, place, line, message]) => ({
      file: path.relative(ROOT, path.resolve(ROOT, place!)),
      line: Number(line),
      message: message!,
    }));
    return status === 0 || errors.length > 0
      ? errors
      : [{ file, line: 1, message: `does not compile: ${stderr.trim()}` }];
  });
  // Several files call the same module.
  return [...new Map(findings.map((one) => [JSON.stringify(one), one])).values()];
}
