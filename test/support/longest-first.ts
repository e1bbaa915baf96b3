import { existsSync } from "node:fs";
import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take 25 seconds or more, the longest first. */
const LONGEST_FILES = [
  "page/page.test.ts",
  "outcomes/outcomes.test.ts",
  "state/random-schedules.test.ts",
  "upgrade/upgrade.test.ts",
  "rotation/places-http.test.ts",
  "clients/clients.test.ts",
  "build/package.test.ts",
  "docs/browser.test.ts",
  "local/start.test.ts",
  "discovery/rescans.test.ts",
  "secrets.test.ts",
  "rotation/rotation.test.ts",
  "governance/compliance.test.ts",
  "audit/export.test.ts",
  "discovery/budget.test.ts",
  "alerts/receivers.test.ts",
].map((file) => path.resolve(import.meta.dirname, "..", file));

/**
 * Makes Vitest start the test files that take longest first, so that none of them runs alone at the end while other workers are
 * idle. Without this class, Vitest starts the largest files first.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    for (const file of LONGEST_FILES)
      if (!existsSync(file)) throw new Error(`longest-first.ts names ${file}, which is not there.`);
    const rank = ({ moduleId }: TestSpecification) =>
      LONGEST_FILES.includes(moduleId) ? LONGEST_FILES.indexOf(moduleId) : LONGEST_FILES.length;
    return (await super.sort(files)).sort((one, other) => rank(one) - rank(other));
  }
}
