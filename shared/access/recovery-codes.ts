import { createHash } from "node:crypto";
import type { Randomness } from "../platform/runtime.ts";

export const RECOVERY_CODE_COUNT = 10;
/** 24 digits of 5 bits each: with 112 or more random bits, a fast hash is enough to store a code (OWASP ASVS 5.0, 6.5.2). */
const CODE_DIGITS = 24;

/** The digits of https://www.crockford.com/base32.html, which people don't confuse when they copy a code. */
const DIGITS = "0123456789abcdefghjkmnpqrstvwxyz";

/** Returns new recovery codes, for example `7k3m-q0vd-x2ha-9wcz-4nte-8b1r`. */
export const newRecoveryCodes = (randomness: Randomness): string[] =>
  Array.from({ length: RECOVERY_CODE_COUNT }, () => {
    // Every digit is equally likely, because 32 divides the 256 values of a byte.
    const digits = Array.from(randomness.bytes(CODE_DIGITS), (byte) => DIGITS[byte % DIGITS.length]);
    return digits.join("").replace(/.{4}(?=.)/g, "$&-");
  });

/**
 * Returns the hash under which a code is stored. Ignores case, spaces and hyphens, and reads O as 0, and I and L as 1.
 *
 * @param uid - See `uidOf`. The same code of two users has two hashes.
 */
export function recoveryCodeHash(uid: string, code: string): string {
  const digits = code.toLowerCase().replace(/[\s-]/g, "").replaceAll("o", "0").replace(/[il]/g, "1");
  return createHash("sha256").update(`recovery-code\0${uid}\0${digits}`).digest("base64url");
}
