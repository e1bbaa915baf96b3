import { generateKeyPairSync } from "node:crypto";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { buildApp } from "../../infra/build/build.ts";

/** Where this run's own build lies, beside what it was built with; the workers inherit the variable. */
process.env.TEST_APP ??= path.resolve(import.meta.dirname, `../../.local/test-app-${process.pid}`);
export const TEST_APP = process.env.TEST_APP;

/** Builds the app once for all tests, with a licence key of their own built in, as a deployment package. */
export default async function setup(): Promise<() => Promise<void>> {
  const root = path.resolve(import.meta.dirname, "../..");
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  mkdirSync(TEST_APP, { recursive: true });
  writeFileSync(path.join(TEST_APP, "license-key.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
  await buildApp({
    outdir: path.join(TEST_APP, "dist"),
    metafile: path.join(TEST_APP, "metafile.json"),
    developmentLicenseKeys: [{ kid: "test", x: publicKey.export({ format: "jwk" }).x! }],
  });
  copyFileSync(path.join(root, "host.json"), path.join(TEST_APP, "host.json"));
  writeFileSync(path.join(TEST_APP, "package.json"), JSON.stringify({ type: "module", main: "dist/main.mjs" }));
  return () => rm(TEST_APP, { recursive: true, force: true });
}
