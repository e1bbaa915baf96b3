import { crc32 } from "node:zlib";

/**
 * How API tokens are written: `clm_`, 32 random bytes and the CRC32 of that text, both in base62. So scanners for secrets
 * recognise one, and a typo is told from a token without a look-up, as GitHub has it:
 * https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/
 */
export const API_TOKEN_PREFIX = "clm_";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** Digits of the largest number of 32 bytes, and of 4. */
const SECRET_DIGITS = 43;
const CHECK_DIGITS = 6;
const SHAPE = new RegExp(`^${API_TOKEN_PREFIX}[0-9A-Za-z]{${SECRET_DIGITS + CHECK_DIGITS}}$`);

/** @param secret - 32 random bytes. */
export function apiTokenText(secret: Uint8Array): string {
  const digits = base62(BigInt(`0x${Buffer.from(secret).toString("hex")}`), SECRET_DIGITS);
  return API_TOKEN_PREFIX + digits + checkOf(digits);
}

/** Whether it can be one of ours at all. */
export const isApiTokenText = (text: string): boolean =>
  SHAPE.test(text) && text.slice(-CHECK_DIGITS) === checkOf(text.slice(API_TOKEN_PREFIX.length, -CHECK_DIGITS));

const checkOf = (digits: string): string => base62(BigInt(crc32(digits)), CHECK_DIGITS);

function base62(number: bigint, length: number): string {
  let [text, rest] = ["", number];
  for (; rest > 0n; rest /= 62n) text = DIGITS[Number(rest % 62n)] + text;
  return text.padStart(length, "0");
}
