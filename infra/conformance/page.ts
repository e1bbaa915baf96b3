import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { ROOT } from "./cache.ts";
import type { Part, PartCase } from "./part.ts";
import { PROGRAMS, type Program, type ProgramId } from "./programs.ts";

// The results of `npm run conformance`: a file for each part, and the page that shows them all. A run of some parts keeps the
// results of the others.

/** The generated page, from the project's folder. */
export const WORKS_WITH = "docs/works-with.md";
const RESULTS = path.join(import.meta.dirname, "results");

/** The last run of a part. */
export interface Result {
  part: string;
  /** Day of the run, YYYY-MM-DD. */
  date: string;
  /** The version of each program in that run. */
  versions: Partial<Record<ProgramId, string>>;
  cases: PartCase[];
}

export const resultOf = (part: Part, cases: PartCase[]): Result => ({
  part: part.name,
  date: new Date().toISOString().slice(0, 10),
  versions: Object.fromEntries(part.programs.map((id) => [id, PROGRAMS[id].version])),
  cases,
});

export function writeResult(result: Result): void {
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(path.join(RESULTS, `${result.part}.json`), `${JSON.stringify(result, undefined, 2)}\n`);
}

/** Returns the last result of a part, undefined if it was never run. */
export function readResult(part: string): Result | undefined {
  const file = path.join(RESULTS, `${part}.json`);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Result) : undefined;
}

/** Writes the page from the last result of each part. */
export function writePage(parts: readonly Part[]): void {
  const results = new Map(parts.map(({ name }) => [name, readResult(name)]));
  writeFileSync(path.join(ROOT, WORKS_WITH), worksWithPage(parts, results));
}

/** Programs and services that no part runs, with the reason. */
const NOT_RUN = [
  [
    "Entra, Okta, ADFS, Ping",
    "Their settings in [claims by provider](single-sign-on-providers.md) are from their documentation.",
  ],
  ["PostgreSQL", "The service does not use it yet."],
  ["Key Vault emulators", "None was found in a package registry."],
  ["HashiCorp Vault", "It is in no package registry. OpenBao has the same API and is run instead."],
];

const INTRO = `# Programs that the service was run with

This page lists programs that other people wrote, and what the built service and each program did together. The service ran with
Azurite and the simulated cloud. \`npm run conformance\` fetches the programs, repeats the cases and writes this page
([testing](testing.md#foreign-programs)). A GitHub workflow runs it every week.`;

/**
 * Returns docs/works-with.md.
 * @param results - The last result of each part, undefined for parts that were never run
 */
export function worksWithPage(parts: readonly Part[], results: ReadonlyMap<string, Result | undefined>): string {
  const rows = parts.flatMap((part) => part.programs.map((id) => summaryRow(part, id, results.get(part.name))));
  const details = parts.flatMap((part) => {
    const result = results.get(part.name);
    return result ? part.programs.map((id) => programSection(part, id, result)) : [];
  });
  const summary = table(["program", "version", "from", "part", "run", "cases", "result"], rows);
  const notRun = table(["program", "reason"], NOT_RUN);
  return `${[INTRO, summary, "Not run:", notRun, ...details].join("\n\n")}\n`;
}

function summaryRow(part: Part, id: ProgramId, result: Result | undefined): string[] {
  const { title, version, registry }: Program = PROGRAMS[id];
  const cases = casesOfProgram(id, result);
  const failed = cases.filter(({ passed }) => !passed).length;
  const outcome = failed === 0 ? "passed" : `**${failed} failed**`;
  const notRun = part.variable ? `not run: needs a path in \`${part.variable}\`` : "not run";
  return [
    result ? `[${title}](#${anchorOf(title)})` : title,
    result?.versions[id] ?? version,
    registry,
    part.name,
    result?.date ?? "",
    result ? String(cases.length) : "",
    result ? outcome : notRun,
  ];
}

/** Returns the cases of a program. The first program of a part also has the part's limits. */
function programSection(part: Part, id: ProgramId, result: Result): string {
  const rows = casesOfProgram(id, result).map(({ name, expected, seen, passed }) => [
    name,
    passed ? seen : `**${seen}**, expected: ${expected}`,
  ]);
  const limits = part.programs[0] === id && part.limits ? [part.limits.map((limit) => `- ${limit}`).join("\n")] : [];
  return [`## ${PROGRAMS[id].title}`, table(["case", "result"], rows), ...limits].join("\n\n");
}

const casesOfProgram = (id: ProgramId, result: Result | undefined): PartCase[] =>
  result?.cases.filter(({ program }) => program === id) ?? [];

const table = (head: string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => "---"), ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`)
    .join("\n");

/** Returns GitHub's anchor of a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\s-]/g, "")
    .replace(/\s/g, "-");
