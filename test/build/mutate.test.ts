import { globSync, readFileSync } from "node:fs";
import { findPackageJSON } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test, vi } from "vitest";
import { type Change, placesIn } from "../../infra/mutate/changes.ts";
import { type Noticed, ProjectCopy } from "../../infra/mutate/copy.ts";
import { readTests } from "../../infra/mutate/modules.ts";
import { type JudgedMutant, printReport } from "../../infra/mutate/report.ts";
import { drawMutants, SMALL_MODULES } from "../../infra/mutate/sample.ts";

/*
 * Tests of the mutation testing in infra/mutate. It changes the code at one place (the changed code is a mutant), runs the
 * tests, and reports the mutants that no test notices. A place can have several mutants.
 */

const FILE = "shared/inventory/example.ts";
/** Returns all mutants of a code. */
function mutantsOf(text: string): string[] {
  return placesIn(FILE, text)
    .flat()
    .map(({ start, end, replacement }) => text.slice(0, start) + replacement + text.slice(end));
}

test.each([
  [
    "if (a < 3) b();",
    ["if (!(a < 3)) b();", "if (a <= 3) b();", "if (a >= 3) b();", "if (a < 4) b();", "if (a < (2)) b();"],
  ],
  ["await write(row);", [";", "write(row);"]],
  ["x = a ?? b;", [";", "x = (a)!;", "x = (b);"]],
  ["x = !a && list.some(f);", ["x = !a || list.some(f);", "x = (a) && list.some(f);", "x = !a && list.every(f);"]],
  ["const f = () => { go(); };", ["const f = () => { if (Math) return; go(); };", "const f = () => { ; };"]],
  ["f({ a: 1, b: true });", ["f({  b: true });", "f({ a: 1,  });", "f({ a: 2, b: true });", "f({ a: 1, b: false });"]],
  ["async () => { return await go(); }", ["async () => { return undefined!; }"]],
  [
    "async () => { try { return await go(); } finally { end(); } }",
    ["async () => { try { return go(); } finally { end(); } }"],
  ],
  ["throw new Error('gone');", [";"]],
  ["const g = (): string => { return 'x'; };", ["const g = (): string => { return undefined!; };"]],
])("%s has the expected mutants", (text, expectedMutants) => {
  expect(mutantsOf(text)).toEqual(expect.arrayContaining(expectedMutants));
});

test.each([
  "// if (a < 3) b();\n/** true */",
  "import { a } from './a.ts';\nexport { b } from './b.ts';\ntype T = 1 | true;\ninterface I { a: 'x' }",
  "log.info('3 of 4', { a: 1 });\ncontext.log.warn(a < 3);\nconsole.error(1);",
  "function f() { return undefined; }",
  "const h = async () => await go();",
  "const x = new TypeError(`1`, 2); const y = import('./y.ts');",
])("comments, types, imports, log lines and empty returns have no mutants: %s", (text) => {
  expect(mutantsOf(text)).toEqual([]);
});

// In `try`, removing the await of `return await f()` changes which errors are caught. Elsewhere, it changes nothing.
test("the await of a returned call has a mutant only inside try", () => {
  expect(mutantsOf("async () => { try { a(); } catch {} return await go(); }")).not.toContain(
    "async () => { try { a(); } catch {} return go(); }",
  );
  expect(mutantsOf("async () => { try { f(async () => { return await go(); }); } catch {} }").join("\n")).not.toContain(
    "return go()",
  );
  for (const value of ["stored ?? (await go())", "a() ? await go() : b", "(await go())"])
    expect(mutantsOf(`async () => { return ${value}; }`).join("\n")).not.toMatch(/return .*(?<!await )go\(/);
  expect(mutantsOf("async () => { return (await go()) ?? stored; }").join("\n")).toMatch(/return .*(?<!await )go\(/);
});

test("texts for users have no mutants", () => {
  expect(mutantsOf("f({ title: 'Gone', detail: '1', code: 'not found' });").join("\n")).not.toMatch(
    /title: ""|code: ""|f\(\{ {2}detail/,
  );
});

/** Returns this number of places in an invented module. */
const placesOf = (module: string, places: number) =>
  Array.from({ length: places }, (_, line) =>
    placesIn(`shared/${module}/x.ts`, "x = 1;").map((place) => place.map((change) => ({ ...change, line }))),
  ).flat();

test("a draw is the same for the same seed, contains each place once, and puts small modules into one group", () => {
  const sizes = { large: 3000, medium: 300, small: 30, tiny: 5 };
  const places = Object.entries(sizes).flatMap(([module, size]) => placesOf(module, size));
  const draws = drawMutants(places, 400, 7);
  expect(drawMutants(places, 400, 7)).toEqual(draws);
  expect(drawMutants(places, 400, 8)).not.toEqual(draws);
  const quotas = Object.fromEntries(draws.map(({ group, quota }) => [group, quota]));
  expect(Object.keys(quotas).sort()).toEqual(["large", "medium", SMALL_MODULES].sort());
  for (const quota of Object.values(quotas)) expect(quota).toBeGreaterThanOrEqual(20);
  expect(Object.values(quotas).reduce((total, quota) => total + quota, 0)).toBe(400);
  expect(quotas.large!).toBeGreaterThan(quotas.medium!);
  const drawnPlaces = draws
    .flatMap(({ candidates }) => candidates)
    .map(({ file, line, start }) => `${file}:${line}:${start}`);
  expect(new Set(drawnPlaces).size).toBe(drawnPlaces.length);
});

// Further candidates replace mutants that don't compile.
test("all places of a group are candidates, even if only some of them are tested", () => {
  const places = placesOf("large", 300);
  const [only] = drawMutants(places, 40, 7);
  expect([only!.quota, only!.candidates.length]).toEqual([40, places.length]);
});

test("a draw of 400 mutants from 30 modules has 20 groups of at least 20 mutants", () => {
  const places = Array.from({ length: 30 }, (_, module) => placesOf(`module${module}`, 300 + module)).flat();
  const draws = drawMutants(places, 400, 7);
  expect(draws.length).toBe(20);
  for (const { quota } of draws) expect(quota).toBeGreaterThanOrEqual(20);
});

test("the report's rate is the share of mutants that tests notice, among those that compile and pass the linter", () => {
  const print = vi.spyOn(console, "log").mockImplementation(() => {});
  const [[change]] = placesIn(FILE, "x = 1;") as [[Change]];
  /** Returns the result of a mutant: what noticed it (compiler, linter, tests or time limit), if anything. */
  const judged = (noticed?: Noticed): JudgedMutant => ({
    group: "inventory",
    change,
    seconds: 1,
    ...(noticed && { noticed }),
  });
  const textOf = new Map([[FILE, "x = 1;"]]);
  const report = (all: JudgedMutant[]) => [printReport(all, textOf), print.mock.calls.flat().join("\n")] as const;
  const rejected = [...Array.from({ length: 90 }, () => judged("types")), judged("lint")];
  const [isEnough, text] = report([...rejected, judged("tests"), judged("tests"), judged("time"), judged()]);
  expect(isEnough).toBe(true);
  // Columns: tested mutants, noticed by tests, by the time limit, unnoticed, rate in percent, not compiling, rejected by the
  // linter.
  expect(text).toMatch(/^inventory +4 +2 +1 +1 +75\.0 +90 +1$/m);
  expect(report([...rejected, judged("tests"), judged()])[0]).toBe(false);
  print.mockRestore();
});

test("every source file is assigned tests, and the test of its own module is among the first", () => {
  const root = path.resolve(import.meta.dirname, "../..");
  const testsOf = readTests(root);
  const files = globSync("{shared,functions}/**/*.ts", { cwd: root, exclude: ["**/node_modules", "**/*.test.ts"] }).map(
    (file) => file.split(path.sep).join("/"),
  );
  expect(files.length).toBeGreaterThan(100);
  for (const file of files) {
    const tests = testsOf(file);
    expect(tests.length, file).toBeGreaterThan(0);
  }
  expect(testsOf("shared/inventory/query.ts").slice(0, 4)).toContain("test/inventory/query.test.ts");
  expect(testsOf("functions/auth.ts")).toContain("test/access/sign-in.test.ts");
});

test("a copy of the project, in which mutants are tested, resolves all packages", () => {
  const copy = new ProjectCopy(path.resolve(import.meta.dirname, "../.."));
  try {
    for (const folder of [".", "functions/web"]) {
      const manifest = path.join(copy.folder, folder, "package.json");
      const { dependencies, devDependencies } = JSON.parse(readFileSync(manifest, "utf8"));
      for (const name of Object.keys({ ...dependencies, ...devDependencies }))
        expect(findPackageJSON(name, pathToFileURL(manifest)), name).toBeDefined();
    }
  } finally {
    copy.remove();
  }
});
