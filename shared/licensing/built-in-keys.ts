import * as z from "zod";
import { type LicenseKey, VENDOR_KEYS } from "./vendor-keys.ts";

/**
 * JSON of further keys for development and tests, a list of `{kid, x}`. The build inserts it (`define` of the bundler).
 * Releases are built without further keys.
 */
declare const __DEVELOPMENT_LICENSE_KEYS__: string;

// `x` is 32 bytes in base64url.
const Keys = z.array(z.strictObject({ kid: z.string().min(1), x: z.string().regex(/^[\w-]{43}$/) }));

/**
 * Returns the public keys with which this build verifies licenses. A vendor key has precedence over an inserted key with the
 * same ID.
 */
export function builtInKeys(): readonly LicenseKey[] {
  // If the source runs without the bundler, the name is not defined.
  const insertedKeys = typeof __DEVELOPMENT_LICENSE_KEYS__ === "undefined" ? "[]" : __DEVELOPMENT_LICENSE_KEYS__;
  return [...VENDOR_KEYS, ...Keys.parse(JSON.parse(insertedKeys))];
}
