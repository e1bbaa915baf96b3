import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { brokenRules } from "../../infra/build/imports.ts";

const root = path.resolve(import.meta.dirname, "../..");

/** A folder that holds these files. */
function folderOf(files: Record<string, string>): string {
  const folder = mkdtempSync(path.join(tmpdir(), "check-"));
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return folder;
}

/** Runs the part of `npm run check` that begins with `program`, on a folder of its own. */
function lint(program: string, folder: string): { status: number | null; output: string } {
  const { scripts } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const command = (scripts.check as string).split(" && ").find((part) => part.startsWith(program));
  expect(command, `npm run check runs ${program}`).toBeDefined();
  const [name, ...args] = command!.split(" ");
  const run = spawnSync(
    path.join(root, "node_modules/.bin", name!),
    [...args, "--config", path.join(root, ".oxlintrc.json"), folder],
    { encoding: "utf8", cwd: folder },
  );
  return { status: run.status, output: run.stdout + run.stderr };
}

const TSCONFIG = JSON.stringify({ compilerOptions: { target: "es2023", module: "nodenext", strict: true } });
const STORE = "export interface Store { write(row: string): Promise<void> }\n";
const using = (body: string) => ({
  "tsconfig.json": TSCONFIG,
  "store.ts": STORE,
  "use.ts": `import type { Store } from "./store.ts";\nexport async function use(store: Store, rows: string[]): Promise<void> {\n${body}\n}\n`,
});

test.each([
  ["a write that nobody waits for", "store.write('row');\nawait store.write('next');", "no-floating-promises"],
  [
    "a callback whose promise is dropped",
    "rows.forEach(async (row) => await store.write(row));",
    "no-misused-promises",
  ],
  ["a promise taken for a truth", "if (store.write('row')) await store.write('next');", "no-misused-promises"],
  ["an await of what is no promise", "await rows.length;\nawait store.write('row');", "await-thenable"],
  ["a function of more than 250 lines", "await store.write('row');\n".repeat(250), "max-lines-per-function"],
])("the check refuses %s", (_, body, rule) => {
  const { status, output } = lint("oxlint", folderOf(using(body)));
  expect(output).toContain(rule);
  expect(status).toBe(1);
});

test("the check takes writes that are waited for", () => {
  const { status, output } = lint("oxlint", folderOf(using("for (const row of rows) await store.write(row);")));
  expect(output).toContain("0 errors");
  expect(status).toBe(0);
});

test("imports in a circle are named, with those of types and through several files", () => {
  const folder = folderOf({
    "shared/storage/a.ts": 'import { b } from "./b.ts";\nexport const a = b;\nexport interface A { a: string }\n',
    "shared/storage/b.ts": 'export { c as b } from "./c.ts";\n',
    "shared/storage/c.ts": 'export const c = 1;\nexport type C = import("./a.ts").A;\n',
    "shared/storage/beside.ts": 'import type { A } from "./a.ts";\nexport type B = A;\n// from "./nowhere.ts"\n',
  });
  expect(brokenRules(folder, [])).toEqual([
    "These 3 files import each other in a circle (types count):",
    "  shared/storage/a.ts -> shared/storage/b.ts",
    "  shared/storage/b.ts -> shared/storage/c.ts",
    "  shared/storage/c.ts -> shared/storage/a.ts",
  ]);
});

test("a circle may be listed as open only while it is there", () => {
  const a = { "shared/audit/a.ts": 'import type { B } from "./b.ts";\nexport type A = B;\n' };
  const circle = folderOf({ ...a, "shared/audit/b.ts": 'export type B = import("./a.ts").A;\n' });
  expect(brokenRules(circle, ["shared/audit/"])).toEqual([]);
  const mended = folderOf({ ...a, "shared/audit/b.ts": "export type B = string;\n" });
  expect(brokenRules(mended, ["shared/audit/"])).toEqual([expect.stringContaining("has no circle any more")]);
});

test("rooms that import each other are named, though no file does", () => {
  const folder = folderOf({
    "shared/access/one.ts": 'import type { Two } from "../inventory/two.ts";\nexport type One = Two;\n',
    "shared/inventory/two.ts": "export interface Two { two: string }\n",
    "shared/inventory/three.ts": 'import type { Four } from "../access/four.ts";\nexport type Three = Four;\n',
    "shared/access/four.ts": "export interface Four { four: string }\n",
  });
  expect(brokenRules(folder, [])).toEqual([
    "These rooms import each other in a circle (types count): shared/access, shared/inventory",
  ]);
});

test.each([
  ["shared/storage/a.ts", 'import "../audit/b.ts";', "storage stands below audit"],
  ["shared/audit/a.ts", 'import type { X } from "@azure/data-tables";', "only shared/azure and shared/storage"],
  ["shared/audit/a.ts", 'const x = await import("@azure/functions");', "knows nothing of the platform"],
  ["infra/local/a.ts", 'import { x } from "../../shared/time.ts";', "knows nothing of its source"],
  ["functions/a.ts", 'import { x } from "../test/support/service.ts";', "what is deployed knows nothing"],
  ["shared/elsewhere/a.ts", 'import { x } from "../time.ts";', "has no place in the order of rooms"],
])("%s may not %s", (file, text, reason) => {
  expect(brokenRules(folderOf({ [file]: `${text}\n` }), [])).toEqual([expect.stringContaining(reason)]);
});
