import { crc32 } from "node:zlib";
import { USERNAME } from "./user.ts";

/**
 * The start of the text of an API token. The whole text is `clm_`, then 32 random bytes, the user and the CRC32 of that text,
 * all in base62, for example `clm_4fT…`. Secret scanners recognize the format, and the CRC32 reveals a typo without a storage
 * read. The source of the format is
 * https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/. The user in the text lets
 * the service verify the token with one read of the user's row. Tokens of earlier versions don't name their user.
 */
export const API_TOKEN_PREFIX = "clm_";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** Number of base62 digits of the 32 random bytes. */
const SECRET_DIGITS = 43;
/** Number of base62 digits of the 4 bytes of the CRC32. */
const CHECK_DIGITS = 6;
/** Number of base62 digits of the longest username, 128 bytes. */
const MAX_USER_DIGITS = 172;
const TOKEN_FORMAT = new RegExp(
  `^${API_TOKEN_PREFIX}[0-9A-Za-z]{${SECRET_DIGITS}}([0-9A-Za-z]{0,${MAX_USER_DIGITS}})[0-9A-Za-z]{${CHECK_DIGITS}}$`,
);

/**
 * Returns the text of an API token.
 *
 * @param secret - 32 random bytes.
 * @param user - The row key of the user. Omitted for the format of earlier versions.
 */
export function apiTokenText(secret: Uint8Array, user = ""): string {
  const digits = base62(numberOf(secret), SECRET_DIGITS) + base62(numberOf(Buffer.from(user)), 0);
  return API_TOKEN_PREFIX + digits + checkOf(digits);
}

/**
 * Reads the user from the text of a token; `user` is undefined for a token of an earlier version. Returns undefined if the text
 * does not have the format of an API token or its checksum is wrong.
 */
export function readApiToken(text: string): { user: string | undefined } | undefined {
  const match = TOKEN_FORMAT.exec(text);
  if (!match || text.slice(-CHECK_DIGITS) !== checkOf(text.slice(API_TOKEN_PREFIX.length, -CHECK_DIGITS)))
    return undefined;
  const digits = match[1]!;
  if (digits === "") return { user: undefined };
  const user = textOf([...digits].reduce((number, digit) => number * 62n + BigInt(DIGITS.indexOf(digit)), 0n));
  return USERNAME.test(user) ? { user } : undefined;
}

const checkOf = (digits: string): string => base62(BigInt(crc32(digits)), CHECK_DIGITS);

/** Returns the number that the bytes represent, most significant first. The leading 0 makes it 0 for no bytes. */
const numberOf = (bytes: Uint8Array): bigint => BigInt(`0x0${Buffer.from(bytes).toString("hex")}`);

function textOf(number: bigint): string {
  const hex = number.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex").toString();
}

/** Returns a number in base62, padded to at least `length` digits. */
function base62(number: bigint, length: number): string {
  let [text, remaining] = ["", number];
  for (; remaining > 0n; remaining /= 62n) text = DIGITS[Number(remaining % 62n)] + text;
  return text.padStart(length, "0");
}
