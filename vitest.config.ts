import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    // Processes are used for one file after the other.
    isolate: false,
    setupFiles: ["test/support/fresh-modules.ts"],
    // One more than cores: many tests wait for other processes.
    maxWorkers: 3,
    // Several times what the longest takes: no test waits for time to pass, but the machine may be busy.
    testTimeout: 300_000,
    hookTimeout: 180_000,
  },
});
