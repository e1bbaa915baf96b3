import { USERNAME } from "./user.ts";

// Converts names that an identity provider sends to usernames.

/** Maximum length of a name from a provider, so that a suffix still fits. */
const MAX_NAME_LENGTH = 100;
/** Names with another meaning in the audit log, or that look like a user's id. */
const RESERVED = /^(system$|anonymous$|sso-)/i;

/** Letters that Unicode does not decompose into a basic letter and a mark. */
const LETTERS: Readonly<Record<string, string>> = Object.fromEntries(
  "ß ss,ẞ SS,æ ae,Æ AE,œ oe,Œ OE,ø o,Ø O,đ d,Đ D,ð d,Ð D,ł l,Ł L,þ th,Þ TH,ı i"
    .split(",")
    .map((pair) => pair.split(" ")),
);

/** Converts a name from a provider to a valid username. Undefined if no valid character is left. */
export function usernameOf(name: string | undefined): string | undefined {
  const plain = (name ?? "")
    .normalize("NFKD")
    .replace(/\p{M}+/gu, "")
    .replace(/\p{L}/gu, (letter) => LETTERS[letter] ?? letter)
    .replace(/[^A-Za-z0-9._@+-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, MAX_NAME_LENGTH)
    .replace(/-+$/, "");
  return USERNAME.test(plain) && !RESERVED.test(plain) ? plain : undefined;
}
