import path from "node:path";
import { CLOUD_KEYS } from "./test-app.ts";
import { trust } from "./trust.ts";

// Before the service's own connections to Azure take the authorities (trust.ts).
trust(path.join(CLOUD_KEYS, "ca.pem"));

/** Settings of before this process's first file. */
const kept = globalThis as { settingsAtFirst?: Set<string> };
kept.settingsAtFirst ??= new Set(Object.keys(process.env));

/*
 * One process runs many test files, since starting one and loading the modules costs a second. Modules stay loaded, the
 * project's own, too; settings that the file before added go.
 */
for (const name of Object.keys(process.env)) if (!kept.settingsAtFirst.has(name)) delete process.env[name];
