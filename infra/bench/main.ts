/**
 * Measures the service and writes BENCHMARKS.md: what each figure is, what it is compared with, and the bound it is held
 * to. `npm run bench` runs everything, `npm run bench -- calls start` some.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import path from "node:path";
import setup from "../../test/support/global-setup.ts";
import { auditExport } from "./audit-export.ts";
import { calls } from "./calls.ts";
import { compliance } from "./compliance.ts";
import { large } from "./large.ts";
import type { Section } from "./section.ts";
import { sixtyDays } from "./sixty-days.ts";
import { startUp } from "./start-up.ts";
import { wallTime } from "./wall-time.ts";

const sections: Record<string, () => Promise<Section>> = {
  calls,
  wallTime,
  startUp,
  large,
  compliance,
  sixtyDays,
  auditExport,
};
const asked = process.argv.slice(2);
const names = asked.length > 0 ? asked : Object.keys(sections);
const file = path.resolve(import.meta.dirname, "../../BENCHMARKS.md");

await setup();
const results = new Map<string, string>();
for (const name of names) {
  const run = sections[name];
  if (!run) throw new Error(`There is no benchmark ${name}; there are ${Object.keys(sections).join(", ")}.`);
  console.log(`\n· ${name}`);
  const text = render(name, await run());
  console.log(text);
  results.set(name, text);
}
writeFileSync(file, merged());
process.exit(0);

function render(name: string, section: Section): string {
  const rows = section.figures.map(
    (figure) => `| ${figure.what} | ${figure.value} | ${figure.comparedWith} | ${figure.bound ?? ""} |`,
  );
  return [
    `<!-- ${name} -->`,
    `## ${section.title}`,
    "",
    section.how,
    "",
    "| what | figure | compared with | bound |",
    "| --- | --- | --- | --- |",
    ...rows,
    `<!-- /${name} -->`,
  ].join("\n");
}

/** The sections just measured, and of the others what stood there before. */
function merged(): string {
  const before = (() => {
    try {
      return readFileSync(file, "utf8");
    } catch {
      return "";
    }
  })();
  const parts = Object.keys(sections).flatMap((name) => {
    const old = new RegExp(`<!-- ${name} -->[\\s\\S]*<!-- /${name} -->`).exec(before)?.[0];
    const text = results.get(name) ?? old;
    return text ? [text] : [];
  });
  const intro = `# Benchmarks\n\nMeasured by \`npm run bench\` on ${cpus().length} cores, Node ${process.version}, against Azurite in memory and the stand-in cloud. Counts are exact; times depend on the machine.\n`;
  return `${[intro, ...parts].join("\n\n")}\n`;
}
