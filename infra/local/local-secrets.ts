import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/**
 * The secrets of a local start. A deployment stores such secrets in its key vault. Here the first start creates them, and
 * secrets.json in the data folder stores them, readable only by the owner.
 */
export interface LocalSecrets {
  /** Password of the bootstrap administrator. */
  adminPassword: string;
  jwtSigningKeys: string;
  auditSigningKeys: string;
  /** Key that signs development licenses, as PKCS #8 PEM. The locally built app contains its public key. */
  licensePrivateKey: string;
  /** Public keys that the locally built app accepts (`x` of an Ed25519 JWK). */
  licenseKeys: { kid: string; x: string }[];
}

/** Key ID in the header of a license. */
const LICENSE_KEY_ID = "development";

/** Reads the secrets from the data folder, or creates them. */
export function readOrCreateSecrets(dataFolder: string): LocalSecrets {
  const file = path.join(dataFolder, "secrets.json");
  if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8")) as LocalSecrets;
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const secrets: LocalSecrets = {
    adminPassword: randomBytes(15).toString("base64url"),
    jwtSigningKeys: `local:${randomBytes(32).toString("base64")}`,
    auditSigningKeys: `local:${randomBytes(32).toString("base64")}`,
    licensePrivateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    licenseKeys: [{ kid: LICENSE_KEY_ID, x: publicKey.export({ format: "jwk" }).x! }],
  };
  writeFileSync(file, JSON.stringify(secrets, null, 2), { mode: 0o600 });
  return secrets;
}

const LICENSE_SECONDS = 30 * 86_400;

/** Returns a PRO license for 30 days, as a compact JWS (EdDSA). */
export function issueDevelopmentLicense(secrets: LocalSecrets): string {
  const encodePart = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const issuedAt = Math.floor(Date.now() / 1000);
  const claims = { tier: "pro", customer: "Local development", iat: issuedAt, exp: issuedAt + LICENSE_SECONDS };
  const input = `${encodePart({ alg: "EdDSA", kid: LICENSE_KEY_ID })}.${encodePart(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), createPrivateKey(secrets.licensePrivateKey)).toString("base64url")}`;
}
