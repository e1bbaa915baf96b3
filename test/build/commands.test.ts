import { execFile } from "node:child_process";
import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { sampled } from "../support/sampling.ts";
import { COMPILE_CACHE } from "../support/test-app.ts";

// Tests of all files that are run as commands: each parses its arguments with `commandLine` and has a `--help`.

const root = path.resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
const sources = globSync("{functions,infra,shared,test}/**/*.ts", { cwd: root, exclude: ["**/node_modules"] }).sort();
const commands = sources.filter((file) => /\bcommandLine\(HELP,/.test(read(file)));
const folder = mkdtempSync(path.join(tmpdir(), "commands-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a command in an empty folder. The tests check that the folder stays empty. */
function run(file: string, argument: string): Promise<{ code: number; out: string; err: string }> {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, NODE_COMPILE_CACHE: COMPILE_CACHE };
  return new Promise((resolve) => {
    execFile(process.execPath, [path.join(root, file), argument], { cwd: folder, env }, (error, out, err) => {
      resolve({ code: error ? Number(error.code) : 0, out, err });
    });
  });
}

test("every command parses its arguments with commandLine", () => {
  const filesOfScripts = Object.values(scripts).flatMap((script) =>
    [...script.matchAll(/\bnode (?:--\S+ )*(\S+\.ts)/g)].map(([, file]) => file!),
  );
  expect(filesOfScripts.length).toBeGreaterThan(12);
  expect(filesOfScripts.filter((file) => !commands.includes(file))).toEqual([]);
  // Tests start the first file. The others record answers and storage of a version.
  const ofTests = ["test/sync/crashing-worker.ts", "test/upgrade/record.ts", "test/http/record-specification.ts"];
  const mentionArguments = ["infra/build/command-line.ts", "test/build/commands.test.ts"];
  const exceptions = [...ofTests, ...mentionArguments];
  const readArguments = sources.filter((file) => /process\.argv|parseArgs\(|import\.meta\.main/.test(read(file)));
  expect(readArguments.filter((file) => !commands.includes(file) && !exceptions.includes(file))).toEqual([]);
});

test.each(commands)("%s --help describes its use", async (file) => {
  const help = await run(file, "--help");
  const names = Object.keys(scripts).filter((name) => scripts[name]!.includes(file));
  const expectedStart = names.length > 0 ? `npm (?:run (?:--silent )?)?${names[0]}\\b` : `node ${file}`;
  expect(help).toEqual({
    code: 0,
    out: expect.stringMatching(new RegExp(`^${expectedStart}.*\\n\\n?.*[a-z]`)),
    err: "",
  });
  expect(readdirSync(folder)).toEqual([]);
});

test.each(sampled(commands, 4))("%s reports an unknown option in one sentence", async (file) => {
  const unknown = await run(file, "--no-such-option");
  expect(unknown).toEqual({ code: 2, out: "", err: "Unknown option '--no-such-option'. See --help.\n" });
  expect(readdirSync(folder)).toEqual([]);
});
