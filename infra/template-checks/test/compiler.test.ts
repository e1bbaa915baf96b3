import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { compileBicep } from "../bicep/compiler.ts";
import { ROOT } from "../files.ts";

// Tests of the use of Bicep's compiler, with programs that write what the compiler writes.

const folder = mkdtempSync(path.join(tmpdir(), "compilers-"));
afterAll(() => rmSync(folder, { recursive: true }));

const FILES = ["infra/azure/main.bicep", "infra/azure/service.bicep"];
/** Two files call the module with the mistake. */
const MODULE_ERROR = `${ROOT}/infra/azure/modules/app.bicep(12,3) : Error BCP035: The property "kind" is missing.`;
const WARNING = `${ROOT}/infra/azure/main.bicep(1,1) : Warning no-unused-params: Unused.`;

/** Creates a program, and returns an environment that has only this program and the shell's own commands. */
function withProgram(name: string, script: string): { PATH: string } {
  const bin = path.join(folder, `bin-${Math.random()}`);
  mkdirSync(bin);
  writeFileSync(path.join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o700 });
  return { PATH: bin };
}

test("without a compiler there is no result, rather than one without findings", () => {
  expect(compileBicep(FILES, { PATH: folder })).toBeUndefined();
});

test("an Azure CLI without the compiler is not used, because it would download the compiler", () => {
  const download = path.join(folder, "downloaded");
  const script = `[ "$2" = version ] && exit 1; : > "${download}"`;
  const findings = compileBicep(FILES, withProgram("az", script));
  expect([findings, existsSync(download)]).toEqual([undefined, false]);
});

test.each([
  ["bicep", ""],
  ["az", "ERROR: "],
])("errors of %s are findings with file and line, each once, and warnings are none", (name, prefix) => {
  const script = `case "$*" in *build*) echo '${prefix}${MODULE_ERROR}' >&2; echo '${WARNING}' >&2; exit 1;; esac`;
  expect(compileBicep(FILES, withProgram(name, script))).toEqual([
    { file: "infra/azure/modules/app.bicep", line: 12, message: 'BCP035: The property "kind" is missing.' },
  ]);
});

test("files that compile have no finding, and a compiler that fails without a message has one for each file", () => {
  expect(compileBicep(FILES, withProgram("bicep", "exit 0"))).toEqual([]);
  const broken = withProgram("bicep", '[ "$1" = --version ] || { echo "no libicu" >&2; exit 134; }');
  expect(compileBicep(FILES, broken)).toEqual(
    FILES.map((file) => ({ file, line: 1, message: "does not compile: no libicu" })),
  );
});
