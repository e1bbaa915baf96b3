/** Vitest's configuration for the test runs of copy.ts, which pass the order of the test files in TEST_ORDER. */
import path from "node:path";
import { defineConfig, mergeConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import base from "../../vitest.config.ts";

const order = (process.env.TEST_ORDER ?? "").split(",");

/** Runs the test files one at a time in the order of TEST_ORDER. */
class GivenOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const positionOf = (file: TestSpecification) =>
      order.findIndex((testPath) => file.moduleId.endsWith(path.posix.join("/", testPath)));
    return files.sort((a, b) => positionOf(a) - positionOf(b));
  }
}

export default mergeConfig(
  base,
  defineConfig({
    root: path.resolve(import.meta.dirname, "../.."),
    test: { maxWorkers: 1, retry: 0, sequence: { sequencer: GivenOrder } },
  }),
);
