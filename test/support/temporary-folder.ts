/** The temporary folder of one test run. Tests create files in `os.tmpdir()`, and the run deletes them all when it ends. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const PREFIX = "credential-lifecycle-tests-";
/** Environment variables that `os.tmpdir()` reads: the first on Linux and macOS, the others on Windows. */
const VARIABLES = ["TMPDIR", "TEMP", "TMP"];

/**
 * Creates a folder and makes it `os.tmpdir()` of this process and of the processes that it starts.
 *
 * @returns A function that deletes the folder and restores the variables. It returns the names of files and folders that appeared
 * in the system's temporary folder in the meantime. Programs that ignore the variables can have created them.
 */
export function openTemporaryFolder(): () => string[] {
  const parent = tmpdir();
  const entriesAtStart = new Set(readdirSync(parent));
  const folder = mkdtempSync(path.join(parent, PREFIX));
  const variables = VARIABLES.map((name) => [name, process.env[name]] as const);
  for (const name of VARIABLES) process.env[name] = folder;
  // Retries, because killed processes may still write for a moment.
  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 20 });
  // An interrupted run does not call the returned function.
  process.once("exit", remove);
  return () => {
    remove();
    for (const [name, value] of variables) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    // Folders with the prefix belong to other runs, which delete them.
    return readdirSync(parent).filter((name) => !entriesAtStart.has(name) && !name.startsWith(PREFIX));
  };
}
