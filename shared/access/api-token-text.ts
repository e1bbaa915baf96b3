import { crc32 } from "node:zlib";
import { USERNAME } from "./user.ts";

/**
 * The text format of API tokens: `clm_`, then 32 random bytes, the user and the CRC32 of that text, all in base62. Secret
 * scanners recognize the format, and a typo is detected without a storage read, as GitHub does
 * (https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/). The user in the text
 * makes one read of the user's row enough to verify the token. Tokens of earlier versions don't name their user.
 */
export const API_TOKEN_PREFIX = "clm_";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** Number of base62 digits for 32 bytes, for 4 bytes, and for the longest username. */
const SECRET_DIGITS = 43;
const CHECK_DIGITS = 6;
const MAX_USER_DIGITS = 172;
const SHAPE = new RegExp(
  `^${API_TOKEN_PREFIX}[0-9A-Za-z]{${SECRET_DIGITS}}([0-9A-Za-z]{0,${MAX_USER_DIGITS}})[0-9A-Za-z]{${CHECK_DIGITS}}$`,
);

/**
 * @param secret - 32 random bytes.
 * @param user - The row key of the user. Omitted for the format of earlier versions.
 */
export function apiTokenText(secret: Uint8Array, user = ""): string {
  const digits = base62(numberOf(secret), SECRET_DIGITS) + base62(numberOf(Buffer.from(user)), 0);
  return API_TOKEN_PREFIX + digits + checkOf(digits);
}

/**
 * Returns the user that a token names (undefined for tokens of earlier versions), or undefined if the text is not an API token.
 */
export function readApiToken(text: string): { user: string | undefined } | undefined {
  const shape = SHAPE.exec(text);
  if (!shape || text.slice(-CHECK_DIGITS) !== checkOf(text.slice(API_TOKEN_PREFIX.length, -CHECK_DIGITS)))
    return undefined;
  const digits = shape[1]!;
  if (digits === "") return { user: undefined };
  const user = textOf([...digits].reduce((number, digit) => number * 62n + BigInt(DIGITS.indexOf(digit)), 0n));
  return USERNAME.test(user) ? { user } : undefined;
}

const checkOf = (digits: string): string => base62(BigInt(crc32(digits)), CHECK_DIGITS);

const numberOf = (bytes: Uint8Array): bigint => BigInt(`0x0${Buffer.from(bytes).toString("hex")}`);

function textOf(number: bigint): string {
  const hex = number.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex").toString();
}

function base62(number: bigint, length: number): string {
  let [text, rest] = ["", number];
  for (; rest > 0n; rest /= 62n) text = DIGITS[Number(rest % 62n)] + text;
  return text.padStart(length, "0");
}
