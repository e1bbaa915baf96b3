import { createRequire, syncBuiltinESMExports } from "node:module";
import { vi } from "vitest";

const crypto = createRequire(import.meta.url)("node:crypto") as typeof import("node:crypto");

/** As it was before this process's first file. */
const kept = globalThis as { atFirst?: { settings: Set<string>; scrypt: typeof crypto.scrypt } };
kept.atFirst ??= { settings: new Set(Object.keys(process.env)), scrypt: crypto.scrypt };

/*
 * One process runs many test files, since starting one and loading the libraries costs a second. The libraries stay loaded;
 * what the project's own modules keep, each file begins with anew. Settings that a file added and the cheap scrypt go, too.
 */
vi.resetModules();
for (const name of Object.keys(process.env)) if (!kept.atFirst.settings.has(name)) delete process.env[name];
crypto.scrypt = kept.atFirst.scrypt;
syncBuiltinESMExports();
