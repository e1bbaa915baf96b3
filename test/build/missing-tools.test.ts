/**
 * Tests of the helpers that skip tests if a program is missing (test/support/tools.ts). A run on a developer's machine prints one
 * line for each missing program. In CI, where all tests must run, a missing program is a failure.
 */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { findBrowser } from "../support/chromium.ts";
import { TEST_APP } from "../support/test-app.ts";
import { missing } from "../support/tools.ts";

const root = path.resolve(import.meta.dirname, "../..");
const emptyFolder = mkdtempSync(path.join(tmpdir(), "nothing-on-the-path-"));
afterAll(() => rmSync(emptyFolder, { recursive: true }));

/** The environment of a machine without any of the programs, also where `npm ci` installs a browser. */
const NO_TOOLS = { PATH: emptyFolder, CHROMIUM_PATH: path.join(emptyFolder, "chromium") };

const BROWSER_LINE =
  "Skipped: browser tests. Chrome, Edge or Chromium was not found; install one or set CHROMIUM_PATH. CI and REQUIRE_BROWSER=1 make this a failure.";

test.each([
  ["browser", BROWSER_LINE],
  [
    "python",
    "Skipped: tests of the Python client and of the recomputed answers. Python 3.11 or later with pip was not found; install python3 and python3-pip. CI and REQUIRE_PYTHON=1 make this a failure.",
  ],
  ["curl", "Skipped: tests of curl commands. curl was not found; install it. CI makes this a failure."],
  ["bash", "Skipped: tests of remediation commands in bash. bash was not found; install it. CI makes this a failure."],
  [
    "history",
    "Skipped: tests with earlier builds. The repository's history was not found; clone it with git, not shallow.",
  ],
  [
    "keycloak",
    "Skipped: tests with Keycloak. Keycloak was not found; npm run conformance -- keycloak fetches it and runs them.",
  ],
] as const)(
  "a missing %s is reported in one line, and is a failure only with the variables that the line names",
  (tool, line) => {
    expect(missing(tool, NO_TOOLS)).toEqual({ isRequired: false, line });
    const requires = (environment: object) => missing(tool, { ...NO_TOOLS, ...environment })!.isRequired;
    const requiringVariables = ["CI", "REQUIRE_BROWSER", "REQUIRE_PYTHON"].filter((name) => requires({ [name]: "1" }));
    // The printed line names the tool's own variable, if it has one.
    expect(requiringVariables).toEqual(line.match(/CI|REQUIRE_\w+/g) ?? []);
  },
);

const LINUX = { platform: "linux", arch: "x64" } as const;
const ARM = { platform: "linux", arch: "arm64" } as const;
const WINDOWS = { platform: "win32", arch: "x64" } as const;

test("findBrowser prefers CHROMIUM_PATH, then an installed browser, then on Linux x64 the packaged one", () => {
  const folder = path.join(emptyFolder, "bin");
  mkdirSync(folder);
  const [chrome, other] = ["google-chrome", "other"].map((name) => path.join(folder, name)) as [string, string];
  for (const file of [chrome, other]) writeFileSync(file, "", { mode: 0o700 });

  expect(findBrowser({ PATH: folder, CHROMIUM_PATH: other }, LINUX)).toEqual({ installed: other });
  expect(findBrowser({ PATH: folder, CHROMIUM_PATH: path.join(folder, "missing") }, LINUX)).toBeUndefined();
  for (const machine of [LINUX, ARM]) expect(findBrowser({ PATH: folder }, machine)).toEqual({ installed: chrome });
  expect(findBrowser({ PATH: emptyFolder }, LINUX)).toBe("packaged");
  for (const machine of [ARM, WINDOWS]) expect(findBrowser({ PATH: emptyFolder }, machine)).toBeUndefined();
});

/** Runs test files in a new vitest process that finds none of the programs. */
function runTests(files: string[], environment: object): Promise<{ code: number; lines: string[] }> {
  const vitest = path.join(root, "node_modules/vitest/vitest.mjs");
  const app = { TEST_APP, TEST_APP_IS_BUILT: "true" };
  const env = { HOME: process.env.HOME, ...NO_TOOLS, ...app, NO_COLOR: "1", ...environment };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [vitest, "run", ...files], { cwd: root, env }, (_, out, err) =>
      resolve({ code: child.exitCode ?? -1, lines: `${out}\n${err}`.split("\n") }),
    );
  });
}

test("a run without a browser skips the browser tests, prints one line for all of them, and passes", async () => {
  const { code, lines } = await runTests(["test/page/page.test.ts", "test/sso/browser.test.ts"], {});
  expect(lines.filter((line) => line.includes("Skipped: "))).toEqual([BROWSER_LINE]);
  expect(lines.filter((line) => /^\s*Test Files /.test(line)).map((line) => line.trim())).toEqual([
    "Test Files  2 skipped (2)",
  ]);
  expect(code).toBe(0);
});

test("a run that requires a browser fails without one, and prints what to do", async () => {
  const { code, lines } = await runTests(["test/sso/browser.test.ts"], { REQUIRE_BROWSER: "1" });
  expect(lines).toContain("Error: Chrome, Edge or Chromium was not found; install one or set CHROMIUM_PATH.");
  expect(lines.filter((line) => line.includes("Skipped: "))).toEqual([]);
  expect(code).toBe(1);
});
