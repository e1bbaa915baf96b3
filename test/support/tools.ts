import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { EARLIER_BUILDS } from "../../shared/store/rollback-losses.ts";
import { type Environment, findBrowser, onPath } from "./chromium.ts";

/**
 * Programs that some tests need besides Node, git and sh. If one is missing, its tests are skipped on a developer's machine and
 * fail in CI, unless they are optional.
 */
const TOOLS = {
  browser: {
    tests: "browser tests",
    name: "Chrome, Edge or Chromium",
    remedy: "install one or set CHROMIUM_PATH",
    requiredBy: "REQUIRE_BROWSER",
    isPresent: (environment: Environment) => findBrowser(environment) !== undefined,
  },
  python: {
    tests: "tests of the Python client and of the recomputed answers",
    name: "Python 3.11 or later with pip",
    remedy: "install python3 and python3-pip",
    requiredBy: "REQUIRE_PYTHON",
    isPresent: (environment: Environment) => pythonVersion(environment) !== undefined,
  },
  curl: {
    tests: "tests of curl commands",
    name: "curl",
    remedy: "install it",
    isPresent: (environment: Environment) => onPath("curl", environment) !== undefined,
  },
  bash: {
    tests: "tests of remediation commands in bash",
    name: "bash",
    remedy: "install it",
    isPresent: (environment: Environment) => onPath("bash", environment) !== undefined,
  },
  history: {
    tests: "tests with earlier builds",
    name: "The repository's history",
    remedy: "clone it with git, not shallow",
    isOptional: true,
    isPresent: (environment: Environment) =>
      EARLIER_BUILDS.every(
        (commit) =>
          spawnSync("git", ["cat-file", "-e", commit], { env: environment, cwd: import.meta.dirname }).status === 0,
      ),
  },
  keycloak: {
    tests: "tests with Keycloak",
    name: "Keycloak",
    remedy: "npm run conformance -- keycloak fetches it and runs them",
    isOptional: true,
    isPresent: (environment: Environment) => Boolean(environment.KEYCLOAK_URL),
  },
} satisfies Record<string, ToolDescription>;

interface ToolDescription {
  /** The tests that need the program, to print. */
  tests: string;
  name: string;
  /** The second half of the printed sentence "<name> was not found; <remedy>.". */
  remedy: string;
  /** The environment variable that makes a missing program a failure, besides `CI`. */
  requiredBy?: string;
  /** Whether the tests are also skipped in CI, because it may have a shallow clone or no such server. */
  isOptional?: boolean;
  isPresent(environment: Environment): boolean;
}

export type Tool = keyof typeof TOOLS;

/**
 * Returns undefined if the program is present. Otherwise returns a line to print, and whether `CI` or the program's own variable
 * requires the program.
 */
export function missing(tool: Tool, environment: Environment): { isRequired: boolean; line: string } | undefined {
  const { tests, name, remedy, requiredBy, isOptional, isPresent }: ToolDescription = TOOLS[tool];
  if (isPresent(environment)) return undefined;
  const notFoundText = `${name} was not found; ${remedy}.`;
  if (isOptional) return { isRequired: false, line: `Skipped: ${tests}. ${notFoundText}` };
  const isRequired = Boolean(environment.CI || (requiredBy && environment[requiredBy]));
  const strict = requiredBy ? `CI and ${requiredBy}=1 make this a failure` : "CI makes this a failure";
  return { isRequired, line: isRequired ? notFoundText : `Skipped: ${tests}. ${notFoundText} ${strict}.` };
}

/**
 * Returns whether tests that need the tool must be skipped: `test.skipIf(skipWithout("curl"))`. The run prints one line for each
 * missing tool when it ends.
 *
 * @throws {Error} If the program is missing and required.
 */
export function skipWithout(tool: Tool): boolean {
  const missingTool = missing(tool, process.env);
  if (missingTool?.isRequired) throw new Error(missingTool.line);
  if (missingTool) writeFileSync(path.join(tmpdir(), `skipped-${tool}.txt`), missingTool.line);
  return missingTool !== undefined;
}

/** Returns the lines that `skipWithout` wrote into the run's temporary folder, in all its processes. */
export function skippedTools(): string[] {
  const files = readdirSync(tmpdir()).filter((name) => name.startsWith("skipped-"));
  return files.sort().map((name) => readFileSync(path.join(tmpdir(), name), "utf8"));
}

/** Prints the version of Python, and fails before 3.11, the oldest version that openapi-python-client supports. */
const VERSION_SCRIPT = "import sys, pip; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))";

/** Returns the version of `python3`, such as "3.11", or undefined if Python is missing, too old, or without pip. */
export function pythonVersion(environment: Environment = process.env): string | undefined {
  const { status, stdout } = spawnSync("python3", ["-c", VERSION_SCRIPT], { encoding: "utf8", env: environment });
  return status === 0 ? stdout.trim() : undefined;
}
