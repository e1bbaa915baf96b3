// Returns public keys for the simulated vaults from a pool of real keys.

import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import type { KeySpec } from "../company/company.ts";
import { versionFrom } from "./identifiers.ts";
import pool from "./public-keys.json" with { type: "json" };

/**
 * Real public keys of every type and size. Creating a 4096-bit RSA key takes seconds, so a file contains a few keys of
 * each size, which all keys of that size share. Their private keys were not stored, because the cloud signs nothing with them.
 */
const POOL: Record<string, readonly Record<string, string>[]> = pool;

export type PublicJwk = { kty: string } & Record<string, string>;

/** Returns a public key as a JSON Web Key, without its ID and operations. A symmetric key has only `kty`. */
export function publicJwk(shape: KeySpec, name: string): PublicJwk {
  const kty = shape.type ?? "RSA";
  // A symmetric key has no public part.
  if (kty === "oct-HSM") return { kty };
  const material = keyFromPool(shape, name);
  return kty.startsWith("EC") ? { kty, crv: shape.curve ?? "P-256", ...material } : { kty, ...material };
}

/** Returns a public key for Node's crypto. */
export function publicKey(shape: KeySpec, name: string): KeyObject {
  const { kty, crv, ...material } = publicJwk(shape, name);
  const key: JsonWebKey = { kty: kty.replace("-HSM", ""), ...material };
  // RFC 8812 names Key Vault's P-256K secp256k1.
  if (crv !== undefined) key.crv = crv === "P-256K" ? "secp256k1" : crv;
  return createPublicKey({ key, format: "jwk" });
}

/**
 * Returns one of the pool's keys. The same name returns the same key.
 * @throws {Error} for a size or curve that Key Vault does not support.
 */
function keyFromPool(shape: KeySpec, name: string): Record<string, string> {
  const poolName = (shape.type ?? "RSA").startsWith("EC") ? (shape.curve ?? "P-256") : `RSA-${shape.size ?? 2048}`;
  const keys = POOL[poolName];
  if (keys === undefined) throw new Error(`Key Vault does not support keys of type ${poolName}`);
  // The first digits of a hash of the name select the key.
  return keys[Number.parseInt(versionFrom(name).slice(0, 6), 16) % keys.length]!;
}
