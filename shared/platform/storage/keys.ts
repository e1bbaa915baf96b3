import { MAX_KEY_CHARACTERS } from "./limits.ts";

// Characters that the service rejects: / \ # ? and control characters
// (https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#characters-disallowed-in-key-fields).
// The service accepts % but then does not find the row, because it decodes a path twice
// (https://learn.microsoft.com/archive/blogs/windowsazurestorage/partitionkey-or-rowkey-containing-the-percent-character-causes-some-windows-azure-tables-apis-to-fail).
const illegal = "\\u0000-\\u001F/\\\\#?%\\u007F-\\u009F";
const illegalCharacter = new RegExp(`[${illegal}]`);
// Characters that `keyText` escapes: the illegal ones, the separator, the escape character, and lone surrogates, which UTF-8 can't
// encode.
const escaped = new RegExp(`[${illegal}|!]|\\p{Surrogate}`, "gu");

/**
 * Encodes any text as part of a key: legal, without the separator `|`, and reversible with `keyTextOf`. Each escaped character
 * becomes `!` and its code (`!2F`, or `!uD800`), so other characters keep their order and escaped characters sort near `!`.
 */
export function keyText(text: string): string {
  return text.replace(escaped, (character) => {
    const code = character.charCodeAt(0).toString(16).toUpperCase();
    return code.length > 2 ? `!u${code}` : `!${code.padStart(2, "0")}`;
  });
}

/** Decodes the result of `keyText`. */
export function keyTextOf(part: string): string {
  return part.replace(/!(?:u([0-9A-F]{4})|([0-9A-F]{2}))/g, (_, long: string | undefined, short: string) =>
    String.fromCharCode(Number.parseInt(long ?? short, 16)),
  );
}

/**
 * Returns the smallest string that sorts after every key with this prefix: the exclusive upper bound of a range. The service
 * compares keys by UTF-16 unit, as JavaScript does. The bound is not always a legal key.
 */
export function keyEnd(prefix: string): string {
  const characters = [...prefix];
  while (characters.length > 0) {
    const code = characters.pop()!.codePointAt(0)!;
    if (code === 0xffff) continue; // no string of this length sorts after it, so shorten the prefix
    return characters.join("") + String.fromCodePoint(nextInOrder(code));
  }
  throw new RangeError("No string sorts after every key.");
}

/** Returns the next code point in UTF-16 order. Surrogate pairs sort between U+D7FF and U+E000. */
function nextInOrder(code: number): number {
  if (code === 0xd7ff) return 0x10000;
  if (code === 0x10ffff) return 0xe000;
  return code + 1;
}

/**
 * Returns the start of a row's path at the table service. Append the row key (`inPath`) and `PATH_END`.
 *
 * @throws URIError for a key that `keyProblem` rejects.
 */
export const partitionPath = (table: string, partitionKey: string): string =>
  `${table}(PartitionKey='${encodeKey(partitionKey)}',RowKey='`;
/** End of a row's path. */
export const PATH_END = "')";

/** Encodes a key for a path, in which quotation marks are doubled. */
export const encodeKey = (key: string): string => encodeURIComponent(key.replaceAll("'", "''"));

/** Returns why the service would reject a partition or row key, or undefined. */
export function keyProblem(key: string): string | undefined {
  if (key.length > MAX_KEY_CHARACTERS) return `a key of ${key.length} characters is longer than ${MAX_KEY_CHARACTERS}`;
  const illegalMatch = illegalCharacter.exec(key);
  if (illegalMatch)
    return `a key can't hold the character U+${illegalMatch[0].charCodeAt(0).toString(16).padStart(4, "0")}`;
  if (!key.isWellFormed()) return "a key can't hold half a surrogate pair";
  return undefined;
}

/**
 * Prefix of the row keys of lists of rows (row-lists.ts). No range of other rows contains it. Builds that don't know the lists
 * skip row keys with `|` when they read users.
 */
export const LIST_PREFIX = "|~list|";
export const isListKey = (rowKey: string): boolean => rowKey.startsWith(LIST_PREFIX);
