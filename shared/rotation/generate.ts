import type { Randomness } from "../platform/runtime.ts";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS = "0123456789";

/** Character sets by name. */
export const ALPHABETS: Record<string, string> = {
  alphanumeric: LETTERS + DIGITS,
  hex: `${DIGITS}abcdef`,
  base64url: `${LETTERS + DIGITS}-_`,
  symbols: `${LETTERS + DIGITS}!#$%&()*+,-./:;<=>?@[]^_{|}~`,
};

/**
 * Minimum entropy of a generated value. https://cheatsheetseries.owasp.org/cheatsheets/Secrets_Management_Cheat_Sheet.html asks
 * for unguessable values.
 */
const MIN_BITS = 96;
const BYTE = 256;

const charactersOf = (alphabet: string): string =>
  Object.hasOwn(ALPHABETS, alphabet) ? ALPHABETS[alphabet]! : alphabet;

/** Returns the minimum length of a value of this alphabet; undefined if the alphabet repeats a character. */
export function minLength(alphabet: string): number | undefined {
  const characters = charactersOf(alphabet);
  if (new Set(characters).size < characters.length) return undefined;
  return Math.ceil(MIN_BITS / Math.log2(characters.length));
}

/** Returns a random value of `length` characters, uniformly distributed. */
export function generate({ length, alphabet }: { length: number; alphabet: string }, randomness: Randomness): string {
  const characters = charactersOf(alphabet);
  // Bytes above the largest multiple are discarded. They would make the first characters more likely.
  const limit = BYTE - (BYTE % characters.length);
  let value = "";
  while (value.length < length) {
    for (const byte of randomness.bytes(length)) {
      if (byte < limit && value.length < length) value += characters[byte % characters.length];
    }
  }
  return value;
}
