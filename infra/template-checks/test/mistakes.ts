/** Mistakes that people make in templates, planted into the real files one at a time. */

export interface Mistake {
  kind: string;
  /** Resource type, or file, with the mistake. */
  subject: string;
  file: string;
  line: number;
  text: string;
  /** Describes a mistake that was not found, for the person who reads the failure. */
  what: string;
}

/** A change that breaks a line; undefined if it does not apply to the line. */
type Spoil = (line: string) => string | undefined;

const KEY = /^(\s*['"]?)([A-Za-z_][\w-]*)(['"]?\s*[:=]\s*)(.+)$/;
const whole = (line: string): boolean => {
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
const misspelt = (word: string): string =>
  `${word.slice(0, -2)}${word.at(-1)}${word.at(-2) === word.at(-1) ? "x" : word.at(-2)}`;

const SPOILS: Record<string, Spoil> = {
  misspeltKey: (line) =>
    (line.match(KEY) &&
      line.replace(KEY, (_, before, key, between, value) => `${before}${misspelt(key)}${between}${value}`)) ||
    undefined,
  removed: (line) => (whole(line) ? "" : undefined),
  wrongType: (line) => {
    const [, , , , value] = KEY.exec(line) ?? [];
    if (value === undefined) return undefined;
    const other = /^(true|false)$/.test(value)
      ? line.includes("=")
        ? '"perhaps"'
        : "'perhaps'"
      : /^(\d+|'[^'${}]*'|"[^"${}]*")$/.test(value)
        ? "true"
        : undefined;
    return other && line.slice(0, line.length - value.length) + other;
  },
  undeclaredName: (line) => {
    const value = KEY.exec(line)?.[4];
    if (value === undefined || !/^[a-z]\w*(\.\w+)+$|^[a-z]\w*$/.test(value) || /^(true|false|null)$/.test(value))
      return undefined;
    return line.slice(0, line.length - value.length) + value.replace(/\w+$/, misspelt);
  },
  otherValue: (line) => {
    const value = KEY.exec(line)?.[4];
    if (value === undefined) return undefined;
    const other =
      value === "true"
        ? "false"
        : value === "false"
          ? "true"
          : /^\d+$/.test(value)
            ? String(Number(value) + 1)
            : /^(['"])[\w.-]+\1$/.test(value)
              ? `${value.slice(0, -1)}z${value.at(-1)}`
              : undefined;
    return other && line.slice(0, line.length - value.length) + other;
  },
};

/** Lists the mistakes that can be planted in the lines of a block or file. */
function inLines(file: string, lines: readonly string[], from: number, to: number, subject: string): Mistake[] {
  const found: Mistake[] = [];
  for (let index = from; index < to; index++) {
    const line = lines[index]!;
    if (/^\s*(#|\/\/)/.test(line)) continue;
    // A JSON member that is followed by another member.
    const comma = file.endsWith(".json") && line.endsWith(",") ? "," : "";
    const bare = comma === "" ? line : line.slice(0, -1);
    for (const [kind, spoil] of Object.entries(SPOILS)) {
      const written = spoil(bare);
      if (written === undefined || written === bare) continue;
      const spoilt = written + comma;
      const text = [...lines.slice(0, index), ...(kind === "removed" ? [] : [spoilt]), ...lines.slice(index + 1)].join(
        "\n",
      );
      found.push({
        kind,
        subject,
        file,
        line: index + 1,
        text,
        what: `${line.trim()} → ${spoilt.trim() || "nothing"}`,
      });
    }
  }
  return found;
}

/** All mistakes, for a random selection by seed. */
export function allMistakes(files: ReadonlyMap<string, string>): Mistake[] {
  return [...files]
    .filter(([file]) => !/(workbook|host)\.json$|\.md$|\.kql$|\/examples\//.test(file))
    .flatMap(([file, text]) => mistakesIn(file, text));
}

function mistakesIn(file: string, text: string): Mistake[] {
  const lines = text.split("\n");
  const found: Mistake[] = [];
  let outside = 0;
  for (const { start, end, subject } of blocksIn(lines, file)) {
    found.push(...inLines(file, lines, start + 1, end, subject));
    const without = [...lines.slice(0, start), ...lines.slice(end + 1)].join("\n");
    found.push({ kind: "blockRemoved", subject, file, line: start + 1, text: without, what: lines[start]! });
    const version = /@\d{4}-\d{2}-\d{2}/.exec(lines[start]!)?.[0];
    if (version) {
      const other = [
        ...lines.slice(0, start),
        lines[start]!.replace(version, "@2015-01-01"),
        ...lines.slice(start + 1),
      ].join("\n");
      found.push({ kind: "unknownVersion", subject, file, line: start + 1, text: other, what: version });
    }
    found.push(...inLines(file, lines, outside, start, kindOfFile(file)));
    outside = end + 1;
  }
  found.push(...inLines(file, lines, outside, lines.length, kindOfFile(file)));
  return [...found, ...rolesIn(file, lines)];
}

/** A block from `resource … {` to the `}` or `]` in the first column. */
function blocksIn(lines: readonly string[], file: string): { start: number; end: number; subject: string }[] {
  const found = [];
  for (const [start, line] of lines.entries()) {
    const type = /^resource \w+ '([^'@]+)@/.exec(line)?.[1] ?? /^resource "(\w+)"/.exec(line)?.[1];
    const module = /^module \w+ '|^module "/.test(line) ? `module in ${kindOfFile(file)}` : undefined;
    const subject = type ?? module;
    if (subject === undefined || / existing = /.test(line)) continue;
    const end = lines.findIndex((one, index) => index > start && /^[}\]]/.test(one));
    found.push({ start, end, subject });
  }
  return found;
}

/** Replaces a role's id by the id of another role. */
function rolesIn(file: string, lines: readonly string[]): Mistake[] {
  return lines.flatMap((line, index) => {
    const spoilt = line
      .replace(/'[0-9a-f-]{36}'/, "'8e3af657-a8ff-443c-a75c-2fe8c4bcb635'")
      .replace(/role_definition_name = ".*"/, 'role_definition_name = "Owner"');
    if (spoilt === line) return [];
    const text = [...lines.slice(0, index), spoilt, ...lines.slice(index + 1)].join("\n");
    return [{ kind: "wrongRole", subject: "role", file, line: index + 1, text, what: line.trim() }];
  });
}

function kindOfFile(file: string): string {
  if (file.endsWith(".bicep")) return "Bicep";
  return file.endsWith(".tf") ? "Terraform" : file;
}
