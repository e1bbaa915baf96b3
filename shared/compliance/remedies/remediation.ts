/** The form of a remediation, and functions that quote names for shells, Bicep and sentences. Names are not trusted. */
import { DAY_MS, SECOND_MS } from "../../platform/time.ts";
import type { AssetFacts } from "../finding-facts.ts";

/** Steps to fix one violation, with the resource's names. Users only replace placeholders in `<…>`. */
export interface Remediation {
  portal: string;
  /**
   * Lines for a POSIX shell. A destructive command is commented out, after the commands that create the replacement. So users
   * can paste all lines without harm.
   */
  cli: string;
  /** Null if no template can change the resource. */
  bicep: string | null;
  /** Why there is no template, or what to know before its deployment. */
  bicepNote: string;
}

/** The resource to fix. */
export interface Target {
  /** Name of the vault, or of the holder: the inventory's entry for credentials outside of key vaults. */
  vault: string;
  name: string;
  facts: AssetFacts;
  /** Milliseconds since 1970. */
  now: number;
}

/** Characters that end a line, move the cursor or change the writing direction. */
const INVISIBLE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Returns a name for use in a sentence, on one line. */
export const nameInText = (name: string): string => name.replace(INVISIBLE_CHARACTERS, "\uFFFD");

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

/** Quotes a string for Bicep. */
export const bicepString = (value: string): string =>
  `'${value
    .replaceAll("\\", "\\\\")
    .replaceAll("'", "\\'")
    .replaceAll("$", "\\$")
    .replace(INVISIBLE_CHARACTERS, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`)}'`;

/** Joins lines of a shell script. */
export const joinLines = (...all: string[]): string => all.join("\n");

/**
 * Returns a command as a comment, after a comment with the condition under which users run it. The condition must contain no
 * quotes and no command separators: an interactive zsh does not support comments by default and would run the line.
 */
export const commentedCommand = (condition: string, command: string): string =>
  joinLines(`# ${condition}:`, `# ${command}`);

/** Returns the start of the day a number of days from now, in the format of command options. */
export const startOfDayIn = (now: number, days: number): string =>
  `${new Date(now + days * DAY_MS).toISOString().slice(0, 10)}T00:00:00Z`;

/** Returns Unix seconds in the format of command options. */
export const instantOption = (seconds: number): string =>
  `${new Date(seconds * SECOND_MS).toISOString().slice(0, 19)}Z`;
