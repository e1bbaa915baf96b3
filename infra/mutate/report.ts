import type { Change } from "./changes.ts";
import type { Noticed } from "./copy.ts";
import equivalent from "./equivalent.json" with { type: "json" };
import { MODULE_SAMPLE } from "./sample.ts";

export interface Judged {
  /** The module, or the group of small modules, in which the mutant is reported. */
  group: string;
  change: Change;
  /** What noticed the mutant. Undefined if it survived. */
  noticed?: Noticed;
  /** The test that failed. */
  by?: string;
  seconds: number;
}

/** A mutant that no test can notice, with the reason. `line` is the trimmed source line. */
interface Equivalent {
  file: string;
  line: string;
  operator: string;
  replacement: string;
  reason: string;
}

/** Minimum shares of the mutants that compile and pass lint. */
const ALL_PERCENT = 70;
const MODULE_PERCENT = 50;
const EQUIVALENT_PERCENT = 5;

/** Returns whether a mutant reached the tests: the compiler and lint accept it. */
export const isTested = ({ noticed }: Pick<Judged, "noticed">): boolean => noticed !== "types" && noticed !== "lint";

/** Describes a mutant in one line: place, operator, old and new text. */
export function describeChange(change: Change, text: string): string {
  const short = (part: string) => JSON.stringify(part.length > 70 ? `${part.slice(0, 67)}…` : part);
  const { file, line, operator, start, end, replacement } = change;
  return `${file}:${line} ${operator}: ${short(text.slice(start, end))} -> ${short(replacement)}`;
}

/**
 * Prints for each module how many mutants reached the tests and how many of them the tests noticed, then the survivors.
 * Mutants that the compiler or lint rejects are counted beside, since no test could notice them.
 *
 * @returns whether all minimum shares are reached.
 */
export function printReport(judged: Judged[], textOf: Map<string, string>): boolean {
  const isEquivalent = (one: Judged) => one.noticed === undefined && reasonOf(one.change, textOf) !== undefined;
  const counted = judged.filter((one) => !isEquivalent(one));
  const problems: string[] = [];
  const printRow = (name: string, all: Judged[], least: number) => {
    const tested = all.filter(isTested);
    const survived = tested.filter(({ noticed }) => noticed === undefined).length;
    const percent = tested.length === 0 ? 100 : (100 * (tested.length - survived)) / tested.length;
    if (percent < least) problems.push(`${name}: tests noticed ${percent.toFixed(1)} %, at least ${least} % required`);
    const by = (what: Noticed) => all.filter(({ noticed }) => noticed === what).length;
    const numbers = [tested.length, by("tests"), by("time"), survived, percent.toFixed(1), by("types"), by("lint")];
    console.log(`${name.padEnd(16)}${numbers.map((each) => String(each).padStart(10)).join("")}`);
  };

  const titles = ["tested", "failed", "timed out", "survived", "noticed %", "(types)", "(lint)"];
  console.log(`\n${"module".padEnd(16)}${titles.map((title) => title.padStart(10)).join("")}`);
  for (const [group, all] of [...Map.groupBy(counted, (one) => one.group)].sort())
    printRow(group, all, all.filter(isTested).length >= MODULE_SAMPLE ? MODULE_PERCENT : 0);
  printRow("all", counted, ALL_PERCENT);
  console.log("\nnoticed % = share of the tested mutants that a test noticed, by a failure or a timeout.");
  console.log("(types), (lint) = mutants that the compiler or lint rejected; they were replaced by others.");

  const equivalents = judged.filter(isEquivalent);
  if (equivalents.length > (EQUIVALENT_PERCENT / 100) * judged.filter(isTested).length)
    problems.push(`${equivalents.length} mutants are listed as equivalent, at most ${EQUIVALENT_PERCENT} % allowed`);
  if (equivalents.length > 0) console.log("\nEquivalent:");
  for (const { change } of equivalents)
    console.log(`  ${describeChange(change, textOf.get(change.file)!)} (${reasonOf(change, textOf)})`);
  const survivors = counted.filter(({ noticed }) => noticed === undefined);
  if (survivors.length > 0) console.log("\nSurvived:");
  for (const { change } of survivors) console.log(`  ${describeChange(change, textOf.get(change.file)!)}`);
  const seconds = judged.reduce((sum, one) => sum + one.seconds, 0) / judged.length;
  console.log(`\n${seconds.toFixed(1)} s for each mutant and worker.`);
  for (const problem of problems) console.log(`Bound missed: ${problem}`);
  return problems.length === 0;
}

function reasonOf(change: Change, textOf: Map<string, string>): string | undefined {
  const line = textOf.get(change.file)!.split("\n")[change.line - 1]!.trim();
  return (equivalent as Equivalent[]).find(
    (one) =>
      one.file === change.file &&
      one.line === line &&
      one.operator === change.operator &&
      one.replacement === change.replacement,
  )?.reason;
}
