import path from "node:path";

/** The folder of this run's build and of its keys. Workers inherit the variable. */
process.env.TEST_APP ??= path.resolve(import.meta.dirname, `../../.local/test-app-${process.pid}`);
export const TEST_APP = process.env.TEST_APP;

/** Keys of all simulated clouds of this run. Tests of the keys start a cloud with other keys. */
export const CLOUD_KEYS = path.join(TEST_APP, "cloud-keys");

/** The functions host as one file, which starts in a third of the time: Node strips no types and resolves no packages. */
export const HOST = path.join(TEST_APP, "host.mjs");

/** `NODE_COMPILE_CACHE` of hosts and commands: the first process that loads a file compiles it for all. */
export const COMPILE_CACHE = process.env.TEST_COMPILE_CACHE ?? path.join(TEST_APP, "compile-cache");
