import path from "node:path";

/** The folder in which global-setup.ts builds the app for this test run. Worker processes inherit the variable. */
process.env.TEST_APP ??= path.resolve(import.meta.dirname, `../../.local/test-app-${process.pid}`);
export const TEST_APP = process.env.TEST_APP;

/** Whether another test run has built the app in that folder and deletes it. */
export const APP_IS_BUILT = process.env.TEST_APP_IS_BUILT === "true";

/** The folder of the TLS and signing keys that the simulated clouds of this run share. */
export const CLOUD_KEYS = path.join(TEST_APP, "cloud-keys");

/** The functions host, bundled into one JavaScript file, which starts three times as fast as its sources. */
export const HOST = path.join(TEST_APP, "host.mjs");

/**
 * The commands `npm run store` and `npm run user`, bundled into few files, which start in a third of the processor time of their
 * sources. Two folders below the repository's root, like the sources, because a command reads its package.json.
 */
export const COMMANDS = { store: path.join(TEST_APP, "store.js"), user: path.join(TEST_APP, "user.js") };

/** `NODE_COMPILE_CACHE` of hosts and commands: the first process that loads a file compiles it for all. */
export const COMPILE_CACHE = process.env.TEST_COMPILE_CACHE ?? path.join(TEST_APP, "compile-cache");
