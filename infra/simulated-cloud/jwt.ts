import { createHmac, generateKeyPair, type KeyObject, sign } from "node:crypto";
import { promisify } from "node:util";

// Creates JSON Web Tokens: valid ones, and ones that a verifier must reject.

/** Members of a JSON object: the header or the claims of a token. */
export type Members = Record<string, unknown>;

export interface SigningKey {
  /** The key ID (`kid`) in headers and key sets. */
  id: string;
  privateKey: KeyObject;
  publicKey: KeyObject;
}

const base64url = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
/** Returns the text that the signature covers. */
const encoded = (header: Members, claims: Members): string => `${base64url(header)}.${base64url(claims)}`;

/** Returns a token with a signature of the key (RS256). */
export function rs256(header: Members, claims: Members, { privateKey }: SigningKey): string {
  const text = encoded({ ...header, alg: "RS256" }, claims);
  return `${text}.${sign("sha256", Buffer.from(text), privateKey).toString("base64url")}`;
}

/** Returns a token with a signature of an Ed25519 key (EdDSA). */
export function edDsa(header: Members, claims: Members, { id, privateKey }: SigningKey): string {
  const text = encoded({ ...header, alg: "EdDSA", kid: id }, claims);
  return `${text}.${sign(null, Buffer.from(text), privateKey).toString("base64url")}`;
}

/** Returns a token with an HMAC of the secret (HS256). */
export function hs256(header: Members, claims: Members, secret: string): string {
  const text = encoded({ ...header, alg: "HS256" }, claims);
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

/** Returns a token without a signature (algorithm "none"). */
export function unsigned(header: Members, claims: Members): string {
  return `${encoded({ ...header, alg: "none" }, claims)}.`;
}

/** Returns header and claims of a token without verifying its signature. */
export function decodeUnverified(token: string): { header: Members; claims: Members } {
  const [header, claims] = token.split(".", 2).map((part) => {
    return JSON.parse(Buffer.from(part, "base64url").toString("utf8")) as Members;
  });
  return { header: header!, claims: claims! };
}

/** Returns the public key as PEM text. A vulnerable verifier accepts it as an HMAC secret. */
export function publicPem({ publicKey }: SigningKey): string {
  return publicKey.export({ type: "spki", format: "pem" }).toString();
}

/** Returns the public key as a JSON Web Key. */
export function publicJwk({ id, publicKey }: SigningKey): Members {
  return { ...publicKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: id };
}

const generateKeys = promisify(generateKeyPair);

/** Creates a 2048-bit RSA key. */
export async function signingKey(id: string): Promise<SigningKey> {
  return { id, ...(await generateKeys("rsa", { modulusLength: 2048 })) };
}

/** Creates an Ed25519 key. */
export async function ed25519Key(id: string): Promise<SigningKey> {
  return { id, ...(await generateKeys("ed25519", {})) };
}
