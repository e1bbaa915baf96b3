import path from "node:path";

/** Where this run's own build lies, beside what it was built with; the workers inherit the variable. */
process.env.TEST_APP ??= path.resolve(import.meta.dirname, `../../.local/test-app-${process.pid}`);
export const TEST_APP = process.env.TEST_APP;

/** What every stand-in cloud of this run signs and serves with; a test of the keys themselves has a cloud with its own. */
export const CLOUD_KEYS = path.join(TEST_APP, "cloud-keys");

/** The functions host as one file, which starts in a third of the time: no types are stripped, no package is searched for. */
export const HOST = path.join(TEST_APP, "host.mjs");

/** `NODE_COMPILE_CACHE` of hosts and commands: the first that loads a file strips its types and compiles it for all. */
export const COMPILE_CACHE = process.env.TEST_COMPILE_CACHE ?? path.join(TEST_APP, "compile-cache");
