import * as z from "zod";
import { type LicenseKey, VENDOR_KEYS } from "./vendor-keys.ts";

/**
 * JSON text of further keys, put here by the build (`define` of the bundler) for development and tests: a list of
 * `{kid, x}`. A release is built without.
 */
declare const __DEVELOPMENT_LICENSE_KEYS__: string;

const Keys = z.array(z.strictObject({ kid: z.string().min(1), x: z.string().regex(/^[\w-]{43}$/) }));

/** The keys in this build; a vendor's key comes before one of the same name that a build added. */
export function builtInKeys(): readonly LicenseKey[] {
  // Run without bundling, the name does not exist at all.
  const added = typeof __DEVELOPMENT_LICENSE_KEYS__ === "undefined" ? "[]" : __DEVELOPMENT_LICENSE_KEYS__;
  return [...VENDOR_KEYS, ...Keys.parse(JSON.parse(added))];
}
