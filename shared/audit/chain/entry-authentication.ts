import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import type { Config } from "../../platform/config/config.ts";

/**
 * Authentication codes of entries that are not sealed yet. A code is an HMAC-SHA-256 over a row's location and content, made when
 * the row is written. Its key is derived from a key of `AUDIT_SIGNING_KEYS`, which is an environment setting, so that writing and
 * checking an entry need no request to the key vault.
 */

/** The authenticated content of a row: the entry's text (undefined for a row without one) and its link. */
export interface AuthenticatedRow {
  partitionKey: string;
  rowKey: string;
  text: string | undefined;
  link: string | undefined;
  mac: string | undefined;
}

/**
 * `absent`: the row has no code, like those of an earlier version. `unknownKey`: the code names a key that is not configured.
 * `invalid`: another row, or other content, has this code.
 */
export type Authenticity = "authentic" | "absent" | "unknownKey" | "invalid";

/** Makes and checks the authentication codes of rows. */
export interface EntryAuthentication {
  /** Returns the code of a row, made with the first configured key. Undefined without a key. */
  sign: ((row: Omit<AuthenticatedRow, "mac">) => string) | undefined;
  check(row: AuthenticatedRow): Authenticity;
}

/** Label of the derivation (RFC 5869), which separates these keys from every other use of the setting. */
const LABEL = "audit log: authentication of entries";

/**
 * Creates the functions that make and check authentication codes.
 *
 * @param seeds - The configured keys. The first one makes codes, all check them.
 */
export function createEntryAuthentication(seeds: Config["AUDIT_SIGNING_KEYS"]): EntryAuthentication {
  const keys = new Map(
    (seeds ?? []).map(({ kid, key }) => [kid, Buffer.from(hkdfSync("sha256", key, new Uint8Array(), LABEL, 32))]),
  );
  const [current] = keys;

  return {
    sign: current && ((row) => `${current[0]}.${hmac(current[1], row).toString("base64url")}`),
    check({ mac, ...row }) {
      if (mac === undefined) return "absent";
      const separator = mac.lastIndexOf(".");
      const key = keys.get(mac.slice(0, separator));
      if (!key) return "unknownKey";
      const [expected, given] = [hmac(key, row), Buffer.from(mac.slice(separator + 1), "base64url")];
      return given.length === expected.length && timingSafeEqual(given, expected) ? "authentic" : "invalid";
    },
  };
}

const hmac = (key: Buffer, { partitionKey, rowKey, text, link }: Omit<AuthenticatedRow, "mac">): Buffer =>
  createHmac("sha256", key)
    .update(JSON.stringify([partitionKey, rowKey, text ?? null, link ?? null]))
    .digest();
