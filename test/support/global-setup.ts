import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { build } from "esbuild";
import { makeKeys } from "simulated-cloud/cloud.ts";
import { buildLocalApp, REQUIRE_BANNER } from "../../infra/build/build.ts";
import { openTemporaryFolder } from "./temporary-folder.ts";
import { CLOUD_KEYS, HOST, TEST_APP } from "./test-app.ts";
import { skippedTools } from "./tools.ts";

/**
 * Prepares a test run: builds the app as a deployment package with the public license key of the tests, bundles the functions
 * host, and opens the run's temporary folder.
 *
 * @returns A function that prints the missing programs, deletes everything that the run created, and prints new entries of the
 * system's temporary folder.
 */
export default async function setup(): Promise<() => Promise<void>> {
  const closeTemporaryFolder = openTemporaryFolder();
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const key = { kid: "test", x: publicKey.export({ format: "jwk" }).x! };
  const built = await buildLocalApp(TEST_APP, [key]);
  writeFileSync(path.join(TEST_APP, "built.json"), JSON.stringify(built));
  writeFileSync(path.join(TEST_APP, "license-key.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  makeKeys(CLOUD_KEYS);
  await build({
    entryPoints: [path.resolve(import.meta.dirname, "../../infra/functions-host/main.ts")],
    outfile: HOST,
    bundle: true,
    format: "esm",
    platform: "node",
    mainFields: ["module", "main"],
    target: "node22",
    banner: REQUIRE_BANNER,
    logLevel: "warning",
  });
  return async () => {
    for (const line of skippedTools()) console.warn(line);
    await rm(TEST_APP, { recursive: true, force: true });
    const left = closeTemporaryFolder();
    if (left.length === 0) return;
    // Not an error: other programs use the folder too.
    console.warn(`New in the temporary folder since the start of the run: ${left.join(", ")}`);
  };
}
