import { readFileSync } from "node:fs";
import path from "node:path";
import { CompactSign, importPKCS8 } from "jose";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { TEST_APP } from "./test-app.ts";

/** Returns the private key, in PEM, whose licenses are valid for the app that a test run builds. */
export const licensePrivateKey = (): string => readFileSync(path.join(TEST_APP, "license-key.pem"), "utf8");

/** Returns the claims of a PRO license that expires in this number of days. */
export const proClaims = (daysLeft: number, more: object = {}) => ({
  tier: "pro",
  customer: "Acme",
  exp: Math.floor(Date.now() / 1000) + daysLeft * DAY_SECONDS + 60,
  ...more,
});

/** Returns a signed license, by default a PRO license that expires in 30 days. */
export async function licence(claims: object = proClaims(30)): Promise<string> {
  const signer = new CompactSign(new TextEncoder().encode(JSON.stringify(claims)));
  const key = await importPKCS8(licensePrivateKey(), "EdDSA");
  return await signer.setProtectedHeader({ alg: "EdDSA", kid: "test" }).sign(key);
}
