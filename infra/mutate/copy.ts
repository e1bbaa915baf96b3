import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Change } from "./changes.ts";

/** The check that noticed a mutant: the compiler, lint, a failed test, or `time`, if the tests exceeded their time limit. */
export type Noticed = "types" | "lint" | "tests" | "time";

export interface TestRun {
  /** The failed tests. At most those of one file, because a run ends at the first failure. */
  failed: { file: string; test: string; message: string }[];
  /** Duration in seconds of each file that ran. */
  seconds: Record<string, number>;
}

/** Time limit of a command that is not a test run: a compilation or a lint run. */
const COMMAND_LIMIT_SECONDS = 600;
/** Maximum stored length of a command's output. The end of the output is stored, and shown if the command fails. */
const MAX_OUTPUT_CHARACTERS = 20_000;
/** Folder of the page (the web UI), which has its own compiler configuration. */
const PAGE = "functions/web/";

const VALUE_OPERATORS = new Set(["one more", "one less", "true and false swapped", "empty text"]);

/** Returns whether a change can't turn a promise into another value or the reverse. */
const preservesPromises = ({ operator, replacement }: Change): boolean =>
  VALUE_OPERATORS.has(operator) || (operator === "another operator" && !["&&", "||"].includes(replacement));

/**
 * A temporary copy of the project in which one mutant at a time is compiled, linted and tested. Each worker of main.ts has its
 * own.
 */
export class ProjectCopy {
  readonly folder: string;
  readonly #root: string;
  readonly #declarations: string;
  /** Compiler errors of the unchanged code. */
  #baselineErrors = new Set<string>();
  /** All builds use the same folder, so that V8's compile cache of unchanged files is reused. */
  readonly #environment: Record<string, string>;

  /** Copies every file that Git tracks or would add. The folders of dependencies are symbolic links. */
  constructor(root: string) {
    this.#root = root;
    this.folder = mkdtempSync(path.join(tmpdir(), "mutate-"));
    this.#declarations = path.join(this.folder, ".local/declarations");
    this.#environment = {
      TEST_APP: path.join(this.folder, ".local/test-app"),
      TEST_COMPILE_CACHE: path.join(this.folder, ".local/compile-cache"),
    };
    const files = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: root });
    for (const file of files.toString().split("\0").filter(Boolean)) {
      mkdirSync(path.dirname(path.join(this.folder, file)), { recursive: true });
      cpSync(path.join(root, file), path.join(this.folder, file));
    }
    // The page has dependencies of its own.
    for (const folder of ["node_modules", "functions/web/node_modules"])
      symlinkSync(path.join(root, folder), path.join(this.folder, folder), "dir");
  }

  /** @param text - The original text of the file. */
  apply(change: Change, text: string): void {
    const changed = text.slice(0, change.start) + change.replacement + text.slice(change.end);
    writeFileSync(path.join(this.folder, change.file), changed);
  }

  revert(change: Change, text: string): void {
    writeFileSync(path.join(this.folder, change.file), text);
  }

  /** Returns whether the compiler reports no new errors. Line numbers are ignored. */
  async compiles({ file }: Change): Promise<boolean> {
    const errors = await (file.startsWith(PAGE) ? this.#typeErrorsOfPage() : this.#typeErrors());
    return errors.every((error) => this.#baselineErrors.has(error));
  }

  /** Records the compiler errors of the unchanged code. Call it once, before the first mutant. */
  async recordBaseline(): Promise<void> {
    const { code, output } = await this.#run("node", ["infra/build/page-types.ts"]);
    if (code !== 0) throw new Error(`The page's types could not be written:\n${output}`);
    this.#baselineErrors = new Set([...(await this.#typeErrors()), ...(await this.#typeErrorsOfPage())]);
  }

  /**
   * Compiles incrementally: the compiler writes its results and the declarations, by which it knows which other files a change
   * affects. Some errors are only found when declarations are written.
   */
  #typeErrors(): Promise<string[]> {
    const incremental = ["--incremental", "--tsBuildInfoFile", path.join(this.folder, "types.tsbuildinfo")];
    const output = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", this.#declarations];
    return this.#compile(["-p", ".", ...incremental, ...output]);
  }

  #typeErrorsOfPage(): Promise<string[]> {
    return this.#compile(["-p", PAGE]);
  }

  async #compile(options: string[]): Promise<string[]> {
    const { code, output } = await this.#run("tsc", options);
    const errors = output.split("\n").filter((line) => line.includes("error TS"));
    if (code !== 0 && errors.length === 0) throw new Error(`The compiler failed:\n${output}`);
    return errors.map((line) => line.replace(/\(\d+,\d+\)/, ""));
  }

  /**
   * Returns whether the mutated file passes the lint rules of `npm run check`, without formatting. Oxlint's rules concern only
   * promises and spread arguments, so they are skipped if only a value or a comparison changed.
   */
  async passesLint(change: Change): Promise<boolean> {
    const { file } = change;
    if ((await this.#run("biome", ["lint", "--vcs-enabled=false", file])).code !== 0) return false;
    if (preservesPromises(change)) return true;
    return (await this.#run("oxlint", ["--type-aware", file])).code === 0;
  }

  /** Runs test files in this order until one fails. Returns undefined if they exceed the limit. */
  async test(files: string[], limitSeconds: number): Promise<TestRun | undefined> {
    const report = path.join(this.folder, "report.json");
    rmSync(report, { force: true });
    const { code, output } = await this.#run(
      "vitest",
      [
        "run",
        "--config",
        "infra/mutate/vitest.config.ts",
        "--bail",
        "1",
        "--reporter=json",
        "--outputFile",
        report,
      ].concat(files),
      { limitSeconds, environment: { TEST_ORDER: files.join(","), ...this.#environment } },
    );
    if (code === undefined) return undefined;
    return this.#read(report, code, output);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  #read(report: string, code: number, output: string): TestRun {
    const run: TestRun = { failed: [], seconds: {} };
    try {
      const { testResults } = JSON.parse(readFileSync(report, "utf8")) as VitestReport;
      for (const { name, status, message, startTime, endTime, assertionResults } of testResults) {
        const file = path.relative(this.folder, name).split(path.sep).join("/");
        const ran = assertionResults.filter(({ status: each }) => each === "passed" || each === "failed");
        if (ran.length > 0) run.seconds[file] = (endTime - startTime) / 1000;
        const failed = assertionResults.filter(({ status: each }) => each === "failed");
        for (const { fullName, failureMessages } of failed) {
          run.failed.push({ file, test: fullName, message: failureMessages[0] ?? "" });
        }
        if (status === "failed" && failed.length === 0) run.failed.push({ file, test: "(the file)", message });
      }
    } catch {
      // There is no report, because the tests did not start, for example because the app can't be built. The output states why.
    }
    if (code !== 0 && run.failed.length === 0) run.failed.push({ file: "", test: "(no test ran)", message: output });
    return run;
  }

  /** Returns the exit code, or undefined if the program exceeded its limit and was ended. */
  async #run(
    program: string,
    args: string[],
    options: { limitSeconds?: number; environment?: Record<string, string> } = {},
  ): Promise<{ code: number | undefined; output: string }> {
    // A process group of its own, so that all processes which the tests started end with them.
    const child = spawn(path.join(this.#root, "node_modules/.bin", program), args, {
      cwd: this.folder,
      // With `CI`, tests whose tools are missing would fail instead of being skipped.
      env: { ...process.env, CI: "", ...options.environment },
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const endProcesses = () => endGroup(child.pid);
    process.once("exit", endProcesses);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-MAX_OUTPUT_CHARACTERS);
      });
    }
    let isTimedOut = false;
    const limit = setTimeout(
      () => {
        isTimedOut = true;
        endProcesses();
      },
      (options.limitSeconds ?? COMMAND_LIMIT_SECONDS) * 1000,
    );
    const code = await new Promise<number>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (exitCode) => resolve(exitCode ?? 1));
    });
    clearTimeout(limit);
    process.off("exit", endProcesses);
    endProcesses();
    return { code: isTimedOut ? undefined : code, output };
  }
}

/** The used part of vitest's JSON report. Times are in milliseconds. */
interface VitestReport {
  testResults: {
    name: string;
    status: string;
    message: string;
    startTime: number;
    endTime: number;
    assertionResults: { fullName: string; status: string; failureMessages: string[] }[];
  }[];
}

function endGroup(leader: number | undefined): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // All processes of the group have ended.
  }
}
