import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { buildLocalApp } from "../../infra/build/build.ts";

/** Where this run's own build lies, beside what it was built with; the workers inherit the variable. */
process.env.TEST_APP ??= path.resolve(import.meta.dirname, `../../.local/test-app-${process.pid}`);
export const TEST_APP = process.env.TEST_APP;

/** Builds the app once for all tests, with a licence key of their own built in, as a deployment package. */
export default async function setup(): Promise<() => Promise<void>> {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const key = { kid: "test", x: publicKey.export({ format: "jwk" }).x! };
  const built = await buildLocalApp(TEST_APP, [key]);
  writeFileSync(path.join(TEST_APP, "metafile.json"), JSON.stringify(built.metafile));
  writeFileSync(path.join(TEST_APP, "license-key.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  return () => rm(TEST_APP, { recursive: true, force: true });
}
