/** Measures the service and compares the figures with their bounds. See HELP. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import path from "node:path";
import { commandLine, usedWrong } from "../build/command-line.ts";
import { costPage } from "./cost-page.ts";
import { mergedPage, problemsOf, render } from "./page.ts";
import type { Section } from "./section.ts";

/** Loaded on demand, so that the help appears at once. */
const sections: Record<string, () => Promise<Section>> = {
  calls: async () => (await import("./calls.ts")).calls(),
  wallTime: async () => (await import("./wall-time.ts")).wallTime(),
  lean: async () => (await import("./lean.ts")).lean(),
  startUp: async () => (await import("./start-up.ts")).startUp(),
  credentials: async () => (await import("./credentials.ts")).credentials(),
  frontDoor: async () => (await import("./front-door.ts")).frontDoor(),
  rest: async () => (await import("./rest.ts")).rest(),
  reads: async () => (await import("./reads.ts")).reads(),
  large: async () => (await import("./large.ts")).large(),
  memory: async () => (await import("./memory.ts")).memory(),
  compliance: async () => (await import("./compliance.ts")).compliance(),
  sixtyDays: async () => (await import("./sixty-days.ts")).sixtyDays(),
  auditExport: async () => (await import("./audit-export.ts")).auditExport(),
  applications: async () => (await import("./applications.ts")).applications(),
  sync: async () => (await import("./sync.ts")).sync(),
  dependencies: async () => (await import("./dependencies.ts")).dependencies(),
  events: async () => (await import("./events.ts")).events(),
  week: async () => (await import("./week.ts")).week(),
  page: async () => (await import("./web-page.ts")).webPage(),
};
const HELP = `npm run bench -- [--check] [NAME…]

Measures the service, prints the figures and writes them into BENCHMARKS.md, and what follows from
them into docs/cost.md. Ends with 1 when a figure exceeds its bound.

  NAME      one of ${Object.keys(sections).join(", ")}; all of them if none is named
  --check   writes nothing, and ends with 1 as well when BENCHMARKS.md has other figures or bounds than are printed

All of them take some 30 minutes; calls, wallTime, startUp, credentials, frontDoor and rest a minute each at most, lean six, memory
a quarter of an hour.`;

const { values: options, positionals } = commandLine(HELP, {
  allowPositionals: true,
  options: { check: { type: "boolean", default: false } },
});
const names = positionals.length > 0 ? positionals : Object.keys(sections);
for (const name of names) if (!Object.hasOwn(sections, name)) usedWrong(`There is no benchmark ${name}`);

const file = path.resolve(import.meta.dirname, "../../BENCHMARKS.md");
const page = existsSync(file) ? readFileSync(file, "utf8") : "";
const { default: setup } = await import("../../test/support/global-setup.ts");
const remove = await setup();
await readDescription();
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

Measured on ${cpus().length} cores with Node ${process.version}, against Azurite in memory and the simulated cloud.

| command | effect |
| --- | --- |
| \`npm run bench\` | Measures everything and writes this page. Takes about 30 minutes. |
| \`npm run bench -- calls memory\` | Measures the named sections and keeps the others. \`npm run bench -- --help\` lists the names. |
| \`npm run bench -- --check\` | Writes nothing. Fails if a figure exceeds its bound. |

Each row has a figure, what it is compared with (a second number is the ratio), and a bound that fails the command. Counts vary by 1 to 2 %
between runs. Times depend on the machine, so their bounds are wide. [docs/cost.md](docs/cost.md) uses these figures.
`;
  const written = mergedPage(page, intro, Object.keys(sections), texts);
  writeFileSync(file, written);
  const cost = path.resolve(import.meta.dirname, "../../docs/cost.md");
  writeFileSync(cost, costPage(readFileSync(cost, "utf8"), written));
}
await remove();
for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);

/**
 * Responses are compared with the OpenAPI document. The first request for the document loads its generator (30 MB), so no
 * measured process serves it.
 */
async function readDescription(): Promise<void> {
  const { Service } = await import("../../test/support/service.ts");
  const company = { vaults: 1, secrets: 1, keys: 1, certificates: 1, subscriptions: 1 };
  const service = await Service.start({ company });
  await service.admin("GET", "/auth/me");
  await service.stop();
}
