import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Environment, findBrowser, onPath } from "./chromium.ts";
import { TEST_APP } from "./test-app.ts";

/** The programs that some tests need besides Node, git and sh. */
const TOOLS = {
  browser: {
    tests: "browser tests",
    name: "Chrome, Edge or Chromium",
    remedy: "install one or set CHROMIUM_PATH",
    requiredBy: "REQUIRE_BROWSER",
    isPresent: (environment: Environment) => findBrowser(environment) !== undefined,
  },
  python: {
    tests: "tests of the Python client",
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
} satisfies Record<string, ToolDescription>;

interface ToolDescription {
  tests: string;
  name: string;
  /** Completes the sentence "… was not found; …". */
  remedy: string;
  /** The variable that makes a missing tool a failure, besides CI. */
  requiredBy?: string;
  isPresent(environment: Environment): boolean;
}

export type Tool = keyof typeof TOOLS;

/**
 * Returns undefined if the tool is present. Otherwise returns a line to print, and whether `CI` or the tool's own variable
 * requires the tool.
 */
export function missing(tool: Tool, environment: Environment): { isRequired: boolean; line: string } | undefined {
  const { tests, name, remedy, requiredBy, isPresent }: ToolDescription = TOOLS[tool];
  if (isPresent(environment)) return undefined;
  const isRequired = Boolean(environment.CI || (requiredBy && environment[requiredBy]));
  const strict = requiredBy ? `CI and ${requiredBy}=1 make this a failure` : "CI makes this a failure";
  const found = `${name} was not found; ${remedy}.`;
  return { isRequired, line: isRequired ? found : `Skipped: ${tests}. ${found} ${strict}.` };
}

/**
 * Returns whether tests that need the tool must be skipped: `test.skipIf(skipWithout("curl"))`. The run prints one line for each
 * missing tool when it ends.
 *
 * @throws {Error} Where the tool is missing and required.
 */
export function skipWithout(tool: Tool): boolean {
  const lack = missing(tool, process.env);
  if (lack?.isRequired) throw new Error(lack.line);
  if (lack) writeFileSync(path.join(TEST_APP, `skipped-${tool}.txt`), lack.line);
  return lack !== undefined;
}

/** Returns the lines that `skipWithout` left in this run, of all its processes. */
export function skippedTools(): string[] {
  const files = readdirSync(TEST_APP).filter((name) => name.startsWith("skipped-"));
  return files.sort().map((name) => readFileSync(path.join(TEST_APP, name), "utf8"));
}

/** Python 3.11 is the oldest that openapi-python-client supports. */
const VERSION = "import sys, pip; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))";

/** Returns the version of `python3`, such as "3.11"; undefined where Python is missing, too old, or without pip. */
export function pythonVersion(environment: Environment = process.env): string | undefined {
  const { status, stdout } = spawnSync("python3", ["-c", VERSION], { encoding: "utf8", env: environment });
  return status === 0 ? stdout.trim() : undefined;
}
