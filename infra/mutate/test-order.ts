import { moduleOf } from "./modules.ts";
import type { Judged } from "./report.ts";

/** Orders tests so that those which noticed the most mutants of a module in the least time run first. */
export class TestOrder {
  readonly #seconds = new Map<string, number>();
  readonly #noticed = new Map<string, number>();

  constructor(judged: Judged[]) {
    for (const one of judged) this.count(one);
  }

  learn(seconds: Record<string, number>): void {
    for (const [test, each] of Object.entries(seconds)) this.#seconds.set(test, each);
  }

  secondsOf(test: string): number | undefined {
    return this.#seconds.get(test);
  }

  count({ change, by }: Judged): void {
    if (by === undefined) return;
    const key = `${moduleOf(change.file)} ${by.split(" ")[0]}`;
    this.#noticed.set(key, (this.#noticed.get(key) ?? 0) + 1);
  }

  /** @param tests - Tests by relevance, which decides the order of tests that have not run yet. */
  sort(tests: string[], module: string): string[] {
    const worth = (test: string, place: number) =>
      (1 / (1 + place) + (this.#noticed.get(`${module} ${test}`) ?? 0)) / (2 + (this.#seconds.get(test) ?? 10));
    const worths = new Map(tests.map((test, place) => [test, worth(test, place)]));
    return [...tests].sort((a, b) => worths.get(b)! - worths.get(a)!);
  }
}
