/**
 * Pattern of a ULID: 48 bits of milliseconds since 1970, then 80 random bits, in Crockford's base 32.
 * https://github.com/ulid/spec
 */
export const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

export const isUlid = (text: string): boolean => ULID.test(text);

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** Inverts the order of ULIDs, in the same alphabet. Used as a key, the result sorts the newest first. */
export const newestFirst = (ulid: string): string =>
  [...ulid].map((letter) => CROCKFORD[31 - CROCKFORD.indexOf(letter)]).join("");
