/** The form of a remediation, and functions that quote names for shells, Bicep and sentences. Names are not trusted. */
import { INVISIBLE_CHARACTERS } from "../../platform/azure/cli.ts";
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

/** Returns a name for use in a sentence, on one line. */
export const nameInText = (name: string): string => name.replace(INVISIBLE_CHARACTERS, "\uFFFD");

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
