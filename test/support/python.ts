import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { test } from "vitest";

const root = path.resolve(import.meta.dirname, "../..");
const REQUIREMENTS = path.join(root, "test/clients/requirements.txt");
/** What openapi-python-client takes at least. */
const OLDEST = "import sys; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))";
const python = spawnSync("python3", ["-c", OLDEST], { encoding: "utf8" });
const remedy = "Python 3.11 or later with pip is missing: install python3 and python3-pip";

/** `test` for what needs Python. Where nobody reads what was skipped, a missing one is a failure. */
export function pythonTests(what: string) {
  const isRequired = Boolean(process.env.CI || process.env.REQUIRE_PYTHON);
  if (python.status !== 0 && !isRequired) console.warn(`${remedy}. Skipped: ${what}.`);
  return test.skipIf(python.status !== 0 && !isRequired);
}

/**
 * The folder of the packages in test/clients/requirements.txt, for PYTHONPATH. They are installed once, into a folder named
 * after them; nothing else on the machine changes.
 *
 * @throws {Error} with what to do where Python or a package can't be had.
 */
export function pythonPackages(): string {
  if (python.status !== 0) throw new Error(remedy);
  const digest = createHash("sha256")
    .update(readFileSync(REQUIREMENTS))
    .update(python.stdout)
    .digest("hex")
    .slice(0, 16);
  const folder = path.join(root, ".local/python", digest);
  if (existsSync(folder)) return folder;
  // Another name until it is whole.
  const unfinished = `${folder}-${process.pid}`;
  mkdirSync(path.dirname(folder), { recursive: true });
  const options = ["--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes", "--quiet"];
  try {
    execFileSync("python3", ["-m", "pip", "install", ...options, "--target", unfinished, "-r", REQUIREMENTS], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    renameSync(unfinished, folder);
  } catch (error) {
    if (!existsSync(folder)) throw new Error("pip could not install test/clients/requirements.txt.", { cause: error });
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return folder;
}
