import { DAY_MS, SECOND_MS } from "../../platform/time.ts";
import type { AssetFacts } from "../facts.ts";

/** How to mend one violation: with this resource's own names, and such that it works as it stands but for what is in `<…>`. */
export interface Remediation {
  portal: string;
  /**
   * Lines for a POSIX shell. A command that takes something away from a consumer stands in a comment, below the commands that
   * make its replacement: pasting all lines breaks nothing.
   */
  cli: string;
  /** Null where no template changes the resource. */
  bicep: string | null;
  /** Why there is none, or what to know before it is deployed. */
  bicepNote: string;
}

/** What is to be mended. */
export interface Target {
  /** The vault's name, or that of the holder of a directory's credentials. */
  vault: string;
  name: string;
  facts: AssetFacts;
  /** Milliseconds since 1970. */
  now: number;
}

/** Characters that end a line, move the cursor or turn the direction of writing. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A name in a sentence: on one line, whatever it holds. */
export const inText = (name: string): string => name.replace(UNSEEN, "\uFFFD");

/** One word of a POSIX shell, on one line. What names don't hold by their rules, other implementations may answer. */
export function shellWord(value: string): string {
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(value)) return value;
  if (value.search(UNSEEN) < 0) return `'${value.replaceAll("'", "'\\''")}'`;
  // No quote inside: a shell that does not know $'…' must not take one for its end.
  const escaped = value.replaceAll("\\", "\\\\").replaceAll("'", "\\047");
  // By their bytes: of a code point, a shell outside of a UTF-8 locale makes something else.
  const octal = (character: string) =>
    [...Buffer.from(character)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`);
  return `$'${escaped.replace(UNSEEN, (character) => octal(character).join(""))}'`;
}

/** A command of the Azure CLI. A value that begins with a dash is no option. */
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

/** A string of Bicep. */
export const bicepString = (value: string): string =>
  `'${value
    .replaceAll("\\", "\\\\")
    .replaceAll("'", "\\'")
    .replaceAll("$", "\\$")
    .replace(UNSEEN, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`)}'`;

/** Joins lines of a shell script. */
export const lines = (...all: string[]): string => all.join("\n");

/**
 * Comments out a command that people run by hand once its condition holds. A condition has no quotes and no separators of
 * commands: a shell that takes no comments from people, such as zsh, must not make more of it than a command it does not know.
 */
export const later = (condition: string, command: string): string => lines(`# ${condition}:`, `# ${command}`);

/** The beginning of the day so many days from now, as options take it. */
export const dayIn = (now: number, days: number): string =>
  `${new Date(now + days * DAY_MS).toISOString().slice(0, 10)}T00:00:00Z`;

/** Unix seconds as options take them. */
export const optionInstant = (seconds: number): string =>
  `${new Date(seconds * SECOND_MS).toISOString().slice(0, 19)}Z`;
