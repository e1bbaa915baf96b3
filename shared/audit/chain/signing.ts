import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import * as z from "zod";
import { canonicalJson } from "../canonical.ts";

/**
 * Signatures of the audit log. All signed statements are compact JWS (RFC 7515) with Ed25519 (RFC 8037), which any library can
 * verify. They are digests, closed intervals, purges, exports and their cursors, older keys, and the time since which entries
 * are authenticated. `typ` names the kind of statement, so that one kind can't be passed off as another.
 */
export type StatementType =
  | "audit-digest"
  | "audit-closed"
  | "audit-purge"
  | "audit-key"
  | "audit-export"
  | "audit-cursor"
  | "audit-authenticated"
  | "audit-rollback";

export interface SigningKey {
  kid: string;
  privateKey: KeyObject;
}

/** Trusted public keys by their `kid`. */
export type PublicKeys = ReadonlyMap<string, KeyObject>;

const KEY_BYTES = 32;
/** PKCS #8 of an Ed25519 private key up to its 32 bytes (RFC 8410 §7). */
const PKCS8_PREFIX = Buffer.from("302e020100300506032b657004220420", "hex");

/** Returns the signing key of a seed in `AUDIT_SIGNING_KEYS`. The configuration ensures 32 bytes. */
export const signingKey = ({ kid, key }: { kid: string; key: Uint8Array }): SigningKey => ({
  kid,
  privateKey: createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, key]), format: "der", type: "pkcs8" }),
});

/** Formats a public key for people: its 32 bytes in base64. */
export const publicKeyText = (key: KeyObject): string =>
  Buffer.from(key.export({ format: "jwk" }).x!, "base64url").toString("base64");

/** Parses a public key. @throws Error if the text is not 32 bytes in base64 or base64url. */
export function publicKeyFrom(text: string): KeyObject {
  const bytes = Buffer.from(text, "base64");
  if (bytes.length !== KEY_BYTES) throw new Error("An Ed25519 public key is 32 bytes in base64.");
  return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: bytes.toString("base64url") }, format: "jwk" });
}

const base64url = (text: string): string => Buffer.from(text).toString("base64url");

/** Returns the fingerprint of a public key, by which people compare keys: SHA-256 of its 32 bytes, in hexadecimal. */
export const keyFingerprint = (key: KeyObject): string =>
  createHash("sha256")
    .update(Buffer.from(key.export({ format: "jwk" }).x!, "base64url"))
    .digest("hex");

/** Signs a statement as a compact JWS. */
export function signStatement(typ: StatementType, payload: object, { kid, privateKey }: SigningKey): string {
  const input = `${base64url(canonicalJson({ alg: "EdDSA", kid, typ }))}.${base64url(canonicalJson(payload))}`;
  return `${input}.${sign(null, Buffer.from(input), privateKey).toString("base64url")}`;
}

const Header = z.object({ alg: z.literal("EdDSA"), kid: z.string(), typ: z.string() });

export type Statement<T> = { payload: T; kid: string } | { problem: "malformed" | "unknownKey" | "badSignature" };

/** Returns the content of a statement that a trusted key signed, else the reason why it is not trusted. */
export function readStatement<S extends z.ZodType>(
  typ: StatementType,
  schema: S,
  statement: string,
  keys: PublicKeys,
): Statement<z.output<S>> {
  const [header, payload, signature, ...otherParts] = statement.split(".");
  if (header === undefined || payload === undefined || signature === undefined || otherParts.length > 0) {
    return { problem: "malformed" };
  }
  const parsedHeader = Header.safeParse(parseJson(header));
  const parsedPayload = schema.safeParse(parseJson(payload));
  if (!parsedHeader.success || parsedHeader.data.typ !== typ || !parsedPayload.success) return { problem: "malformed" };
  const { kid } = parsedHeader.data;
  const key = keys.get(kid);
  if (!key) return { problem: "unknownKey" };
  const isSigned = verify(null, Buffer.from(`${header}.${payload}`), key, Buffer.from(signature, "base64url"));
  return isSigned ? { payload: parsedPayload.data, kid } : { problem: "badSignature" };
}

/** Returns the content of a statement without verifying its signature. */
export function claimsOf<S extends z.ZodType>(schema: S, statement: string): z.output<S> | undefined {
  return schema.safeParse(parseJson(statement.split(".")[1] ?? "")).data;
}

/** Parses a part of a statement: JSON in base64url. Undefined if it is invalid. */
function parseJson(part: string): unknown {
  try {
    return JSON.parse(Buffer.from(part, "base64url").toString("utf8"));
  } catch {
    return undefined;
  }
}
