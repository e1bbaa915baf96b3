import { readFileSync } from "node:fs";
import path from "node:path";

/**
 * Returns the rows of the first table under a heading of a Markdown page. Each row has its cells by column name, without
 * backquotes.
 *
 * @param page - The path from the project's folder.
 * @param heading - The whole line, for example `## Endpoints`.
 */
export function tableUnder(page: string, heading: string): Record<string, string>[] {
  const lines = readFileSync(path.join(import.meta.dirname, "../..", page), "utf8").split("\n");
  const start = lines.findIndex((line, index) => index > lines.indexOf(heading) && line.startsWith("|"));
  if (!lines.includes(heading) || start < 0) throw new Error(`${page} has no table under "${heading}".`);
  const end = lines.findIndex((line, index) => index > start && !line.startsWith("|"));
  const [columns, , ...rows] = lines.slice(start, end < 0 ? undefined : end).map(cellsOf);
  return rows.map((cells) => Object.fromEntries(columns!.map((column, index) => [column, cells[index] ?? ""])));
}

const cellsOf = (line: string): string[] =>
  line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim().replaceAll("`", ""));
