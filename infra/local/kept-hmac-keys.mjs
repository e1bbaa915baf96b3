import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * Lets `createHmac` take the same bytes again as the key that it made of them before. Since Node 24.16 making one costs five
 * times the signature itself, and every request to storage is signed, and checked by Azurite, with its account's key.
 *
 * Plain JavaScript, so that it can be a preload (`node --import`) on every Node without type stripping.
 */
const crypto = createRequire(import.meta.url)("node:crypto");
const { createHmac, createSecretKey } = crypto;

/** More than the accounts of a test run; they go all at once when there are more. */
const MAX_KEYS = 256;
const keys = new Map();

function keyOf(bytes) {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
  let key = keys.get(text);
  if (key === undefined) {
    if (keys.size >= MAX_KEYS) keys.clear();
    key = createSecretKey(bytes);
    keys.set(text, key);
  }
  return key;
}

crypto.createHmac = (algorithm, key, options) =>
  createHmac(algorithm, key instanceof Uint8Array ? keyOf(key) : key, options);
syncBuiltinESMExports();
