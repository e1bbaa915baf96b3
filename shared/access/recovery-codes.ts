import { createHash } from "node:crypto";
import type { Randomness } from "../platform/runtime.ts";

export const RECOVERY_CODE_COUNT = 10;
/** 80 random bits, so that a fast hash is enough to store a code. */
const CODE_BYTES = 10;
const CODE_DIGITS = 16;

/** The digits of https://www.crockford.com/base32.html, which people don't confuse when they copy a code. */
const DIGITS = "0123456789abcdefghjkmnpqrstvwxyz";

/** Returns new recovery codes, for example `7k3m-q0vd-x2ha-9wcz`. */
export const newRecoveryCodes = (randomness: Randomness): string[] =>
  Array.from({ length: RECOVERY_CODE_COUNT }, () => {
    const number = BigInt(`0x${Buffer.from(randomness.bytes(CODE_BYTES)).toString("hex")}`);
    const digits = [...number.toString(32).padStart(CODE_DIGITS, "0")].map(
      (digit) => DIGITS[Number.parseInt(digit, 32)],
    );
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
