import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/**
 * The secrets that a deployment stores in its key vault. They are created once and stored in the data folder, readable only by
 * the owner.
 */
export interface LocalSecrets {
  adminPassword: string;
  jwtSigningKeys: string;
  auditSigningKeys: string;
  /** The key that signs development licenses, as PKCS #8 PEM. The local bundle contains its public key. */
  licensePrivateKey: string;
  licenseKeys: { kid: string; x: string }[];
}

const LICENSE_KID = "development";

export function localSecrets(data: string): LocalSecrets {
  const file = path.join(data, "secrets.json");
  if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8")) as LocalSecrets;
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const secrets: LocalSecrets = {
    adminPassword: randomBytes(15).toString("base64url"),
    jwtSigningKeys: `local:${randomBytes(32).toString("base64")}`,
    auditSigningKeys: `local:${randomBytes(32).toString("base64")}`,
    licensePrivateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    licenseKeys: [{ kid: LICENSE_KID, x: publicKey.export({ format: "jwk" }).x! }],
  };
  writeFileSync(file, JSON.stringify(secrets, null, 2), { mode: 0o600 });
  return secrets;
}

/** Returns a PRO license for one month, as a compact JWS (EdDSA). */
export function issueDevelopmentLicense(secrets: LocalSecrets): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = { tier: "pro", customer: "Local development", iat: now, exp: now + 30 * 86_400 };
  const input = `${part({ alg: "EdDSA", kid: LICENSE_KID })}.${part(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), createPrivateKey(secrets.licensePrivateKey)).toString("base64url")}`;
}
