/** The results of the mutation tests, and the report of main.ts. */
import type { Change } from "./changes.ts";
import type { Noticed } from "./copy.ts";
import equivalent from "./equivalent.json" with { type: "json" };
import { MODULE_SAMPLE } from "./sample.ts";

/** A mutant with its result. main.ts writes it as a line of the state file. */
export interface JudgedMutant {
  /** The module, or the group of small modules, in which the mutant is reported. */
  group: string;
  change: Change;
  /** The check that noticed the mutant. Undefined if it survived. */
  noticed?: Noticed;
  /** The test that failed. */
  by?: string;
  seconds: number;
}

/** An entry of equivalent.json: a mutant that no test can notice, with the reason. `line` is the trimmed source line. */
interface Equivalent {
  file: string;
  line: string;
  operator: string;
  replacement: string;
  reason: string;
}

/** Minimum share of all tested mutants that the tests must notice. */
const ALL_PERCENT = 70;
/** Minimum share in each module with at least MODULE_SAMPLE tested mutants. */
const MODULE_PERCENT = 50;
/** Maximum share of the tested mutants that equivalent.json may excuse. */
const EQUIVALENT_PERCENT = 5;

/** Returns whether a mutant reached the tests: the compiler and lint accept it. */
export const isTested = ({ noticed }: Pick<JudgedMutant, "noticed">): boolean =>
  noticed !== "types" && noticed !== "lint";

/** Describes a mutant in one line: place, operator, old and new text. */
export function describeChange(change: Change, text: string): string {
  const short = (part: string) => JSON.stringify(part.length > 70 ? `${part.slice(0, 67)}…` : part);
  const { file, line, operator, start, end, replacement } = change;
  return `${file}:${line} ${operator}: ${short(text.slice(start, end))} -> ${short(replacement)}`;
}

/**
 * Prints for each module how many mutants reached the tests and how many of them the tests noticed, then the survivors.
 * Mutants that the compiler or lint rejects have columns of their own, because they never reach the tests.
 *
 * @returns whether all minimum shares are reached.
 */
export function printReport(judgedMutants: JudgedMutant[], textByFile: Map<string, string>): boolean {
  const isEquivalent = (one: JudgedMutant) =>
    one.noticed === undefined && reasonOf(one.change, textByFile) !== undefined;
  const reported = judgedMutants.filter((one) => !isEquivalent(one));
  const problems: string[] = [];
  const printRow = (name: string, all: JudgedMutant[], minimumPercent: number) => {
    const tested = all.filter(isTested);
    const survived = tested.filter(({ noticed }) => noticed === undefined).length;
    const percent = tested.length === 0 ? 100 : (100 * (tested.length - survived)) / tested.length;
    if (percent < minimumPercent)
      problems.push(`${name}: tests noticed ${percent.toFixed(1)} %, at least ${minimumPercent} % required`);
    const countNoticedBy = (what: Noticed) => all.filter(({ noticed }) => noticed === what).length;
    const numbers = [
      tested.length,
      countNoticedBy("tests"),
      countNoticedBy("time"),
      survived,
      percent.toFixed(1),
      countNoticedBy("types"),
      countNoticedBy("lint"),
    ];
    console.log(`${name.padEnd(16)}${numbers.map((each) => String(each).padStart(10)).join("")}`);
  };

  const titles = ["tested", "failed", "timed out", "survived", "noticed %", "(types)", "(lint)"];
  console.log(`\n${"module".padEnd(16)}${titles.map((title) => title.padStart(10)).join("")}`);
  for (const [group, all] of [...Map.groupBy(reported, (one) => one.group)].sort())
    printRow(group, all, all.filter(isTested).length >= MODULE_SAMPLE ? MODULE_PERCENT : 0);
  printRow("all", reported, ALL_PERCENT);
  console.log("\nnoticed % = share of the tested mutants that a test noticed, by a failure or a timeout.");
  console.log("(types), (lint) = mutants that the compiler or lint rejected; they were replaced by others.");

  const equivalents = judgedMutants.filter(isEquivalent);
  if (equivalents.length > (EQUIVALENT_PERCENT / 100) * judgedMutants.filter(isTested).length)
    problems.push(`${equivalents.length} mutants are listed as equivalent, at most ${EQUIVALENT_PERCENT} % allowed`);
  if (equivalents.length > 0) console.log("\nEquivalent:");
  for (const { change } of equivalents)
    console.log(`  ${describeChange(change, textByFile.get(change.file)!)} (${reasonOf(change, textByFile)})`);
  const survivors = reported.filter(({ noticed }) => noticed === undefined);
  if (survivors.length > 0) console.log("\nSurvived:");
  for (const { change } of survivors) console.log(`  ${describeChange(change, textByFile.get(change.file)!)}`);
  const seconds = judgedMutants.reduce((sum, one) => sum + one.seconds, 0) / judgedMutants.length;
  console.log(`\n${seconds.toFixed(1)} s for each mutant and worker.`);
  for (const problem of problems) console.log(`Bound missed: ${problem}`);
  return problems.length === 0;
}

/** Returns the reason why a mutant is listed as equivalent. Undefined if it is not listed. */
function reasonOf(change: Change, textByFile: Map<string, string>): string | undefined {
  const line = textByFile.get(change.file)!.split("\n")[change.line - 1]!.trim();
  return (equivalent as Equivalent[]).find(
    (one) =>
      one.file === change.file &&
      one.line === line &&
      one.operator === change.operator &&
      one.replacement === change.replacement,
  )?.reason;
}
