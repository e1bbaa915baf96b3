import type { Randomness } from "../platform/runtime.ts";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS = "0123456789";

/** Predefined alphabets of generated values, by name. */
export const ALPHABETS: Record<string, string> = {
  alphanumeric: LETTERS + DIGITS,
  hex: `${DIGITS}abcdef`,
  base64url: `${LETTERS + DIGITS}-_`,
  symbols: `${LETTERS + DIGITS}!#$%&()*+,-./:;<=>?@[]^_{|}~`,
};

/**
 * Minimum entropy of a generated value, so that it can't be guessed:
 * https://cheatsheetseries.owasp.org/cheatsheets/Secrets_Management_Cheat_Sheet.html
 */
const MIN_BITS = 96;
const BYTE_VALUES = 256;

const charactersOf = (alphabet: string): string =>
  Object.hasOwn(ALPHABETS, alphabet) ? ALPHABETS[alphabet]! : alphabet;

/** Returns the minimum length of a value of this alphabet; undefined if the alphabet repeats a character. */
export function minLength(alphabet: string): number | undefined {
  const characters = charactersOf(alphabet);
  if (new Set(characters).size < characters.length) return undefined;
  return Math.ceil(MIN_BITS / Math.log2(characters.length));
}

/** Returns a random value of `length` characters, uniformly distributed. */
export function generateValue(
  { length, alphabet }: { length: number; alphabet: string },
  randomness: Randomness,
): string {
  const characters = charactersOf(alphabet);
  // Bytes from the largest multiple of the alphabet's length on are skipped. They would make the first characters more likely.
  const limit = BYTE_VALUES - (BYTE_VALUES % characters.length);
  let value = "";
  while (value.length < length) {
    for (const byte of randomness.bytes(length)) {
      if (byte < limit && value.length < length) value += characters[byte % characters.length];
    }
  }
  return value;
}
