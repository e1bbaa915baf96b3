/**
 * Command `npm run bench`: runs benchmarks, prints their figures, and writes BENCHMARKS.md and docs/cost.md. Ends with exit
 * code 1 if a figure exceeds its bound. See HELP.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import path from "node:path";
import { CLOUD_KEYS } from "../../test/support/test-app.ts";
import { trust } from "../../test/support/trust.ts";
import { commandLine, exitWithUsageError } from "../build/command-line.ts";
// The benchmarks write rows with the service's signing key, which they read from the simulated cloud by its name.
import "../simulated-cloud/loopback-names.mjs";
import { serverCertificate } from "../simulated-cloud/tls.ts";
import { costPage } from "./cost-page.ts";
import { mergedPage, problemsOf, render } from "./page.ts";
import type { Section } from "./section.ts";

/** The benchmarks by name. Each is loaded on demand, so that the help appears at once. */
const sections: Record<string, () => Promise<Section>> = {
  calls: async () => (await import("./calls.ts")).calls(),
  pace: async () => (await import("./pace.ts")).pace(),
  wallTime: async () => (await import("./wall-time.ts")).wallTime(),
  lean: async () => (await import("./lean.ts")).lean(),
  startUp: async () => (await import("./start-up.ts")).startUp(),
  credentials: async () => (await import("./credentials.ts")).credentials(),
  frontDoor: async () => (await import("./front-door.ts")).frontDoor(),
  hostileXml: async () => (await import("./hostile-xml.ts")).hostileXml(),
  rest: async () => (await import("./rest.ts")).measureIdleDay(),
  reads: async () => (await import("./reads.ts")).reads(),
  large: async () => (await import("./large.ts")).large(),
  memory: async () => (await import("./memory.ts")).memory(),
  compliance: async () => (await import("./compliance.ts")).compliance(),
  sixtyDays: async () => (await import("./sixty-days.ts")).sixtyDays(),
  cbom: async () => (await import("./cbom.ts")).cbom(),
  auditExport: async () => (await import("./audit-export.ts")).auditExport(),
  applications: async () => (await import("./applications.ts")).applications(),
  sync: async () => (await import("./sync.ts")).sync(),
  dependencies: async () => (await import("./dependencies.ts")).dependencies(),
  events: async () => (await import("./events.ts")).events(),
  week: async () => (await import("./week.ts")).week(),
  page: async () => (await import("./web-page.ts")).webPage(),
};
const HELP = `npm run bench -- [--check] [NAME…]

Measures the service, prints the figures, writes them to BENCHMARKS.md and updates the costs in docs/cost.md.
The exit code is 1 if a figure exceeds its bound.

  NAME      a benchmark to run; all if none is named: ${Object.keys(sections).join(", ")}
  --check   write nothing; the exit code is also 1 if BENCHMARKS.md has other rows or bounds; values may differ

All benchmarks take about 30 minutes. calls, pace, wallTime, startUp, credentials, frontDoor, hostileXml and rest take at most a minute each, lean
takes six minutes, and memory takes 15 minutes.`;

const { values: options, positionals } = commandLine(HELP, {
  allowPositionals: true,
  options: { check: { type: "boolean", default: false } },
});
const names = positionals.length > 0 ? positionals : Object.keys(sections);
for (const name of names) if (!Object.hasOwn(sections, name)) exitWithUsageError(`There is no benchmark ${name}`);

const file = path.resolve(import.meta.dirname, "../../BENCHMARKS.md");
const page = existsSync(file) ? readFileSync(file, "utf8") : "";
const { default: setUpTests } = await import("../../test/support/global-setup.ts");
const tearDown = await setUpTests();
// Before the first section: the service's modules keep one TLS context per process, which does not change later.
trust(serverCertificate(CLOUD_KEYS).authorityPath);
await cacheOpenApiDocument();
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
| \`npm run bench -- --check\` | Writes nothing. Fails if a figure exceeds its bound, or if this page has other rows or bounds. |

Each row has a figure, what it is compared with (a second number is the ratio), and a bound that fails the command. Counts vary by 1 to 2 %
between runs. Times depend on the machine, so their bounds are wide. [docs/cost.md](docs/cost.md) uses these figures.
`;
  const newPage = mergedPage(page, intro, Object.keys(sections), texts);
  writeFileSync(file, newPage);
  const costFile = path.resolve(import.meta.dirname, "../../docs/cost.md");
  writeFileSync(costFile, costPage(readFileSync(costFile, "utf8"), newPage));
}
await tearDown();
for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);

/**
 * Makes the test client cache the OpenAPI document, with which it compares each response. The client reads it from the first
 * service that it calls, whose process then loads the document's generator (30 MB). So that service must not be measured.
 */
async function cacheOpenApiDocument(): Promise<void> {
  const { Service } = await import("../../test/support/service.ts");
  const company = { vaults: 1, secrets: 1, keys: 1, certificates: 1, subscriptions: 1 };
  const service = await Service.start({ company });
  await service.admin("GET", "/auth/me");
  await service.stop();
}
