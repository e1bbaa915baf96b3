import * as z from "zod";
import { type LicenseKey, VENDOR_KEYS } from "./vendor-keys.ts";

/**
 * JSON of further keys, inserted by the build (`define` of the bundler) for development and tests: a list of `{kid, x}`.
 * Releases are built without.
 */
declare const __DEVELOPMENT_LICENSE_KEYS__: string;

const Keys = z.array(z.strictObject({ kid: z.string().min(1), x: z.string().regex(/^[\w-]{43}$/) }));

/** Returns the keys of this build. A vendor key has precedence over an inserted key of the same name. */
export function builtInKeys(): readonly LicenseKey[] {
  // Without bundling the name is not defined.
  const added = typeof __DEVELOPMENT_LICENSE_KEYS__ === "undefined" ? "[]" : __DEVELOPMENT_LICENSE_KEYS__;
  return [...VENDOR_KEYS, ...Keys.parse(JSON.parse(added))];
}
