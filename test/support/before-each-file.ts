import path from "node:path";
import { CLOUD_KEYS } from "./test-app.ts";
import { trust } from "./trust.ts";

// The first connection of the service to Azure reads the certificate authorities (trust.ts), so this comes first.
trust(path.join(CLOUD_KEYS, "ca.pem"));

/** The settings that existed before this process ran its first file. */
const kept = globalThis as { settingsAtFirst?: Set<string> };
kept.settingsAtFirst ??= new Set(Object.keys(process.env));

/*
 * One process runs many test files, because a start and the loading of modules take a second. Modules stay loaded, including
 * those of the project. Settings that the previous file added are removed here.
 */
for (const name of Object.keys(process.env)) if (!kept.settingsAtFirst.has(name)) delete process.env[name];
