import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { CHECKS } from "../../infra/build/check.ts";
import { brokenRules } from "../../infra/build/imports.ts";

// Tests of two parts of `npm run check`: the linter oxlint, and the import rules of infra/build/imports.ts.

const root = path.resolve(import.meta.dirname, "../..");

/** Creates a folder with these files, by path, and returns it. */
function createFolder(files: Record<string, string>): string {
  const folder = mkdtempSync(path.join(tmpdir(), "check-"));
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return folder;
}

/** Runs the command of `npm run check` that starts with `program` on another folder. */
function lint(program: string, folder: string): { status: number | null; output: string } {
  const command = Object.values(CHECKS)
    .flat()
    .find((checkCommand) => checkCommand.startsWith(program));
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
/** Returns the files of a project whose function has this body, with a `store` to write to and a list of `rows`. */
const projectWith = (body: string) => ({
  "tsconfig.json": TSCONFIG,
  "store.ts": STORE,
  "use.ts": `import type { Store } from "./store.ts";\nexport async function use(store: Store, rows: string[]): Promise<void> {\n${body}\n}\n`,
});

test.each([
  ["a write without await", "store.write('row');\nawait store.write('next');", "no-floating-promises"],
  [
    "a callback whose promise is dropped",
    "rows.forEach(async (row) => await store.write(row));",
    "no-misused-promises",
  ],
  ["a promise as a condition", "if (store.write('row')) await store.write('next');", "no-misused-promises"],
  ["an await of a value that is not a promise", "await rows.length;\nawait store.write('row');", "await-thenable"],
  ["a function of more than 250 lines", "await store.write('row');\n".repeat(250), "max-lines-per-function"],
])("the check rejects %s", (_, body, rule) => {
  const { status, output } = lint("oxlint", createFolder(projectWith(body)));
  expect(output).toContain(rule);
  expect(status).toBe(1);
});

test("the check accepts awaited writes", () => {
  const { status, output } = lint(
    "oxlint",
    createFolder(projectWith("for (const row of rows) await store.write(row);")),
  );
  expect(output).toContain("0 errors");
  expect(status).toBe(0);
});

test("import cycles through several files are listed, including cycles of type imports", () => {
  const folder = createFolder({
    "shared/platform/storage/a.ts":
      'import { b } from "./b.ts";\nexport const a = b;\nexport interface A { a: string }\n',
    "shared/platform/storage/b.ts": 'export { c as b } from "./c.ts";\n',
    "shared/platform/storage/c.ts": 'export const c = 1;\nexport type C = import("./a.ts").A;\n',
    "shared/platform/storage/beside.ts":
      'import type { A } from "./a.ts";\nexport type B = A;\n// from "./nowhere.ts"\n',
  });
  expect(brokenRules(folder)).toEqual([
    "These 3 files form an import cycle (type imports count):",
    "  shared/platform/storage/a.ts -> shared/platform/storage/b.ts",
    "  shared/platform/storage/b.ts -> shared/platform/storage/c.ts",
    "  shared/platform/storage/c.ts -> shared/platform/storage/a.ts",
  ]);
});

test("modules that import each other are listed, even if no file is in a cycle", () => {
  const folder = createFolder({
    "shared/access/one.ts": 'import type { Two } from "../inventory/two.ts";\nexport type One = Two;\n',
    "shared/inventory/two.ts": "export interface Two { two: string }\n",
    "shared/inventory/three.ts": 'import type { Four } from "../access/four.ts";\nexport type Three = Four;\n',
    "shared/access/four.ts": "export interface Four { four: string }\n",
  });
  expect(brokenRules(folder)).toEqual([
    "These modules form an import cycle (type imports count): shared/access, shared/inventory",
  ]);
});

test.each([
  ["shared/platform/storage/a.ts", 'import "../../audit/b.ts";', "platform/storage is in a lower layer than audit"],
  ["shared/platform/time.ts", 'import "./http/problem.ts";', "platform/time.ts is in a lower layer than platform/http"],
  [
    "shared/audit/a.ts",
    'import type { X } from "@azure/data-tables";',
    "only shared/platform/azure and shared/platform/storage",
  ],
  ["shared/audit/a.ts", 'const x = await import("@azure/functions");', "must not import functions/"],
  ["infra/local/a.ts", 'import { x } from "../../shared/platform/time.ts";', "must not import its source"],
  ["infra/functions-host/a.ts", 'import { x } from "../../shared/platform/time.ts";', "must not import its source"],
  ["functions/a.ts", 'import { x } from "../test/support/service.ts";', "must not import infra/ or test/"],
  [
    "shared/rotation/steps/a.ts",
    'import type { X } from "../issuers/client-secrets/plan.ts";',
    "only shared/rotation/issuers/issuers.ts may import an issuer",
  ],
  [
    "shared/rotation/issuers/keys/a.ts",
    'import { x } from "../client-secrets/plan.ts";',
    "only shared/rotation/issuers/issuers.ts may import an issuer",
  ],
  ["shared/elsewhere/a.ts", 'import { x } from "../platform/time.ts";', "is missing in LAYERS"],
])("the import rules reject %s with %s", (file, text, reason) => {
  expect(brokenRules(createFolder({ [file]: `${text}\n` }))).toEqual([expect.stringContaining(reason)]);
});
