/** Invisible characters, characters that reorder text, and unusual spaces. */
const UNCLEAR = /[\p{Cf}\p{DI}\p{Zl}\p{Zp}\u007f-\u009f\u2800]|(?! )\p{Zs}/gu;

/** Returns a text with escapes for characters that could hide a part of the text from a person. */
export const visibleText = (text: string): string =>
  text.replace(UNCLEAR, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
