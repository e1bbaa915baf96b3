/**
 * `npm run mutate`: mutation tests. Changes one place of the code at a time (the changed code is a mutant) and runs the tests
 * of the module. A mutant that no test notices survives; it shows behavior that the tests do not check.
 *
 * Stryker is not used. It needs the compiler's JavaScript API, which TypeScript 7 does not have, and it can't draw a sample by
 * a seed. Most tests here also start the built app in a process of its own.
 */
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { commandLine, exitWithUsageError } from "../build/command-line.ts";
import { type Change, placesIn } from "./changes.ts";
import { ProjectCopy, type TestRun } from "./copy.ts";
import { moduleOf, readTests } from "./modules.ts";
import { describeChange, isTested, type JudgedMutant, printReport } from "./report.ts";
import { drawMutants } from "./sample.ts";
import { TestOrder } from "./test-order.ts";

const HELP = `npm run mutate -- --sample N --seed S [--module MODULE] [--workers N] [--resume | --survivors] [--list]

  --sample N       number of mutants to test (400)
  --seed S         seed of the draw; the same seed and code give the same mutants (default: a random seed, which is printed)
  --module MODULE  draws mutants only in shared/MODULE, in shared/platform/MODULE or in functions; --room is an alias
  --workers N      number of mutants to test at the same time, each in a copy of the project (2)
  --resume         continues the last run with the same seed, sample and module
  --survivors      tests the survivors of that run again, after tests were added
  --list           prints the first mutants of the draw and exits

A mutant is the code with one change. Mutants that the compiler or lint rejects are replaced, until N reach the tests of their
module. The report states for each module which share of them the tests noticed. Exits with 1 if the tests notice less than
70 % of all mutants, or less than 50 % in a module with at least 20. infra/mutate/equivalent.json lists mutants that change no
behavior, with the reason. A test file that notices a mutant must pass without it. The results are saved in .local/mutate/.
400 mutants take about five hours on two cores.`;

const root = path.resolve(import.meta.dirname, "../..");
/** Files that determine which mutants are drawn. */
const CODE = ["{shared,functions}/**/*.ts", "infra/mutate/*.ts"];
/** Other files that determine which mutants are noticed. */
const TESTS = ["{test,infra/{local,build,simulated-cloud,functions-host,template-checks}}/**/*.ts"];
/** Maximum duration of the tests of one mutant. */
const LIMIT_SECONDS = 900;
/** Assumed duration of a test file that has not run yet. */
const UNKNOWN_SECONDS = 300;
const { values: options } = commandLine(HELP, {
  options: {
    sample: { type: "string", default: "400" },
    seed: { type: "string" },
    module: { type: "string" },
    room: { type: "string" },
    workers: { type: "string", default: "2" },
    resume: { type: "boolean", default: false },
    survivors: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});
const module = options.module ?? options.room;
const sample = wholeNumber("sample", options.sample);
const seed = options.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : wholeNumber("seed", options.seed);
const workers = wholeNumber("workers", options.workers);

const GENERATED = ["functions/web/src/api/operations.ts", "functions/web/src/api/schema.d.ts"];
const EXCLUDED = ["**/node_modules", "**/*.test.ts", ...GENERATED];
const sources = globSync("{shared,functions}/**/*.ts", { cwd: root, exclude: EXCLUDED })
  .map((file) => file.split(path.sep).join("/"))
  .filter((file) => module === undefined || moduleOf(file) === module)
  .sort();
const textByFile = new Map(sources.map((file) => [file, readFileSync(path.join(root, file), "utf8")]));
const groupDraws = drawMutants(
  sources.flatMap((file) => placesIn(file, textByFile.get(file)!)),
  sample,
  seed,
);
const totalQuota = groupDraws.reduce((sum, { quota }) => sum + quota, 0);
if (totalQuota === 0) fail(`There is nothing to change in ${module ?? "shared/ and functions/"}.`);
console.log(`${totalQuota} mutants by --seed ${seed}${module ? ` in ${module}` : ""}`);
if (options.list) {
  for (const { quota, candidates } of groupDraws)
    for (const change of candidates.slice(0, quota)) console.log(describeChange(change, textByFile.get(change.file)!));
  process.exit(0);
}

const testsOf = readTests(root);
const stateFilePath = createStateFile();
const judgedMutants: JudgedMutant[] = readFileSync(stateFilePath, "utf8")
  .split("\n")
  .slice(1)
  .filter(Boolean)
  .map((line) => JSON.parse(line));
const copies = Array.from({ length: workers }, () => new ProjectCopy(root));
process.on("exit", () => {
  for (const copy of copies) copy.remove();
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));

const order = new TestOrder(judgedMutants);
/**
 * For each group of mutants (a module, or all small modules): the number of mutants that still have to be tested (`open`,
 * without those in progress), and the candidates that were not tried yet.
 */
const groups = groupDraws.map(({ group, quota, candidates }) => ({
  group,
  open: quota - judgedMutants.filter((judgedMutant) => judgedMutant.group === group && isTested(judgedMutant)).length,
  candidates: candidates.filter((change) => !judgedMutants.some((judgedMutant) => isSame(judgedMutant.change, change))),
}));
/** Test files that passed without a mutant, with their durations. */
const passingTests = readPassingTests();
order.saveDurations(passingTests.seconds);
await Promise.all(copies.map((copy) => runWorker(copy)));
process.exitCode = printReport(judgedMutants, textByFile) ? 0 : 1;

async function runWorker(copy: ProjectCopy): Promise<void> {
  await copy.recordBaseline();
  for (;;) {
    const group = groups.find(({ open, candidates }) => open > 0 && candidates.length > 0);
    if (group === undefined) return;
    const change = group.candidates.shift()!;
    group.open -= 1;
    const judgedMutant = await judge(copy, group.group, change);
    if (!isTested(judgedMutant)) group.open += 1;
    judgedMutants.push(judgedMutant);
    order.count(judgedMutant);
    appendFileSync(stateFilePath, `${JSON.stringify(judgedMutant)}\n`);
    const outcome = judgedMutant.noticed ? `noticed by ${judgedMutant.noticed}` : "SURVIVED";
    const text = describeChange(change, textByFile.get(change.file)!);
    console.log(
      `[${judgedMutants.filter(isTested).length}/${totalQuota}] ${outcome} (${judgedMutant.seconds.toFixed(0)} s) ${text}`,
    );
  }
}

async function judge(copy: ProjectCopy, group: string, change: Change): Promise<JudgedMutant> {
  const startMs = Date.now();
  const text = textByFile.get(change.file)!;
  copy.apply(change, text);
  const { test, ...verdict } = await findDetection(copy, change);
  const seconds = (Date.now() - startMs) / 1000;
  copy.revert(change, text);
  if (test !== undefined) await requirePassing(copy, test);
  return { group, change, ...verdict, seconds };
}

/** Compiles, lints and tests a mutant. Returns what noticed it, and the test file that failed. */
async function findDetection(
  copy: ProjectCopy,
  change: Change,
): Promise<Pick<JudgedMutant, "noticed" | "by"> & { test?: string }> {
  if (!(await copy.compiles(change))) return { noticed: "types" };
  if (!(await copy.passesLint(change))) return { noticed: "lint" };
  const tests = order.sort(testsOf(change.file), moduleOf(change.file));
  const expected = tests.reduce((sum, test) => sum + (order.secondsOf(test) ?? UNKNOWN_SECONDS), 0);
  // Two minutes for the start and the build, and three times the usual duration of the tests.
  const limitSeconds = Math.min(LIMIT_SECONDS, 120 + 3 * expected);
  const run = await copy.test(tests, limitSeconds);
  if (run === undefined) return { noticed: "time" };
  const [failure] = run.failed;
  // A failed file ended early, so its duration is not that of a complete run.
  for (const { file } of run.failed) delete run.seconds[file];
  order.saveDurations(run.seconds);
  if (failure === undefined) return {};
  // A timeout can be caused by a busy machine, so the test must time out twice.
  if (failure.file && /timed? ?out|still (?:queued|running)/i.test(failure.message)) {
    const secondRun = await copy.test([failure.file], limitSeconds);
    if (secondRun?.failed.length === 0) {
      const laterTestsRun = await copy.test(tests.slice(tests.indexOf(failure.file) + 1), limitSeconds);
      if (laterTestsRun === undefined) return { noticed: "time" };
      return noticedBy(laterTestsRun.failed[0], tests);
    }
  }
  return noticedBy(failure, tests);
}

/**
 * Returns the verdict of a failure. `test` is the file that must pass without the mutant: the failed one, or the first one if
 * the run failed before any file (`file` is then empty).
 */
function noticedBy(failure: TestRun["failed"][number] | undefined, tests: string[]) {
  if (!failure) return {};
  return { noticed: "tests" as const, by: `${failure.file} ${failure.test}`, test: failure.file || tests[0]! };
}

/** Exits with 1 if a test that noticed a mutant also fails without it. */
async function requirePassing(copy: ProjectCopy, test: string): Promise<void> {
  if (test in passingTests.seconds) return;
  const run = await copy.test([test], LIMIT_SECONDS);
  if (run === undefined) fail(`${test} did not end within 15 minutes without a mutant.`);
  if (run.failed.length > 0) fail(`${test} fails without a mutant: ${JSON.stringify(run.failed[0])}`);
  order.saveDurations(run.seconds);
  Object.assign(passingTests.seconds, run.seconds);
  writeFileSync(passingTests.file, JSON.stringify(passingTests.seconds));
}

/** Reads which test files passed in earlier runs with the same code and tests. */
function readPassingTests(): { file: string; seconds: Record<string, number> } {
  const file = path.join(path.dirname(stateFilePath), `${digest(CODE)}-${digest(TESTS)}.seconds.json`);
  return { file, seconds: existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {} };
}

/**
 * Creates the state file: a first line with digests of the code and the tests, then one line for each tested mutant. --resume
 * keeps all lines. --survivors keeps the lines of mutants that a test noticed.
 */
function createStateFile(): string {
  const folder = path.join(root, ".local/mutate");
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${[seed, sample, module ?? "all"].join("-")}.jsonl`);
  const headLine = JSON.stringify({ code: digest(CODE), tests: digest(TESTS) });
  const [oldHeadLine = "", ...oldLines] = existsSync(file)
    ? readFileSync(file, "utf8").split("\n").filter(Boolean)
    : [];
  const oldDigests = oldHeadLine === "" ? undefined : (JSON.parse(oldHeadLine) as { code: string; tests: string });
  if (options.resume && oldDigests && oldHeadLine !== headLine)
    fail("The code or its tests have changed since that run: start a new run without --resume, or with --survivors.");
  if (options.survivors && oldDigests?.code !== digest(CODE))
    fail("There is no run of this code with the same seed, sample and module: start one without --survivors.");
  const lines = options.resume
    ? oldLines
    : options.survivors
      ? oldLines.filter((line) => JSON.parse(line).noticed)
      : [];
  writeFileSync(file, `${[headLine, ...lines].join("\n")}\n`);
  return file;
}

/** Returns a digest of the paths and contents of the files that match the patterns. */
function digest(patterns: string[]): string {
  const hash = createHash("sha256");
  for (const file of globSync(patterns, { cwd: root }).sort())
    hash.update(file).update(readFileSync(path.join(root, file)));
  return hash.digest("hex").slice(0, 16);
}

function isSame(a: Change, b: Change): boolean {
  return a.file === b.file && a.start === b.start && a.end === b.end && a.replacement === b.replacement;
}

function wholeNumber(name: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) exitWithUsageError(`--${name} must be a whole number, not "${text}"`);
  return Number(text);
}

function fail(text: string): never {
  console.error(text);
  process.exit(1);
}
