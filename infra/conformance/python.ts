import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { CACHE } from "./cache.ts";

const REQUIREMENTS = path.join(import.meta.dirname, "requirements.txt");
const SCRIPTS = path.join(import.meta.dirname, "python");

/**
 * Returns the `bin` folder of a virtual environment with the packages of requirements.txt, which it creates the first time. The
 * folder is named after the hash of that file.
 *
 * @throws {Error} If pip can't install a package.
 */
export function pythonEnvironment(): string {
  const digest = createHash("sha256").update(readFileSync(REQUIREMENTS)).digest("hex").slice(0, 16);
  const folder = path.join(CACHE, `python-${digest}`);
  const complete = path.join(folder, "complete");
  if (!existsSync(complete)) {
    console.log("  installing the Python packages …");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(CACHE, { recursive: true });
    execFileSync("python3", ["-m", "venv", folder]);
    const options = [
      "--no-deps",
      "--only-binary",
      ":all:",
      "--require-hashes",
      "--quiet",
      "--disable-pip-version-check",
    ];
    execFileSync(path.join(folder, "bin/python"), ["-m", "pip", "install", ...options, "-r", REQUIREMENTS], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    mkdirSync(complete);
  }
  return path.join(folder, "bin");
}

/**
 * Runs a script of python/ in the virtual environment. The input is passed as JSON on standard input.
 *
 * @returns Standard output, without white space at its ends
 * @throws {Error} If the script fails, with the last line of its standard error, which for Python is the exception.
 */
export function runPython(script: string, input: unknown): Promise<string> {
  const child = spawn(path.join(pythonEnvironment(), "python"), [path.join(SCRIPTS, script)], {
    stdio: ["pipe", "pipe", "pipe"],
  });
  let [output, errors] = ["", ""];
  child.stdout.on("data", (data) => (output += data));
  child.stderr.on("data", (data) => (errors += data));
  child.stdin.end(JSON.stringify(input));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) =>
      code === 0 ? resolve(output.trim()) : reject(new Error(errors.trim().split("\n").at(-1) || `exit code ${code}`)),
    );
  });
}
