import { moduleOf } from "./modules.ts";
import type { JudgedMutant } from "./report.ts";

/** Time to start any test file. */
const START_SECONDS = 2;
/** Assumed duration of a test file that has not run yet. */
const UNKNOWN_TEST_SECONDS = 10;

/**
 * Orders test files so that those which noticed the most mutants of a module in the least time run first. A run ends at the
 * first failed test, so a good order saves time.
 */
export class TestOrder {
  /** Duration of each test file that has run. */
  readonly #seconds = new Map<string, number>();
  /** Number of noticed mutants, by `<module> <test file>`. */
  readonly #noticedCount = new Map<string, number>();

  constructor(judgedMutants: JudgedMutant[]) {
    for (const one of judgedMutants) this.count(one);
  }

  saveDurations(seconds: Record<string, number>): void {
    for (const [test, each] of Object.entries(seconds)) this.#seconds.set(test, each);
  }

  secondsOf(test: string): number | undefined {
    return this.#seconds.get(test);
  }

  count({ change, by }: JudgedMutant): void {
    if (by === undefined) return;
    const key = `${moduleOf(change.file)} ${by.split(" ")[0]}`;
    this.#noticedCount.set(key, (this.#noticedCount.get(key) ?? 0) + 1);
  }

  /**
   * Sorts the test files by the noticed mutants per second, highest first.
   *
   * @param tests - The test files by relevance, which decides the order while they have noticed no mutants.
   */
  sort(tests: string[], module: string): string[] {
    const scoreOf = (test: string, position: number) => {
      const relevance = 1 / (1 + position);
      const noticed = this.#noticedCount.get(`${module} ${test}`) ?? 0;
      return (relevance + noticed) / (START_SECONDS + (this.#seconds.get(test) ?? UNKNOWN_TEST_SECONDS));
    };
    const scores = new Map(tests.map((test, position) => [test, scoreOf(test, position)]));
    return [...tests].sort((a, b) => scores.get(b)! - scores.get(a)!);
  }
}
