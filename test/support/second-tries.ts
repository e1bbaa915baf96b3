import type { Reporter, TestModule } from "vitest/node";

/** So many tests of a run may pass at their second try only; more say that something is wrong with all of it. */
const MOST = 3;

/**
 * Names the tests that failed first and passed at their second try (`retry` in vitest.config.ts). The tests drive processes, a
 * browser and clocks; one that is late once must not stop a change that is right. Each that is named is to be mended all the same,
 * and more than {@link MOST} of them fail the run.
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
