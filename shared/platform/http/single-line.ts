import * as z from "zod";

/**
 * Characters that a single line must not contain: control characters (NUL, CR, LF, tab and the rest of Unicode's category Cc),
 * line and paragraph separators, lone surrogates, and bidirectional controls, which can make a text look like another:
 * https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing
 */
const NOT_ON_ONE_LINE = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/u;

/** Returns whether a text can be used unchanged in a name, a subject or a log line. */
export const isSingleLine = (text: string): boolean => !NOT_ON_ONE_LINE.test(text);

/**
 * Replaces characters in an external text, such as a display name of the directory, so that it fits on one line of a message.
 */
export const toSingleLine = (text: string): string => text.replace(new RegExp(NOT_ON_ONE_LINE, "gu"), " ");

/** Control characters, line and paragraph separators, invisible format characters, and lone surrogates. */
const INVISIBLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Cf}\p{Cs}]/gu;

/** Returns the text on one line: line breaks and invisible characters become `\uXXXX`, as in JSON. */
export const escapeToSingleLine = (text: string): string =>
  text.replace(INVISIBLE, (character) =>
    Array.from({ length: character.length }, (_, index) => {
      const code = character.charCodeAt(index).toString(16);
      return `\\u${code.padStart(4, "0")}`;
    }).join(""),
  );

/** Schema of a name or remark: 1 to `longest` characters on one line, without surrounding blanks. */
export const singleLine = (longest: number) =>
  z
    .string()
    .trim()
    .min(1, "must not be empty")
    .max(longest, `must be at most ${longest} characters`)
    .refine(isSingleLine, "must be one line without control characters");
