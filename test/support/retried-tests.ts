import type { Reporter, TestModule } from "vitest/node";

/** Maximum number of tests in a run that may pass only on retry. More of them indicate a general problem. */
const MAX_RETRIED_TESTS = 3;

/**
 * A Vitest reporter that prints the tests that failed first and passed on retry (`retry` in vitest.config.ts). Retries are
 * allowed because tests drive processes, a browser and clocks, and a single delay should not block a correct change. A printed
 * test must be fixed. More than {@link MAX_RETRIED_TESTS} such tests fail the run.
 */
export class RetriedTests implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const retriedTests: string[] = [];
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const diagnostic = test.diagnostic();
        if (!diagnostic?.flaky) continue;
        const { errors = [] } = test.result();
        retriedTests.push(
          `${module.relativeModuleId} > ${test.fullName}\n    ${errors.map(({ message }) => message).join("\n    ")}`,
        );
      }
    }
    if (retriedTests.length === 0) return;
    console.error(`\nPassed only on retry:\n  ${retriedTests.join("\n  ")}`);
    if (retriedTests.length <= MAX_RETRIED_TESTS) return;
    console.error(`\nMore than ${MAX_RETRIED_TESTS} tests needed a retry.`);
    process.exitCode = 1;
  }
}
