import type { Reporter, TestModule } from "vitest/node";

/** Number of tests in a run that may pass only on retry. More than this number indicates a general problem. */
const MAX_RETRIED_TESTS = 3;

/**
 * Lists the tests that failed first and passed on retry (`retry` in vitest.config.ts). Tests drive processes, a browser and
 * clocks, and a single delay should not block a correct change. Listed tests must be fixed. More than {@link MAX_RETRIED_TESTS} of them fail
 * the run.
 */
export class RetriedTests implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const named: string[] = [];
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const diagnostic = test.diagnostic();
        if (!diagnostic?.flaky) continue;
        const { errors = [] } = test.result();
        named.push(
          `${module.relativeModuleId} > ${test.fullName}\n    ${errors.map(({ message }) => message).join("\n    ")}`,
        );
      }
    }
    if (named.length === 0) return;
    console.error(`\nPassed only on retry:\n  ${named.join("\n  ")}`);
    if (named.length <= MAX_RETRIED_TESTS) return;
    console.error(`\nMore than ${MAX_RETRIED_TESTS} tests needed a retry.`);
    process.exitCode = 1;
  }
}
