/** A problem of a deployment that preflight found. */
export interface Finding {
  /** Stable name of the kind of finding, such as `name.deleted`. docs/preflight.md lists them. */
  code: string;
  /**
   * `stops`: the deployment would fail. `degrades`: it succeeds, but a part does not work. `notChecked`: preflight could not
   * find out.
   */
  severity: "stops" | "degrades" | "notChecked";
  /** The resource, policy, role or parameter. */
  subject: string;
  message: string;
  /** The fix in words. */
  remedy: string;
  /** The command of the fix, or for `notChecked` the command that shows the answer. */
  command: string;
}

/** The result of one check: a line about the checked facts, and the findings. */
export interface CheckResult {
  summary: string;
  findings: Finding[];
}

/** Quotes an argument for a shell, always. Values can come from the cloud, so an unquoted one could run a command. */
export const quoteAlways = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Quotes an argument for a shell, if it has other characters than those of names and ids. */
export const quote = (text: string): string => (/^[\w./:@,=+-]+$/.test(text) ? text : quoteAlways(text));

/** Returns a number with its noun: `1 scope`, `2 scopes`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

/** Joins names for a message: the first ones, and the number of the others. */
export function listOf(names: readonly string[], shown = 4): string {
  const unique = [...new Set(names)];
  const rest = unique.length - shown;
  return rest > 0 ? `${unique.slice(0, shown).join(", ")} and ${rest} more` : unique.join(", ");
}
