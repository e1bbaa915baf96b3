import path from "node:path";
import { defineConfig, mergeConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import base from "../../vitest.config.ts";

const order = (process.env.TEST_ORDER ?? "").split(",");

/** Runs the test files one at a time in the order of TEST_ORDER. */
class GivenOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = (file: TestSpecification) =>
      order.findIndex((one) => file.moduleId.endsWith(path.posix.join("/", one)));
    return files.sort((a, b) => place(a) - place(b));
  }
}

export default mergeConfig(
  base,
  defineConfig({
    root: path.resolve(import.meta.dirname, "../.."),
    test: { maxWorkers: 1, retry: 0, sequence: { sequencer: GivenOrder } },
  }),
);
