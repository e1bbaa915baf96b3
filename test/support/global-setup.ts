import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { type BuildOptions, build } from "esbuild";
import { createKeys } from "simulated-cloud/cloud.ts";
import { buildLocalApp, REQUIRE_BANNER } from "../../infra/build/build.ts";
import { openTemporaryFolder } from "./temporary-folder.ts";
import { APP_IS_BUILT, CLOUD_KEYS, COMMANDS, HOST, TEST_APP } from "./test-app.ts";
import { skippedTools } from "./tools.ts";

/**
 * Prepares a test run. Vitest calls it once, before the first test file. It creates the run's temporary folder and the keys of
 * the simulated clouds. It builds the app with a license key of its own, and bundles the functions host and the commands.
 *
 * A run that a test starts uses the app of the outer run (`APP_IS_BUILT`).
 *
 * @returns A function that Vitest calls after the last test. It prints which programs were missing, deletes everything that the
 * run created, and prints new entries of the system's temporary folder.
 */
export default async function setup(): Promise<() => Promise<void>> {
  const closeTemporaryFolder = openTemporaryFolder();
  if (!APP_IS_BUILT) await buildApp();
  return async () => {
    for (const line of skippedTools()) console.warn(line);
    if (!APP_IS_BUILT) await rm(TEST_APP, { recursive: true, force: true });
    const newEntries = closeTemporaryFolder();
    if (newEntries.length === 0) return;
    // Only a warning, because other programs use the folder too.
    console.warn(`New in the temporary folder since the start of the run: ${newEntries.join(", ")}`);
  };
}

async function buildApp(): Promise<void> {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const key = { kid: "test", x: publicKey.export({ format: "jwk" }).x! };
  // Tests read what the build contains (built.json), and sign licenses with the private key.
  const built = await buildLocalApp(TEST_APP, [key]);
  writeFileSync(path.join(TEST_APP, "built.json"), JSON.stringify(built));
  writeFileSync(path.join(TEST_APP, "license-key.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  createKeys(CLOUD_KEYS);
  const root = path.resolve(import.meta.dirname, "../..");
  const options = {
    bundle: true,
    format: "esm",
    platform: "node",
    mainFields: ["module", "main"],
    target: "node22",
    banner: REQUIRE_BANNER,
    logLevel: "warning",
  } as const satisfies BuildOptions;
  await build({ ...options, entryPoints: [path.join(root, "infra/functions-host/main.ts")], outfile: HOST });
  await build({
    ...options,
    entryPoints: Object.keys(COMMANDS).map((name) => path.join(root, `functions/commands/${name}.ts`)),
    outdir: TEST_APP,
    splitting: true,
    chunkNames: "commands/[name]-[hash]",
    external: ["@azure/functions-core", "supports-color"],
  });
}
