import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** What a deployment keeps in its key vault; here made once and kept in the data folder, readable by its owner only. */
export interface LocalSecrets {
  adminPassword: string;
  jwtSigningKeys: string;
  auditSigningKeys: string;
  /** The key development licences are signed with, PKCS #8 PEM; its public half is built into the local bundle. */
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

/** A PRO licence for a month, as a compact JWS (EdDSA). */
export function issueDevelopmentLicense(secrets: LocalSecrets): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = { tier: "pro", customer: "Local development", iat: now, exp: now + 30 * 86_400 };
  const input = `${part({ alg: "EdDSA", kid: LICENSE_KID })}.${part(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), createPrivateKey(secrets.licensePrivateKey)).toString("base64url")}`;
}
