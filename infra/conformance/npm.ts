import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { CACHE } from "./cache.ts";
import { PROGRAMS, type Program, type ProgramId } from "./programs.ts";

/**
 * Installs programs from npm, unless an earlier run did. Their dependencies are from before the day that `PROGRAMS` names.
 *
 * @param name - Start of the folder's name.
 * @returns the folder `node_modules`.
 */
export function installedFromNpm(name: string, ids: readonly ProgramId[]): string {
  const programs = ids.map((id): Program => PROGRAMS[id]);
  const before = programs.map((program) => program.before!).sort()[0]!;
  const folder = path.join(CACHE, `${name}-${[...programs.map(({ version }) => version), before].join("-")}`);
  const complete = path.join(folder, "complete");
  if (!existsSync(complete)) {
    console.log(`  installing ${name} …`);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, "package.json"), '{"private":true}');
    const options = ["--no-audit", "--no-fund", "--ignore-scripts", "--silent", `--before=${before}`];
    const packages = programs.map((program) => `${program.package}@${program.version}`);
    execFileSync("npm", ["install", ...options, ...packages], { cwd: folder });
    mkdirSync(complete);
  }
  return path.join(folder, "node_modules");
}
