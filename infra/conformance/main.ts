/** Command `npm run conformance`: runs the service with foreign programs and writes docs/works-with.md. See HELP. */
import path from "node:path";
import { commandLine, exitWithUsageError } from "../build/command-line.ts";
import { missingRuntimes } from "./needs.ts";
import { resultOf, writePage, writeResult } from "./page.ts";
import type { Part, PartCase } from "./part.ts";
import { PROGRAMS } from "./programs.ts";
import { readParts } from "./read-parts.ts";

const HELP = `npm run conformance -- [--list | --page] [--without NAME]… [NAME…]

Fetches programs that other people wrote from public package registries, runs the built service with them, and writes the
results to docs/works-with.md. Exits with 1 if a case fails or a runtime is missing.

  NAME             a part to run (default: all)
  --without NAME   leaves a part out, for example because its runtime is missing; can be repeated
  --list           lists the parts, their programs and what they need
  --page           only writes the page from the last results, for example after a merge`;

const { values, positionals } = commandLine(HELP, {
  allowPositionals: true,
  options: {
    list: { type: "boolean", default: false },
    page: { type: "boolean", default: false },
    without: { type: "string", multiple: true, default: [] },
  },
});
const parts = await readParts();
for (const name of [...positionals, ...values.without])
  if (!parts.some((part) => part.name === name)) exitWithUsageError(`There is no part ${name}`);

if (values.list) {
  for (const { name, description, programs, needs, variable } of parts) {
    const versions = programs.map((id) => `${PROGRAMS[id].title} ${PROGRAMS[id].version} (${PROGRAMS[id].registry})`);
    const runtimes = [...needs, ...(variable ? [`a path in ${variable}`] : [])].join(", ");
    console.log(`${name.padEnd(12)}  ${description}\n${" ".repeat(14)}${versions.join(", ")}; needs ${runtimes}`);
  }
  process.exit(0);
}

if (values.page) {
  writePage(parts);
  process.exit(0);
}

const named = parts.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const wanted = named.filter(({ name }) => !values.without.includes(name));
const withoutPath = wanted.filter(({ variable }) => variable !== undefined && !process.env[variable]);
for (const { name, variable } of withoutPath) console.log(`Not run: ${name}, because ${variable} is not set.`);
// A part that is named on the command line must run.
if (withoutPath.some(({ name }) => positionals.includes(name))) process.exit(1);
const selected = wanted.filter((part) => !withoutPath.includes(part));
const missing = selected.flatMap(({ name, needs }) => missingRuntimes(needs).map((line) => ({ name, line })));
if (missing.length > 0) {
  for (const { name, line } of missing) console.error(`${name}: ${line}`);
  const names = [...new Set(missing.map(({ name }) => name))];
  console.error(`Nothing was run. To leave parts out: ${names.map((name) => `--without ${name}`).join(" ")}`);
  process.exit(1);
}

// Builds the app into TEST_APP, and makes a folder of its own the temporary folder of this process and of those it starts.
const { default: setUpTests } = await import("../../test/support/global-setup.ts");
const { CLOUD_KEYS } = await import("../../test/support/test-app.ts");
const { trust } = await import("../../test/support/trust.ts");
const tearDown = await setUpTests();
trust(path.join(CLOUD_KEYS, "ca.pem"));
let failures = 0;
try {
  for (const part of selected) failures += await runPart(part);
} finally {
  await tearDown();
}
writePage(parts);
if (failures > 0) console.error(`\n${failures} cases failed`);
// Storage of the tests stays open until the process ends.
process.exit(failures > 0 ? 1 : 0);

/**
 * Runs a part, prints each case and writes the result.
 * @returns the number of failed cases
 */
async function runPart(part: Part): Promise<number> {
  console.log(`\n· ${part.name}: ${part.description}`);
  const cases: PartCase[] = [];
  try {
    for await (const one of part.run()) {
      cases.push(one);
      const { name, expected, seen, passed } = one;
      console.log(passed ? `  ✓ ${name}: ${seen}` : `  ✗ ${name}\n      expected ${expected}\n      seen     ${seen}`);
    }
  } catch (error) {
    console.error(error);
    const seen = `error: ${(error as Error).message}`;
    cases.push({
      program: part.programs[0]!,
      name: "the part runs to its end",
      expected: "it does",
      seen,
      passed: false,
    });
  }
  for (const program of part.programs)
    if (!cases.some((one) => one.program === program))
      cases.push({ program, name: "at least one case ran", expected: "1 or more", seen: "0", passed: false });
  writeResult(resultOf(part, cases));
  const failed = cases.filter(({ passed }) => !passed).length;
  console.log(`  ${cases.length - failed} of ${cases.length} cases passed`);
  return failed;
}
