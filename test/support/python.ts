import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { pythonVersion } from "./tools.ts";

const root = path.resolve(import.meta.dirname, "../..");
const REQUIREMENTS = path.join(root, "test/clients/requirements.txt");

/**
 * Returns the folder with the packages of test/clients/requirements.txt, for PYTHONPATH. The packages are installed once, into
 * a folder named after their hash. No other folder of the machine changes.
 *
 * @throws {Error} If pip can't install a package.
 */
export function pythonPackages(): string {
  const digest = createHash("sha256")
    .update(readFileSync(REQUIREMENTS))
    .update(pythonVersion()!)
    .digest("hex")
    .slice(0, 16);
  const folder = path.join(root, ".local/python", digest);
  if (existsSync(folder)) return folder;
  // The folder gets its final name when it is complete.
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
