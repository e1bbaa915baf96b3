// Signed requests of ACME (RFC 8555, section 6.2): flattened JWS.

import {
  createHash,
  createHmac,
  createPublicKey,
  type JsonWebKey,
  type KeyObject,
  timingSafeEqual,
  verify,
} from "node:crypto";

/** A parsed JWS whose signature is not yet verified. */
export interface Jws {
  header: { alg?: string; nonce?: string; url?: string; kid?: string; jwk?: JsonWebKey };
  /** The payload, undefined for a POST-as-GET. */
  payload: Record<string, unknown> | undefined;
  signed: string;
  signature: Buffer;
}

const HASHES: Record<string, string> = { ES256: "sha256", ES384: "sha384", RS256: "sha256" };

/** Parses a body. Undefined if it is no flattened JWS with a JSON payload. */
export function parseJws(body: unknown): Jws | undefined {
  const { protected: head, payload, signature } = (body ?? {}) as Record<string, unknown>;
  if (typeof head !== "string" || typeof payload !== "string" || typeof signature !== "string") return undefined;
  try {
    return {
      header: JSON.parse(Buffer.from(head, "base64url").toString()) as Jws["header"],
      payload:
        payload === ""
          ? undefined
          : (JSON.parse(Buffer.from(payload, "base64url").toString()) as Record<string, unknown>),
      signed: `${head}.${payload}`,
      signature: Buffer.from(signature, "base64url"),
    };
  } catch {
    return undefined;
  }
}

/** Returns whether the key signed the JWS. */
export function isSignedBy({ header, signed, signature }: Jws, key: KeyObject): boolean {
  const hash = HASHES[header.alg ?? ""];
  const type = header.alg?.startsWith("ES") ? "ec" : "rsa";
  if (hash === undefined || key.asymmetricKeyType !== type) return false;
  return verify(hash, Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }, signature);
}

/** Returns whether an external account binding (RFC 8555, section 7.3.4) is for this key, and signed with the MAC key. */
export function isBinding(
  binding: unknown,
  key: { kid: string; hmacKey: string },
  jwk: JsonWebKey,
  url: string,
): boolean {
  const { protected: head, payload } = (binding ?? {}) as Record<string, string>;
  const jws = parseJws(binding);
  if (jws === undefined || jws.header.alg !== "HS256" || jws.header.kid !== key.kid || jws.header.url !== url)
    return false;
  if (thumbprint(jws.payload as JsonWebKey) !== thumbprint(jwk)) return false;
  const expected = createHmac("sha256", Buffer.from(key.hmacKey, "base64url")).update(`${head}.${payload}`).digest();
  return expected.length === jws.signature.length && timingSafeEqual(expected, jws.signature);
}

/** Returns the thumbprint of a key (RFC 7638). */
export function thumbprint(jwk: JsonWebKey): string {
  const members = jwk.kty === "EC" ? ["crv", "kty", "x", "y"] : ["e", "kty", "n"];
  const text = JSON.stringify(Object.fromEntries(members.map((name) => [name, jwk[name as keyof JsonWebKey]])));
  return createHash("sha256").update(text).digest("base64url");
}

/** Returns the public key of a JWK. Undefined if it is none. */
export function publicKeyOf(jwk: JsonWebKey | undefined): KeyObject | undefined {
  if (jwk === undefined) return undefined;
  try {
    return createPublicKey({ key: jwk, format: "jwk" });
  } catch {
    return undefined;
  }
}
