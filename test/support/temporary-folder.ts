/** The temporary folder of one test run. Tests create files in `os.tmpdir()`, and the run deletes them all when it ends. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const PREFIX = "credential-lifecycle-tests-";
/** `os.tmpdir()` reads the first on Linux and macOS, the others on Windows. */
const VARIABLES = ["TMPDIR", "TEMP", "TMP"];

/**
 * Creates a folder and makes it `os.tmpdir()` of this process and of the processes that it starts.
 *
 * @returns A function that deletes the folder and restores the variables. It returns the names of files and folders that appeared
 * in the system's temporary folder in the meantime, which are left behind by programs that ignore the variables.
 */
export function openTemporaryFolder(): () => string[] {
  const parent = tmpdir();
  const before = new Set(readdirSync(parent));
  const folder = mkdtempSync(path.join(parent, PREFIX));
  const variables = VARIABLES.map((name) => [name, process.env[name]] as const);
  for (const name of VARIABLES) process.env[name] = folder;
  // Processes that were killed may still write for a moment.
  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 20 });
  // Also after an interrupted run.
  process.once("exit", remove);
  return () => {
    remove();
    for (const [name, value] of variables) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    // Another run at the same time deletes its own folder.
    return readdirSync(parent).filter((name) => !before.has(name) && !name.startsWith(PREFIX));
  };
}
