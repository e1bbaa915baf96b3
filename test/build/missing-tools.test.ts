/** Tests whose program is missing: skipped with one line on a person's machine, failed where all tests must run. */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { missing } from "../support/tools.ts";

const root = path.resolve(import.meta.dirname, "../..");
const nothing = mkdtempSync(path.join(tmpdir(), "nothing-on-the-path-"));
afterAll(() => rmSync(nothing, { recursive: true }));

const BROWSER_LINE =
  "Skipped: browser tests. Chromium was not found; set CHROMIUM_PATH or install it. CI and REQUIRE_BROWSER=1 make this a failure.";

test.each([
  ["browser", BROWSER_LINE],
  [
    "python",
    "Skipped: tests of the Python client. Python 3.11 or later with pip was not found; install python3 and python3-pip. CI and REQUIRE_PYTHON=1 make this a failure.",
  ],
  ["curl", "Skipped: tests of curl commands. curl was not found; install it. CI makes this a failure."],
  ["bash", "Skipped: tests of remediation commands in bash. bash was not found; install it. CI makes this a failure."],
] as const)("%s is missed in one line, and required by CI and by its own variable alone", (tool, line) => {
  expect(missing(tool, { PATH: nothing })).toEqual({ isRequired: false, line });
  const requires = (environment: object) => missing(tool, { PATH: nothing, ...environment })!.isRequired;
  const by = ["CI", "REQUIRE_BROWSER", "REQUIRE_PYTHON"].filter((name) => requires({ [name]: "1" }));
  expect(by).toEqual(["CI", ...(/REQUIRE_\w+/.exec(line) ?? [])]);
});

/** Runs test files in a vitest of its own, on a machine where no program is found. */
function runOf(files: string[], environment: object): Promise<{ code: number; lines: string[] }> {
  const vitest = path.join(root, "node_modules/vitest/vitest.mjs");
  const env = { HOME: process.env.HOME, PATH: nothing, NO_COLOR: "1", ...environment };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [vitest, "run", ...files], { cwd: root, env }, (_, out, err) =>
      resolve({ code: child.exitCode ?? -1, lines: `${out}\n${err}`.split("\n") }),
    );
  });
}

test("a run without a browser passes, starts nothing for its tests, and prints one line for all of them", async () => {
  const { code, lines } = await runOf(["test/page/page.test.ts", "test/sso/browser.test.ts"], {});
  expect(lines.filter((line) => line.includes("Skipped: "))).toEqual([BROWSER_LINE]);
  expect(lines.filter((line) => /^\s*Test Files /.test(line)).map((line) => line.trim())).toEqual([
    "Test Files  2 skipped (2)",
  ]);
  expect(code).toBe(0);
});

test("a run that requires a browser fails without one, and says what to do", async () => {
  const { code, lines } = await runOf(["test/sso/browser.test.ts"], { REQUIRE_BROWSER: "1" });
  expect(lines).toContain("Error: Chromium was not found; set CHROMIUM_PATH or install it.");
  expect(lines.filter((line) => line.includes("Skipped: "))).toEqual([]);
  expect(code).toBe(1);
});
