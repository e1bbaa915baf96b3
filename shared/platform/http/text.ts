import * as z from "zod";

/**
 * What no text of one line holds: control characters (NUL, CR, LF, tab and the rest of Unicode's category Cc), the line
 * and paragraph separators, and the marks that turn the direction of writing, by which a text can show as another:
 * https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing
 */
const NOT_IN_A_LINE = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/u;

/** Whether a text may stand in a name, a subject or a log line as it is. */
export const isSingleLine = (text: string): boolean => !NOT_IN_A_LINE.test(text);

/** A text that others gave, such as a display name of the directory, as it may stand in a message. */
export const onOneLine = (text: string): string => text.replace(new RegExp(NOT_IN_A_LINE, "gu"), " ");

/** A name or remark that a person gives: 1 to `longest` characters on one line, without blanks around it. */
export const singleLine = (longest: number) =>
  z
    .string()
    .trim()
    .min(1, "must not be empty")
    .max(longest, `must be at most ${longest} characters`)
    .refine(isSingleLine, "must be one line without control characters");
