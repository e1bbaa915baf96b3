import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/longest-first.ts";
import { SecondTries } from "./test/support/second-tries.ts";

// One background thread of V8 in the tests' processes, their hosts and Azurite: a dozen of them share two cores, and the usual
// four threads each cost a twentieth of all processor time.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --v8-pool-size=1`;

const PRELOADS = [
  "infra/local/kept-hmac-keys.mjs",
  "infra/simulated-cloud/loopback-names.mjs",
  "test/support/cheap-scrypt.mjs",
];

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts", "infra/*/test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    // Processes are used for one file after the other.
    isolate: false,
    execArgv: PRELOADS.map((preload) => `--import=${new URL(preload, import.meta.url).href}`),
    setupFiles: ["test/support/before-each-file.ts", "test/support/drawn-cases.ts"],
    // Twice the cores of the smallest machine: many tests wait for other processes.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    // Several times what the longest takes: no test waits for time to pass, but the machine may be busy.
    testTimeout: 300_000,
    hookTimeout: 600_000,
    retry: 1,
    reporters: ["default", new SecondTries()],
    expect: { poll: { timeout: 150_000 } },
  },
});
