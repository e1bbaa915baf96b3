import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import type { KeyShape } from "../company/company.ts";
import { versionFrom } from "./identifiers.ts";
import pool from "./public-keys.json" with { type: "json" };

/**
 * Real public keys of every shape. Making an RSA key of 4096 bits takes seconds, so a few of each are kept in a file and
 * shared by all keys of that shape; their private halves were never kept, since the cloud signs nothing with them.
 */
const POOL: Record<string, readonly Record<string, string>[]> = pool;

export type PublicJwk = { kty: string } & Record<string, string>;

/** What a JSON Web Key holds besides its id and operations: `kty` with `n` and `e`, or with `crv`, `x` and `y`, or nothing. */
export function publicJwk(shape: KeyShape, name: string): PublicJwk {
  const kty = shape.type ?? "RSA";
  // A symmetric key has no public half.
  if (kty === "oct-HSM") return { kty };
  const material = pooled(shape, name);
  return kty.startsWith("EC") ? { kty, crv: shape.curve ?? "P-256", ...material } : { kty, ...material };
}

export function publicKey(shape: KeyShape, name: string): KeyObject {
  const { kty, crv, ...material } = publicJwk(shape, name);
  const key: JsonWebKey = { kty: kty.replace("-HSM", ""), ...material };
  // RFC 8812 calls Key Vault's P-256K secp256k1.
  if (crv !== undefined) key.crv = crv === "P-256K" ? "secp256k1" : crv;
  return createPublicKey({ key, format: "jwk" });
}

/** @throws {Error} for a size or curve Key Vault does not have. */
function pooled(shape: KeyShape, name: string): Record<string, string> {
  const ofShape = (shape.type ?? "RSA").startsWith("EC") ? (shape.curve ?? "P-256") : `RSA-${shape.size ?? 2048}`;
  const keys = POOL[ofShape];
  if (keys === undefined) throw new Error(`Key Vault has no keys of the shape ${ofShape}`);
  return keys[Number.parseInt(versionFrom(name).slice(0, 6), 16) % keys.length]!;
}
