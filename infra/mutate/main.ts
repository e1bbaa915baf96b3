/**
 * Changes one place of the code after the other and looks whether types, lint or tests notice. See HELP.
 *
 * Stryker is not used: it needs the compiler's JavaScript API, which TypeScript 7 does not have, it draws no sample by a
 * seed, and most tests here drive the built app in a process of its own.
 */
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { commandLine, usedWrong } from "../build/command-line.ts";
import { type Change, placesIn } from "./changes.ts";
import { Copy, type TestRun } from "./copy.ts";
import { type Judged, printReport, said } from "./report.ts";
import { readTests, roomOf } from "./rooms.ts";
import { draw } from "./sample.ts";
import { TestOrder } from "./test-order.ts";

const HELP = `npm run mutate -- --sample N --seed S [--room ROOM] [--workers N] [--resume | --survivors] [--list]

  --sample N    how many changes of one place to draw (400)
  --seed S      what they are drawn by; the same seed and code give the same changes (drawn and printed if left out)
  --room ROOM   only of shared/ROOM, or of functions
  --workers N   how many to try at once, each in a copy of the project (2)
  --resume      go on with the last run of the same seed, sample and room
  --survivors   try again what survived it, after tests were added
  --list        print what is drawn and end

Each change runs through types, lint and the tests of its room, and stops at the first that fails. Ends with 1 when less
than 80 % of all or 65 % of a room is noticed. Changes that alter nothing anyone could see are listed with a reason in
infra/mutate/equivalent.json. State lies in .local/mutate/. A test file that notices a
change is run without it once: it must hold. 400 take two to three hours on two cores.`;

const root = path.resolve(import.meta.dirname, "../..");
/** What decides which changes are drawn, and what else decides whether they are noticed. */
const CODE = ["{shared,functions}/**/*.ts", "infra/mutate/*.ts"];
const TESTS = ["{test,infra/local,infra/build}/**/*.ts"];
/** What a room's tests may take at most, those that a change sent round in a loop among them. */
const LIMIT_SECONDS = 900;
/** Of a test file of which nothing is known yet. */
const UNKNOWN_SECONDS = 300;
const { values: options } = commandLine(HELP, {
  options: {
    sample: { type: "string", default: "400" },
    seed: { type: "string" },
    room: { type: "string" },
    workers: { type: "string", default: "2" },
    resume: { type: "boolean", default: false },
    survivors: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});
const sample = wholeNumber("sample", options.sample);
const seed = options.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : wholeNumber("seed", options.seed);
const workers = wholeNumber("workers", options.workers);

/** A build makes them. */
const MADE = ["functions/web/src/api/operations.ts", "functions/web/src/api/schema.d.ts"];
const sources = globSync("{shared,functions}/**/*.ts", { cwd: root, exclude: ["**/node_modules", ...MADE] })
  .map((file) => file.split(path.sep).join("/"))
  .filter((file) => options.room === undefined || roomOf(file) === options.room)
  .sort();
const textOf = new Map(sources.map((file) => [file, readFileSync(path.join(root, file), "utf8")]));
const drawn = draw(
  sources.flatMap((file) => placesIn(file, textOf.get(file)!)),
  sample,
  seed,
);
if (drawn.length === 0) fail(`There is nothing to change in ${options.room ?? "shared/ and functions/"}.`);
console.log(`${drawn.length} changes by --seed ${seed}${options.room ? ` in ${options.room}` : ""}`);
if (options.list) {
  for (const { change } of drawn) console.log(said(change, textOf.get(change.file)!));
  process.exit(0);
}

const testsOf = readTests(root);
const state = stateFile();
const judged: Judged[] = readFileSync(state, "utf8")
  .split("\n")
  .slice(1)
  .filter(Boolean)
  .map((line) => JSON.parse(line));
const copies = Array.from({ length: workers }, () => new Copy(root));
process.on("exit", () => {
  for (const copy of copies) copy.remove();
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));

const order = new TestOrder(judged);
const queue = drawn.filter((one) => !judged.some(({ change }) => isSame(change, one.change)));
/** Seconds of the test files that are known to hold without any change. */
const held = heldFile();
order.learn(held.seconds);
await Promise.all(copies.map((copy) => work(copy)));
process.exitCode = printReport(judged, textOf) ? 0 : 1;

async function work(copy: Copy): Promise<void> {
  await copy.begin();
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const begun = Date.now();
    const text = textOf.get(next.change.file)!;
    copy.make(next.change, text);
    const { test, ...verdict } = await notice(copy, next.change);
    const one: Judged = { ...next, ...verdict, seconds: (Date.now() - begun) / 1000 };
    copy.undo(next.change, text);
    if (test !== undefined) await holdsUnchanged(copy, test);
    judged.push(one);
    order.count(one);
    appendFileSync(state, `${JSON.stringify(one)}\n`);
    const outcome = one.noticed ? `noticed by ${one.noticed}` : "SURVIVED";
    console.log(
      `[${judged.length}/${drawn.length}] ${outcome} (${one.seconds.toFixed(0)} s) ${said(one.change, text)}`,
    );
  }
}

/** `test` is the file that noticed. */
async function notice(copy: Copy, change: Change): Promise<Pick<Judged, "noticed" | "by"> & { test?: string }> {
  if (!(await copy.typesHold(change))) return { noticed: "types" };
  if (!(await copy.lintHolds(change))) return { noticed: "lint" };
  const tests = order.sort(testsOf(change.file), roomOf(change.file));
  const expected = tests.reduce((sum, test) => sum + (order.secondsOf(test) ?? UNKNOWN_SECONDS), 0);
  const limitSeconds = Math.min(LIMIT_SECONDS, 120 + 3 * expected);
  const run = await copy.test(tests, limitSeconds);
  if (run === undefined) return { noticed: "time" };
  const [failure] = run.failed;
  // A file that failed has ended early.
  for (const { file } of run.failed) delete run.seconds[file];
  order.learn(run.seconds);
  if (failure === undefined) return {};
  // A test that only waited too long may have had a busy machine: it must do so twice.
  if (failure.file && /timed? ?out|still (?:queued|running)/i.test(failure.message)) {
    const again = await copy.test([failure.file], limitSeconds);
    if (again?.failed.length === 0) {
      const others = await copy.test(tests.slice(tests.indexOf(failure.file) + 1), limitSeconds);
      if (others === undefined) return { noticed: "time" };
      return noticedBy(others.failed[0], tests);
    }
  }
  return noticedBy(failure, tests);
}

/** Where no test ran, the first of them tells whether that is the change's doing. */
function noticedBy(failure: TestRun["failed"][number] | undefined, tests: string[]) {
  if (!failure) return {};
  return { noticed: "tests" as const, by: `${failure.file} ${failure.test}`, test: failure.file || tests[0]! };
}

/** Ends the run when a test that noticed a change fails without any, too: then it says nothing. */
async function holdsUnchanged(copy: Copy, test: string): Promise<void> {
  if (test in held.seconds) return;
  const run = await copy.test([test], LIMIT_SECONDS);
  if (run === undefined) fail(`${test} did not end within 15 minutes, without any change.`);
  if (run.failed.length > 0) fail(`${test} fails without any change: ${JSON.stringify(run.failed[0])}`);
  order.learn(run.seconds);
  Object.assign(held.seconds, run.seconds);
  writeFileSync(held.file, JSON.stringify(held.seconds));
}

function heldFile(): { file: string; seconds: Record<string, number> } {
  const file = path.join(path.dirname(state), `${digest(CODE)}-${digest(TESTS)}.seconds.json`);
  return { file, seconds: existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {} };
}

/**
 * One line a judged change, after a first line that says of which code and tests. With --resume what is there stays, with
 * --survivors what was noticed.
 */
function stateFile(): string {
  const folder = path.join(root, ".local/mutate");
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${[seed, sample, options.room ?? "all"].join("-")}.jsonl`);
  const head = JSON.stringify({ code: digest(CODE), tests: digest(TESTS) });
  const [oldHead = "", ...old] = existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean) : [];
  const before = oldHead === "" ? undefined : (JSON.parse(oldHead) as { code: string; tests: string });
  if (options.resume && before && oldHead !== head)
    fail("The code or its tests have changed since that run: start again without --resume, or with --survivors.");
  if (options.survivors && before?.code !== digest(CODE))
    fail("There is no run of this code with the same seed, sample and room: start one without --survivors.");
  const kept = options.resume ? old : options.survivors ? old.filter((line) => JSON.parse(line).noticed) : [];
  writeFileSync(file, `${[head, ...kept].join("\n")}\n`);
  return file;
}

/** Of the files that these patterns name, with their paths. */
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
  if (!/^[1-9]\d*$/.test(text)) usedWrong(`--${name} takes a whole number, not "${text}"`);
  return Number(text);
}

function fail(text: string): never {
  console.error(text);
  process.exit(1);
}
