import { DAY_MS, SECOND_MS } from "../../platform/time.ts";
import type { AssetFacts } from "../finding-facts.ts";

/** How to fix one violation, with the names of this resource. It works unchanged except for placeholders in `<…>`. */
export interface Remediation {
  portal: string;
  /**
   * Lines for a POSIX shell. A command that takes something away from a consumer is commented out, below the commands that
   * create its replacement. Pasting all lines breaks nothing.
   */
  cli: string;
  /** Null if no template can change the resource. */
  bicep: string | null;
  /** Why there is no template, or what to know before its deployment. */
  bicepNote: string;
}

/** The resource to fix. */
export interface Target {
  /** Name of the vault, or of the holder of a directory's credentials. */
  vault: string;
  name: string;
  facts: AssetFacts;
  /** Milliseconds since 1970. */
  now: number;
}

/** Characters that end a line, move the cursor or change the writing direction. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Returns a name for use in a sentence, on one line. */
export const inText = (name: string): string => name.replace(UNSEEN, "\uFFFD");

/**
 * Quotes one word for a POSIX shell, on one line. Names are not trusted, although Azure's naming rules exclude special
 * characters.
 */
export function shellWord(value: string): string {
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(value)) return value;
  if (value.search(UNSEEN) < 0) return `'${value.replaceAll("'", "'\\''")}'`;
  // No quote inside: a shell without support for $'…' must not take one for the end of the word.
  const escaped = value.replaceAll("\\", "\\\\").replaceAll("'", "\\047");
  // Escaped by bytes: shells outside of a UTF-8 locale interpret code points differently.
  const octal = (character: string) =>
    [...Buffer.from(character)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`);
  return `$'${escaped.replace(UNSEEN, (character) => octal(character).join(""))}'`;
}

/** Returns a command of the Azure CLI. Values that start with a dash are not taken for options. */
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

/** Quotes a string for Bicep. */
export const bicepString = (value: string): string =>
  `'${value
    .replaceAll("\\", "\\\\")
    .replaceAll("'", "\\'")
    .replaceAll("$", "\\$")
    .replace(UNSEEN, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`)}'`;

/** Joins lines of a shell script. */
export const lines = (...all: string[]): string => all.join("\n");

/**
 * Comments out a command that users run manually once its condition is met. Conditions have no quotes and no command
 * separators, because an interactive zsh does not support comments and would run the line.
 */
export const later = (condition: string, command: string): string => lines(`# ${condition}:`, `# ${command}`);

/** Returns the start of the day a number of days from now, in the format of command options. */
export const dayIn = (now: number, days: number): string =>
  `${new Date(now + days * DAY_MS).toISOString().slice(0, 10)}T00:00:00Z`;

/** Returns unix seconds in the format of command options. */
export const optionInstant = (seconds: number): string =>
  `${new Date(seconds * SECOND_MS).toISOString().slice(0, 19)}Z`;
