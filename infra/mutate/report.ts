import type { Change } from "./changes.ts";
import type { Noticed } from "./copy.ts";
import equivalent from "./equivalent.json" with { type: "json" };
import { ROOM_SAMPLE } from "./sample.ts";

export interface Judged {
  /** The room it is judged with. */
  group: string;
  change: Change;
  /** Left out: it survived. */
  noticed?: Noticed;
  /** The test that noticed. */
  by?: string;
  seconds: number;
}

/** A change that nobody could notice, with the reason. `line` is the source line as it stands, trimmed. */
interface Equivalent {
  file: string;
  line: string;
  operator: string;
  replacement: string;
  reason: string;
}

const ALL_PERCENT = 80;
const ROOM_PERCENT = 65;
const EQUIVALENT_PERCENT = 5;

/** One line: where, what, from what to what. */
export function said(change: Change, text: string): string {
  const short = (part: string) => JSON.stringify(part.length > 70 ? `${part.slice(0, 67)}…` : part);
  const { file, line, operator, start, end, replacement } = change;
  return `${file}:${line} ${operator}: ${short(text.slice(start, end))} -> ${short(replacement)}`;
}

/** Prints what was noticed by what, the survivors and the shares. @returns whether all shares are reached. */
export function printReport(judged: Judged[], textOf: Map<string, string>): boolean {
  const isEquivalent = (one: Judged) => one.noticed === undefined && reasonOf(one.change, textOf) !== undefined;
  const counted = judged.filter((one) => !isEquivalent(one));
  const problems: string[] = [];
  const row = (name: string, all: Judged[], least: number) => {
    const by = (what: Noticed) => all.filter(({ noticed }) => noticed === what).length;
    const survived = all.filter(({ noticed }) => noticed === undefined).length;
    const percent = (100 * (all.length - survived)) / all.length;
    if (percent < least) problems.push(`${name}: ${percent.toFixed(1)} % noticed, at least ${least} %`);
    const numbers = [all.length, by("types"), by("lint"), by("tests"), by("time"), survived];
    console.log(
      `${name.padEnd(16)}${numbers.map((each) => String(each).padStart(10)).join("")}${percent.toFixed(1).padStart(10)}`,
    );
  };

  console.log(
    `\n${["room", "changes", "types", "lint", "tests", "time", "survived", "%"].map((each, place) => (place ? each.padStart(10) : each.padEnd(16))).join("")}`,
  );
  for (const [group, all] of [...Map.groupBy(counted, (one) => one.group)].sort())
    row(group, all, all.length >= ROOM_SAMPLE ? ROOM_PERCENT : 0);
  row("all", counted, ALL_PERCENT);

  const equivalents = judged.filter(isEquivalent);
  if (equivalents.length > (EQUIVALENT_PERCENT / 100) * judged.length)
    problems.push(`${equivalents.length} of ${judged.length} are called equivalent, at most ${EQUIVALENT_PERCENT} %`);
  if (equivalents.length > 0) console.log("\nEquivalent:");
  for (const { change } of equivalents)
    console.log(`  ${said(change, textOf.get(change.file)!)} (${reasonOf(change, textOf)})`);
  const survivors = counted.filter(({ noticed }) => noticed === undefined);
  if (survivors.length > 0) console.log("\nSurvived:");
  for (const { change } of survivors) console.log(`  ${said(change, textOf.get(change.file)!)}`);
  const seconds = judged.reduce((sum, one) => sum + one.seconds, 0) / judged.length;
  console.log(`\n${seconds.toFixed(1)} s a change in one worker.`);
  for (const problem of problems) console.log(`Too few: ${problem}`);
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
