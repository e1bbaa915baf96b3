import path from "node:path";
import { CLOUD_KEYS } from "./test-app.ts";
import { trust } from "./trust.ts";

/*
 * Vitest loads this file before each test file. One process runs many test files, because starting a process and loading the
 * modules take a second. Modules stay loaded, and this file removes what the previous test file added to the environment.
 */

// Simulated clouds have certificates of this authority. The process must trust it before the first connection.
trust(path.join(CLOUD_KEYS, "ca.pem"));

/** `initialVariables` are the names of the environment variables that existed before this process ran its first test file. */
const processState = globalThis as { initialVariables?: Set<string> };
processState.initialVariables ??= new Set(Object.keys(process.env));

for (const name of Object.keys(process.env)) if (!processState.initialVariables.has(name)) delete process.env[name];
