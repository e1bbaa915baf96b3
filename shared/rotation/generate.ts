import type { Randomness } from "../platform/runtime.ts";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS = "0123456789";

/** Sets of characters by name. */
export const ALPHABETS: Record<string, string> = {
  alphanumeric: LETTERS + DIGITS,
  hex: `${DIGITS}abcdef`,
  base64url: `${LETTERS + DIGITS}-_`,
  symbols: `${LETTERS + DIGITS}!#$%&()*+,-./:;<=>?@[]^_{|}~`,
};

/** https://cheatsheetseries.owasp.org/cheatsheets/Secrets_Management_Cheat_Sheet.html asks for unguessable ones; 96 bits are. */
const LEAST_BITS = 96;
const BYTE = 256;

const charactersOf = (alphabet: string): string =>
  Object.hasOwn(ALPHABETS, alphabet) ? ALPHABETS[alphabet]! : alphabet;

/** Characters that a value of an alphabet must have; undefined when that names one twice. */
export function leastLength(alphabet: string): number | undefined {
  const characters = charactersOf(alphabet);
  if (new Set(characters).size < characters.length) return undefined;
  return Math.ceil(LEAST_BITS / Math.log2(characters.length));
}

/** A value of `length` characters, each equally likely. */
export function generate({ length, alphabet }: { length: number; alphabet: string }, randomness: Randomness): string {
  const characters = charactersOf(alphabet);
  // Bytes beyond the last whole multiple would make the first characters likelier.
  const limit = BYTE - (BYTE % characters.length);
  let value = "";
  while (value.length < length) {
    for (const byte of randomness.bytes(length)) {
      if (byte < limit && value.length < length) value += characters[byte % characters.length];
    }
  }
  return value;
}
