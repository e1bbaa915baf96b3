/**
 * Invisible characters, characters that reorder text, and unusual spaces: they could hide from a person what is approved.
 */
const UNCLEAR = /[\p{Cf}\p{DI}\p{Zl}\p{Zp}\u007f-\u009f\u2800]|(?! )\p{Zs}/gu;
const escaped = (text: string): string =>
  text.replace(UNCLEAR, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);

/** Shows a JSON value in full, without anything that could hide a part of it. */
export const ExactJson = ({ value }: { value: unknown }) => (
  <pre style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{escaped(JSON.stringify(value, null, 2))}</pre>
);
