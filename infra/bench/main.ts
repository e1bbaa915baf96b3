/** Measures the service and holds the figures to their bounds. See HELP. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import path from "node:path";
import setup from "../../test/support/global-setup.ts";
import { commandLine } from "../build/command-line.ts";
import { applications } from "./applications.ts";
import { auditExport } from "./audit-export.ts";
import { calls } from "./calls.ts";
import { compliance } from "./compliance.ts";
import { credentials } from "./credentials.ts";
import { dependencies } from "./dependencies.ts";
import { large } from "./large.ts";
import { mergedPage, problemsOf, render } from "./page.ts";
import { rest } from "./rest.ts";
import type { Section } from "./section.ts";
import { sixtyDays } from "./sixty-days.ts";
import { startUp } from "./start-up.ts";
import { sync } from "./sync.ts";
import { wallTime } from "./wall-time.ts";

const sections: Record<string, () => Promise<Section>> = {
  calls,
  wallTime,
  startUp,
  credentials,
  rest,
  large,
  compliance,
  sixtyDays,
  auditExport,
  applications,
  sync,
  dependencies,
};
const HELP = `npm run bench -- [--check] [NAME…]

Measures the service, prints the figures and writes them into BENCHMARKS.md. Ends with 1 when a figure exceeds its bound.

  NAME      one of ${Object.keys(sections).join(", ")}; all of them if none is named
  --check   writes nothing, and ends with 1 as well when BENCHMARKS.md has other figures or bounds than are printed

All of them take some 20 minutes; calls, wallTime, startUp, credentials and rest a minute each at most.`;

const { values: options, positionals } = commandLine(HELP, {
  allowPositionals: true,
  options: { check: { type: "boolean", default: false } },
});
const names = positionals.length > 0 ? positionals : Object.keys(sections);
for (const name of names) if (!(name in sections)) fail(`There is no benchmark ${name}.`);

const file = path.resolve(import.meta.dirname, "../../BENCHMARKS.md");
const page = existsSync(file) ? readFileSync(file, "utf8") : "";
const remove = await setup();
const texts = new Map<string, string>();
const problems: string[] = [];
for (const name of names) {
  console.log(`\n· ${name}`);
  const section = await sections[name]!();
  const text = render(name, section);
  console.log(text);
  texts.set(name, text);
  problems.push(...problemsOf(name, section, options.check ? page : undefined));
}
if (!options.check) {
  const intro = `# Benchmarks

Measured by \`npm run bench\` on ${cpus().length} cores, Node ${process.version}, against Azurite in memory and the stand-in cloud. Counts may differ by one or two in a hundred from run to run; times depend on the machine. Bounds are wide where they are about time. \`npm run bench -- --check\` fails where one does not hold.
`;
  writeFileSync(file, mergedPage(page, intro, Object.keys(sections), texts));
}
await remove();
for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);

function fail(text: string): never {
  console.error(`${text}\n\n${HELP}`);
  process.exit(1);
}
