import type { Reporter, TestModule } from "vitest/node";

/** Number of tests in a run that may pass only on retry. More than this number indicates a general problem. */
const MOST = 3;

/**
 * Lists the tests that failed first and passed on retry (`retry` in vitest.config.ts). Tests drive processes, a browser and
 * clocks, and a single delay should not block a correct change. Listed tests must be fixed. More than {@link MOST} of them fail
 * the run.
 */
export class SecondTries implements Reporter {
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
    console.error(`\nPassed only at their second try:\n  ${named.join("\n  ")}`);
    if (named.length <= MOST) return;
    console.error(`\nMore than ${MOST} tests needed a second try.`);
    process.exitCode = 1;
  }
}
