import { configDefaults, defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/longest-first.ts";
import { RetriedTests } from "./test/support/retried-tests.ts";

const LOOPBACK_NAMES = new URL("infra/simulated-cloud/loopback-names.mjs", import.meta.url).href;

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts", "infra/*/test/**/*.test.ts"],
    // `npm run conformance -- keycloak` runs these tests, because they need a running Keycloak.
    exclude: [...configDefaults.exclude, ...(process.env.KEYCLOAK_URL ? [] : ["test/sso/keycloak/**"])],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    // A process runs many files, which saves the start and the loading of modules.
    isolate: false,
    execArgv: [`--import=${LOOPBACK_NAMES}`],
    setupFiles: ["test/support/before-each-file.ts", "test/support/property-seed.ts"],
    // More than twice the cores of the smallest supported machine, because many tests wait for other processes.
    maxWorkers: 5,
    sequence: { sequencer: LongestFirst },
    // Several times the duration of the longest test, because the machine can be busy.
    testTimeout: 300_000,
    hookTimeout: 600_000,
    retry: 1,
    reporters: ["default", new RetriedTests()],
    expect: { poll: { timeout: 150_000 } },
  },
});
