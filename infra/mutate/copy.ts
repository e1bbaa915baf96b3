import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Change } from "./changes.ts";

/** What noticed a change; `time`: the tests did not end within their limit. */
export type Noticed = "types" | "lint" | "tests" | "time";

export interface TestRun {
  failed: { file: string; test: string; message: string }[];
  /** Seconds that each file took, of those that ran. */
  seconds: Record<string, number>;
}

/** It has a compiler configuration of its own. */
const PAGE = "functions/web/";

const OF_VALUES = new Set(["one more", "one less", "true and false swapped", "empty text"]);

/** Whether a change makes no promise of what is none, nor the other way round. */
const keepsPromises = ({ operator, replacement }: Change): boolean =>
  OF_VALUES.has(operator) || (operator === "another operator" && !["&&", "||"].includes(replacement));

/** A copy of the project that one change after the other is made in. */
export class Copy {
  readonly folder: string;
  readonly #root: string;
  readonly #declarations: string;
  #errorsBefore = new Set<string>();
  /** The app is built in the same place each time, so that what V8 compiled of unchanged files serves again. */
  readonly #kept: Record<string, string>;

  /** Copies every file git knows, as it is now. The dependencies are shared. */
  constructor(root: string) {
    this.#root = root;
    this.folder = mkdtempSync(path.join(tmpdir(), "mutate-"));
    this.#declarations = path.join(this.folder, ".local/declarations");
    this.#kept = {
      TEST_APP: path.join(this.folder, ".local/test-app"),
      TEST_COMPILE_CACHE: path.join(this.folder, ".local/compile-cache"),
    };
    const files = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: root });
    for (const file of files.toString().split("\0").filter(Boolean)) {
      mkdirSync(path.dirname(path.join(this.folder, file)), { recursive: true });
      cpSync(path.join(root, file), path.join(this.folder, file));
    }
    // The page has some of its own.
    for (const folder of ["node_modules", "functions/web/node_modules"])
      symlinkSync(path.join(root, folder), path.join(this.folder, folder), "dir");
  }

  /** @param text the file as it was when the change was drawn. */
  make(change: Change, text: string): void {
    const changed = text.slice(0, change.start) + change.replacement + text.slice(change.end);
    writeFileSync(path.join(this.folder, change.file), changed);
  }

  undo(change: Change, text: string): void {
    writeFileSync(path.join(this.folder, change.file), text);
  }

  /** Whether the compiler says nothing that it did not say of the unchanged code, line numbers aside. */
  async typesHold({ file }: Change): Promise<boolean> {
    const errors = await (file.startsWith(PAGE) ? this.#typeErrorsOfPage() : this.#typeErrors());
    return errors.every((error) => this.#errorsBefore.has(error));
  }

  /** To be called once, before any change. */
  async begin(): Promise<void> {
    const { code, output } = await this.#run("node", ["infra/build/page-types.ts"]);
    if (code !== 0) throw new Error(`The page's types could not be written:\n${output}`);
    this.#errorsBefore = new Set([...(await this.#typeErrors()), ...(await this.#typeErrorsOfPage())]);
  }

  /**
   * The compiler keeps what it found beside it, for the files that do not change until the next time. By the declarations
   * that it writes it knows which other files a change leaves alone. Of some it says errors that it finds only by writing.
   */
  #typeErrors(): Promise<string[]> {
    const known = ["--incremental", "--tsBuildInfoFile", path.join(this.folder, "types.tsbuildinfo")];
    const written = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", this.#declarations];
    return this.#compile(["-p", ".", ...known, ...written]);
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
   * The rules of `npm run check` that read one file. Biome's formatting is not asked for. Oxlint's are about promises and
   * spread arguments, and see nothing else in a file where only a value or a comparison changed.
   */
  async lintHolds(change: Change): Promise<boolean> {
    const { file } = change;
    if ((await this.#run("biome", ["lint", "--vcs-enabled=false", file])).code !== 0) return false;
    if (keepsPromises(change)) return true;
    return (await this.#run("oxlint", ["--type-aware", file])).code === 0;
  }

  /** Runs test files in this order until one fails. @returns undefined when they did not end in time. */
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
      { limitSeconds, environment: { TEST_ORDER: files.join(","), ...this.#kept } },
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
      const { testResults } = JSON.parse(readFileSync(report, "utf8")) as Report;
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
      // The tests did not even begin, as when the app can't be built: the output says why.
    }
    if (code !== 0 && run.failed.length === 0) run.failed.push({ file: "", test: "(no test ran)", message: output });
    return run;
  }

  /** @returns the exit code, undefined when it was ended at its limit. */
  async #run(
    program: string,
    args: string[],
    options: { limitSeconds?: number; environment?: Record<string, string> } = {},
  ): Promise<{ code: number | undefined; output: string }> {
    // A group of its own, so that everything the tests started ends with them.
    const child = spawn(path.join(this.#root, "node_modules/.bin", program), args, {
      cwd: this.folder,
      env: { ...process.env, CI: "", ...options.environment },
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const end = () => endGroup(child.pid);
    process.once("exit", end);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-20_000);
      });
    }
    let isLate = false;
    const limit = setTimeout(
      () => {
        isLate = true;
        end();
      },
      (options.limitSeconds ?? 600) * 1000,
    );
    const code = await new Promise<number>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (exitCode) => resolve(exitCode ?? 1));
    });
    clearTimeout(limit);
    process.off("exit", end);
    end();
    return { code: isLate ? undefined : code, output };
  }
}

interface Report {
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
    // Nobody of the group is left.
  }
}
