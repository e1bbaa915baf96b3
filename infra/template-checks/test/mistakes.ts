/**
 * Generates mistakes that people make in templates. `check.test.ts` applies them to the real files one at a time, and counts
 * how many the template checks find.
 */

export interface Mistake {
  /** Name of the change, for example `removed`. See `LINE_CHANGES`, and `mistakesIn` for changes of a block. */
  kind: string;
  /** Resource type with the mistake, or the kind of file if the mistake is outside of a resource. */
  subject: string;
  file: string;
  /** Number of the changed line, from 1. */
  line: number;
  /** The whole text of the file with the mistake. */
  text: string;
  /** Describes the change, for the person who reads a test failure. */
  what: string;
}

/** Returns the line with a mistake. Undefined if this mistake is not possible in the line. */
type LineChange = (line: string) => string | undefined;

/**
 * A member of a Bicep, Terraform or JSON object on one line: `name: value`, `name = value` or `"name": value`. Group 4 is the
 * value.
 */
const KEY = /^(\s*['"]?)([A-Za-z_][\w-]*)(['"]?\s*[:=]\s*)(.+)$/;
/** Returns whether the line is a member whose value ends on the line, so that the line can be removed alone. */
const isWholeMember = (line: string): boolean => {
  const value = KEY.exec(line)?.[4];
  return (
    value !== undefined &&
    [
      ["{", "}"],
      ["[", "]"],
      ["(", ")"],
    ].every(([open, close]) => value.split(open!).length === value.split(close!).length)
  );
};
/** Swaps the last two letters. If they are equal, replaces the last one by "x". */
const misspelled = (word: string): string =>
  `${word.slice(0, -2)}${word.at(-1)}${word.at(-2) === word.at(-1) ? "x" : word.at(-2)}`;

/**
 * Changes of one line by kind of mistake. `wrongType` replaces a value by one of another type, `undeclaredName` misspells a
 * reference, and `otherValue` changes a value within its type.
 */
const LINE_CHANGES: Record<string, LineChange> = {
  misspelledKey: (line) =>
    (line.match(KEY) &&
      line.replace(KEY, (_, indent, key, separator, value) => `${indent}${misspelled(key)}${separator}${value}`)) ||
    undefined,
  removed: (line) => (isWholeMember(line) ? "" : undefined),
  wrongType: (line) => {
    const [, , , , value] = KEY.exec(line) ?? [];
    if (value === undefined) return undefined;
    const otherValue = /^(true|false)$/.test(value)
      ? line.includes("=")
        ? '"perhaps"'
        : "'perhaps'"
      : /^(\d+|'[^'${}]*'|"[^"${}]*")$/.test(value)
        ? "true"
        : undefined;
    return otherValue && line.slice(0, line.length - value.length) + otherValue;
  },
  undeclaredName: (line) => {
    const value = KEY.exec(line)?.[4];
    if (value === undefined || !/^[a-z]\w*(\.\w+)+$|^[a-z]\w*$/.test(value) || /^(true|false|null)$/.test(value))
      return undefined;
    return line.slice(0, line.length - value.length) + value.replace(/\w+$/, misspelled);
  },
  otherValue: (line) => {
    const value = KEY.exec(line)?.[4];
    if (value === undefined) return undefined;
    const otherValue =
      value === "true"
        ? "false"
        : value === "false"
          ? "true"
          : /^\d+$/.test(value)
            ? String(Number(value) + 1)
            : /^(['"])[\w.-]+\1$/.test(value)
              ? `${value.slice(0, -1)}z${value.at(-1)}`
              : undefined;
    return otherValue && line.slice(0, line.length - value.length) + otherValue;
  },
};

/** Lists the possible mistakes in the lines from `from` (included) to `to` (excluded). */
function mistakesInLines(file: string, lines: readonly string[], from: number, to: number, subject: string): Mistake[] {
  const mistakes: Mistake[] = [];
  for (let index = from; index < to; index++) {
    const line = lines[index]!;
    if (/^\s*(#|\/\/)/.test(line)) continue;
    // In JSON, a comma follows each member but the last.
    const comma = file.endsWith(".json") && line.endsWith(",") ? "," : "";
    const bare = comma === "" ? line : line.slice(0, -1);
    for (const [kind, change] of Object.entries(LINE_CHANGES)) {
      const changed = change(bare);
      if (changed === undefined || changed === bare) continue;
      const wrongLine = changed + comma;
      const text = [
        ...lines.slice(0, index),
        ...(kind === "removed" ? [] : [wrongLine]),
        ...lines.slice(index + 1),
      ].join("\n");
      mistakes.push({
        kind,
        subject,
        file,
        line: index + 1,
        text,
        what: `${line.trim()} → ${wrongLine.trim() || "nothing"}`,
      });
    }
  }
  return mistakes;
}

/**
 * Returns all mistakes that can be made in the files. Skips files whose lines the checks do not compare one by one.
 * @param files Text by file name.
 */
export function allMistakes(files: ReadonlyMap<string, string>): Mistake[] {
  return [...files]
    .filter(([file]) => !/(workbook|host)\.json$|\.(md|kql|hcl)$|\/examples\//.test(file))
    .flatMap(([file, text]) => mistakesIn(file, text));
}

function mistakesIn(file: string, text: string): Mistake[] {
  const lines = text.split("\n");
  const mistakes: Mistake[] = [];
  /** First line after the previous block. */
  let nextOutside = 0;
  for (const { start, end, subject } of blocksIn(lines, file)) {
    mistakes.push(...mistakesInLines(file, lines, start + 1, end, subject));
    const without = [...lines.slice(0, start), ...lines.slice(end + 1)].join("\n");
    mistakes.push({ kind: "blockRemoved", subject, file, line: start + 1, text: without, what: lines[start]! });
    const apiVersion = /@\d{4}-\d{2}-\d{2}/.exec(lines[start]!)?.[0];
    if (apiVersion) {
      const withOldVersion = [
        ...lines.slice(0, start),
        lines[start]!.replace(apiVersion, "@2015-01-01"),
        ...lines.slice(start + 1),
      ].join("\n");
      mistakes.push({ kind: "unknownVersion", subject, file, line: start + 1, text: withOldVersion, what: apiVersion });
    }
    mistakes.push(...mistakesInLines(file, lines, nextOutside, start, kindOfFile(file)));
    nextOutside = end + 1;
  }
  mistakes.push(...mistakesInLines(file, lines, nextOutside, lines.length, kindOfFile(file)));
  return [...mistakes, ...mistakesInRoles(file, lines)];
}

/** Finds the resource and module blocks: from the line `resource … {` to the `}` or `]` in the first column. */
function blocksIn(lines: readonly string[], file: string): { start: number; end: number; subject: string }[] {
  const blocks = [];
  for (const [start, line] of lines.entries()) {
    const type = /^resource \w+ '([^'@]+)@/.exec(line)?.[1] ?? /^resource "(\w+)"/.exec(line)?.[1];
    const module = /^module \w+ '|^module "/.test(line) ? `module in ${kindOfFile(file)}` : undefined;
    const subject = type ?? module;
    if (subject === undefined || / existing = /.test(line)) continue;
    const end = lines.findIndex((one, index) => index > start && /^[}\]]/.test(one));
    blocks.push({ start, end, subject });
  }
  return blocks;
}

const OWNER_ROLE_ID = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";

/** Lists the mistakes in which the role of an assignment is replaced by Owner. */
function mistakesInRoles(file: string, lines: readonly string[]): Mistake[] {
  return lines.flatMap((line, index) => {
    const wrongLine = line
      .replace(/'[0-9a-f-]{36}'/, `'${OWNER_ROLE_ID}'`)
      .replace(/role_definition_name = ".*"/, 'role_definition_name = "Owner"');
    if (wrongLine === line) return [];
    const text = [...lines.slice(0, index), wrongLine, ...lines.slice(index + 1)].join("\n");
    return [{ kind: "wrongRole", subject: "role", file, line: index + 1, text, what: line.trim() }];
  });
}

function kindOfFile(file: string): string {
  if (file.endsWith(".bicep")) return "Bicep";
  return file.endsWith(".tf") ? "Terraform" : file;
}
