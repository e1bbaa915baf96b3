import { globSync, readFileSync } from "node:fs";
import { findPackageJSON } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { placesIn } from "../../infra/mutate/changes.ts";
import { Copy } from "../../infra/mutate/copy.ts";
import { readTests } from "../../infra/mutate/rooms.ts";
import { draw, SMALL_ROOMS } from "../../infra/mutate/sample.ts";

const FILE = "shared/inventory/example.ts";
/** Returns all changes of a text, without the unchanged parts around them. */
function changesOf(text: string): string[] {
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
])("%s can be changed to another program at each place", (text, wanted) => {
  expect(changesOf(text)).toEqual(expect.arrayContaining(wanted));
});

test.each([
  "// if (a < 3) b();\n/** true */",
  "import { a } from './a.ts';\nexport { b } from './b.ts';\ntype T = 1 | true;\ninterface I { a: 'x' }",
  "log.info('3 of 4', { a: 1 });\ncontext.log.warn(a < 3);\nconsole.error(1);",
  "function f() { return undefined; }",
  "const h = async () => await go();",
  "const x = new TypeError(`1`, 2); const y = import('./y.ts');",
])("comments, types, imports, log lines and calls without a result are not changed: %s", (text) => {
  expect(changesOf(text)).toEqual([]);
});

test("the caller awaits the result that a function passes on from another function", () => {
  expect(changesOf("async () => { try { a(); } catch {} return await go(); }")).not.toContain(
    "async () => { try { a(); } catch {} return go(); }",
  );
  expect(changesOf("async () => { try { f(async () => { return await go(); }); } catch {} }").join("\n")).not.toContain(
    "return go()",
  );
});

test("texts for people are not changed", () => {
  expect(changesOf("f({ title: 'Gone', detail: '1', code: 'not found' });").join("\n")).not.toMatch(
    /title: ""|code: ""|f\(\{ {2}detail/,
  );
});

test("a draw is the same for one seed, takes each place once, and judges small modules together", () => {
  const room = (name: string, places: number) =>
    Array.from({ length: places }, (_, at) =>
      placesIn(`shared/${name}/x.ts`, `x = ${at};`).map((place) => place.map((change) => ({ ...change, line: at }))),
    ).flat();
  const places = [...room("large", 3000), ...room("medium", 300), ...room("small", 30), ...room("tiny", 5)];
  const drawn = draw(places, 400, 7);
  expect(draw(places, 400, 7)).toEqual(drawn);
  expect(draw(places, 400, 8)).not.toEqual(drawn);
  const byGroup = Object.groupBy(drawn, ({ group }) => group);
  expect(Object.keys(byGroup).sort()).toEqual(["large", "medium", SMALL_ROOMS].sort());
  for (const all of Object.values(byGroup)) expect(all!.length).toBeGreaterThanOrEqual(20);
  expect(drawn).toHaveLength(400);
  expect(byGroup.large!.length).toBeGreaterThan(byGroup.medium!.length);
  const taken = drawn.map(({ change }) => `${change.file}:${change.line}:${change.start}`);
  expect(new Set(taken).size).toBe(taken.length);
});

test("each judged group has twenty changes, regardless of the number of modules", () => {
  const places = Array.from({ length: 30 }, (_, room) =>
    Array.from({ length: 300 + room }, (_, line) =>
      placesIn(`shared/room${room}/x.ts`, "x = 1;").map((place) => place.map((change) => ({ ...change, line }))),
    ).flat(),
  ).flat();
  const groups = Object.values(Object.groupBy(draw(places, 400, 7), ({ group }) => group));
  expect(groups.length).toBe(20);
  for (const changes of groups) expect(changes!.length).toBeGreaterThanOrEqual(20);
});

test("every file has existing tests, and tests that import the file come first", () => {
  const root = path.resolve(import.meta.dirname, "../..");
  const testsOf = readTests(root);
  const files = globSync("{shared,functions}/**/*.ts", { cwd: root, exclude: ["**/node_modules"] }).map((file) =>
    file.split(path.sep).join("/"),
  );
  expect(files.length).toBeGreaterThan(100);
  for (const file of files) {
    const tests = testsOf(file);
    expect(tests.length, file).toBeGreaterThan(0);
  }
  expect(testsOf("shared/inventory/query.ts").slice(0, 4)).toContain("test/inventory/query.test.ts");
  expect(testsOf("functions/auth.ts")).toContain("test/access/sign-in.test.ts");
});

test("a copy finds every package that the checks, the build and the tests use", () => {
  const copy = new Copy(path.resolve(import.meta.dirname, "../.."));
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
