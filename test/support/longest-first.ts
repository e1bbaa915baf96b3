import { existsSync } from "node:fs";
import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take half a minute and more alone, the longest first. */
const LONG = [
  "page/page.test.ts",
  "outcomes/outcomes.test.ts",
  "docs/browser.test.ts",
  "upgrade/upgrade.test.ts",
  "build/package.test.ts",
  "clients/clients.test.ts",
].map((file) => path.resolve(import.meta.dirname, "..", file));

/** Begins with the longest files, so that none of them still runs once all others are done. Vitest itself goes by their size. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    for (const file of LONG)
      if (!existsSync(file)) throw new Error(`longest-first.ts names ${file}, which is not there.`);
    const place = ({ moduleId }: TestSpecification) => (LONG.includes(moduleId) ? LONG.indexOf(moduleId) : LONG.length);
    return (await super.sort(files)).sort((one, other) => place(one) - place(other));
  }
}
