/** Tests of `npm run conformance` without its programs: the table of versions, the results, missing runtimes, and the page. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { observe } from "../../infra/conformance/case.ts";
import { type Result, readResult, WORKS_WITH, worksWithPage } from "../../infra/conformance/page.ts";
import type { Part } from "../../infra/conformance/part.ts";
import { PROGRAMS, type Program, type ProgramId } from "../../infra/conformance/programs.ts";
import { readParts } from "../../infra/conformance/read-parts.ts";

const root = path.resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");
const parts = await readParts();
const emptyFolder = mkdtempSync(path.join(tmpdir(), "nothing-on-the-path-"));
afterAll(() => rmSync(emptyFolder, { recursive: true }));

/** Runs the command on a machine without any runtime but Node.js. */
function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const main = path.join(root, "infra/conformance/main.ts");
  return new Promise((resolve) => {
    execFile(process.execPath, [main, ...args], { env: { PATH: emptyFolder } }, (error, out, err) =>
      resolve({ code: error ? Number(error.code) : 0, out, err }),
    );
  });
}

test("the lock files of pip have the versions of the table, and a hash for every package", () => {
  const pinned = Object.values<Program>(PROGRAMS).filter(({ registry }) => registry === "PyPI");
  expect(pinned.length).toBeGreaterThan(6);
  for (const { package: name, version, lock = "infra/conformance/requirements.txt" } of pinned) {
    const lines = read(lock).split("\n");
    expect(lines, lock).toContain(`${name}==${version} \\`);
    const requirements = lines
      .map((line, index) => ({ line, next: lines[index + 1] ?? "" }))
      .filter(({ line }) => /==/.test(line));
    for (const { line, next } of requirements) expect(next, line).toMatch(/^ {4}--hash=sha256:[\da-f]{64}/);
  }
});

test("programs of npm have dependencies of a lock file, or of a day", () => {
  const programs = Object.values<Program>(PROGRAMS).filter(({ registry }) => registry === "npm");
  const locked = Object.keys(JSON.parse(read("package-lock.json")).packages);
  for (const { package: name, before } of programs)
    if (!locked.some((one) => one.endsWith(`node_modules/${name}`))) expect(before, name).toMatch(/^\d{4}-\d\d-\d\d$/);
});

test("each part has the name of its file, and each program belongs to exactly one part", () => {
  expect(parts.map(({ name }) => name)).toEqual([...new Set(parts.map(({ name }) => name))].sort());
  const programs = parts.flatMap((part) => part.programs);
  expect(programs.toSorted()).toEqual(Object.keys(PROGRAMS).sort());
});

test("docs/works-with.md shows the last results, which are those of the pinned versions", () => {
  const results = new Map(parts.map(({ name }) => [name, readResult(name)]));
  const advice = "Run npm run conformance, with the names of the parts that changed.";
  expect(read(WORKS_WITH), advice).toBe(worksWithPage(parts, results));
  for (const { name, programs, variable } of parts) {
    const result = results.get(name);
    if (!result && variable !== undefined) continue;
    const versions = Object.fromEntries(programs.map((id) => [id, PROGRAMS[id].version]));
    expect(result?.versions, `${name}: ${advice}`).toEqual(versions);
  }
});

test("no case of a committed result failed", () => {
  const failed = parts.flatMap(({ name }) =>
    (readResult(name)?.cases ?? []).filter(({ passed }) => !passed).map((one) => `${name}: ${one.name}: ${one.seen}`),
  );
  expect(failed, "Fix the service or the part, and run npm run conformance with the names of these parts.").toEqual([]);
});

test("a missing runtime is reported with the way to get it, nothing is run, and the exit code is 1", async () => {
  expect(await run("metrics", "keycloak", "pysaml2")).toEqual({
    code: 1,
    out: "",
    err: [
      "keycloak: Java 17 or later was not found; install openjdk-17-jre-headless or a later one.",
      "keycloak: Maven was not found; install maven.",
      "metrics: Python 3.11 or later with venv was not found; install python3 and python3-venv.",
      "pysaml2: Python 3.11 or later with venv was not found; install python3 and python3-venv.",
      "pysaml2: xmlsec1 was not found; install xmlsec1.",
      "Nothing was run. To leave parts out: --without keycloak --without metrics --without pysaml2",
      "",
    ].join("\n"),
  });
});

test("a part without the path of its program is reported, and fails the run if it is named", async () => {
  const out = "Not run: node-worker, because FUNCTIONS_NODE_WORKER is not set.\n";
  const { err: _, ...named } = await run("node-worker");
  expect(named).toEqual({ code: 1, out });
  expect((await run()).out).toBe(out);
});

test("--list shows every part with its programs and needs, and an unknown part is a usage error", async () => {
  const { code, out } = await run("--list");
  expect(code).toBe(0);
  for (const { name, needs } of parts) {
    expect(out).toMatch(new RegExp(`^${name} .*\\n.*needs ${needs.join(", ")}`, "m"));
  }
  for (const { title, version } of Object.values(PROGRAMS)) expect(out).toContain(`${title} ${version}`);
  for (const args of [["nothing"], ["--without", "nothing"]]) {
    expect(await run(...args)).toEqual({ code: 2, out: "", err: "There is no part nothing. See --help.\n" });
  }
});

test("a case passes only if it sees the expected result, and an error is a result", async () => {
  expect(await observe("a", "one", async () => "one")).toEqual({
    name: "a",
    expected: "one",
    seen: "one",
    passed: true,
  });
  expect(await observe("a", "one", async () => "one more")).toMatchObject({ seen: "one more", passed: false });
  expect(await observe("a", /^o.e$/, async () => "ore")).toMatchObject({ expected: "^o.e$", passed: true });
  const failing = async () => Promise.reject(new Error("broken"));
  expect(await observe("a", "one", failing)).toMatchObject({ seen: "error: broken", passed: false });
  expect(await observe("a", /^error: broken$/, failing)).toMatchObject({ passed: true });
});

test("the page shows a failed case with what was expected, and a part that never ran as not run", () => {
  const part = (name: string, program: ProgramId, more: Partial<Part> = {}): Part => ({
    name,
    description: name,
    programs: [program],
    needs: [],
    async *run() {},
    ...more,
  });
  const failed = { program: "moto", name: "a | b", expected: "one", seen: "two", passed: false } as const;
  const passed = { ...failed, name: "c", seen: "one", passed: true };
  const result: Result = { part: "moto", date: "2026-11-27", versions: { moto: "5.0.0" }, cases: [failed, passed] };
  const never = [part("cloudevents", "cloudevents"), part("nodeWorker", "nodeWorker", { variable: "A_PATH" })];
  const page = worksWithPage([part("moto", "moto", { limits: ["A limit."] }), ...never], new Map([["moto", result]]));
  expect(page).toMatch(/^\| \[moto .*\| 5\.0\.0 \| PyPI \| moto \| 2026-11-27 \| 2 \| \*\*1 failed\*\* \|$/m);
  expect(page).toMatch(/^\| CloudEvents SDK \|.* \| not run \|$/m);
  expect(page).toMatch(/^\| Azure Functions .* \| not run: needs a path in `A_PATH` \|$/m);
  expect(page).toContain("| a \\| b | **two**, expected: one |\n| c | one |\n\n- A limit.");
});
