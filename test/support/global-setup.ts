import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { build } from "esbuild";
import { makeKeys } from "simulated-cloud/cloud.ts";
import { buildLocalApp, REQUIRE_BANNER } from "../../infra/build/build.ts";
import { CLOUD_KEYS, HOST, TEST_APP } from "./test-app.ts";
import { skippedTools } from "./tools.ts";

/**
 * Builds the app once for all tests, with a licence key of their own built in, as a deployment package; and the host that
 * runs it.
 */
export default async function setup(): Promise<() => Promise<void>> {
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
  };
}
