// Quotes values for commands of the Azure CLI that users run. Names are not trusted.

/** Characters that end a line, move the cursor or change the writing direction. */
export const INVISIBLE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Quotes one argument for a POSIX shell, on one line. Azure's naming rules exclude special characters, but this does not rely
 * on them.
 */
export function shellWord(value: string): string {
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(value)) return value;
  if (value.search(INVISIBLE_CHARACTERS) < 0) return `'${value.replaceAll("'", "'\\''")}'`;
  // Single quotes are escaped as \047, because shells that don't support $'…' would take one for the end of the argument.
  const escaped = value.replaceAll("\\", "\\\\").replaceAll("'", "\\047");
  // Characters are escaped byte by byte, because shells outside of a UTF-8 locale interpret escaped code points differently.
  const octal = (character: string) =>
    [...Buffer.from(character)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`);
  return `$'${escaped.replace(INVISIBLE_CHARACTERS, (character) => octal(character).join(""))}'`;
}

/**
 * Returns an Azure CLI command. Values that start with a dash are written as `--option=value`, so that they are not taken for
 * options.
 */
export function az(command: string, options: Readonly<Record<string, string>>): string {
  const words = Object.entries(options).map(([name, value]) =>
    value === ""
      ? `--${name}`
      : value.startsWith("-")
        ? `--${name}=${shellWord(value)}`
        : `--${name} ${shellWord(value)}`,
  );
  return ["az", command, ...words].join(" ");
}
