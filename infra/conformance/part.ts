import { type Case, observe } from "./case.ts";
import type { Need } from "./needs.ts";
import type { ProgramId } from "./programs.ts";

/**
 * A part of the conformance suite: one file in parts/, which exports it as `part`. A new part needs only a file and its
 * programs in programs.ts, because read-parts.ts finds every file in that folder.
 *
 * While a part runs, the built app is in TEST_APP, so `Service.start` (test/support/service.ts) works, and `os.tmpdir()` is a
 * folder that is deleted at the end. Downloads and installed tools go into `CACHE` (cache.ts).
 */
export interface Part {
  /** Name on the command line. The file has the same name. */
  name: string;
  /** Description of the part, for `--list`. */
  description: string;
  programs: readonly ProgramId[];
  /** Runtimes on this machine. If one is missing, the run fails and says how to get it. */
  needs: readonly Need[];
  /** Environment variable with the path of the program, if no registry has it. Without the variable the part is not run. */
  variable?: string;
  /** Features that do not work or were not tried, as sentences for docs/works-with.md. */
  limits?: readonly string[];
  /** Starts the programs, yields the cases one by one, and stops what it started, also if the caller ends early. */
  run(): AsyncGenerator<PartCase>;
}

/** A case, and the program that it is about. */
export interface PartCase extends Case {
  program: ProgramId;
}

/**
 * Returns a function that runs a case of a program. In a part's `run`:
 * `yield await runCase("name", "expected", async () => "seen")`.
 */
export const caseRunner =
  (program: ProgramId) =>
  async (...args: Parameters<typeof observe>): Promise<PartCase> => ({ program, ...(await observe(...args)) });
