/**
 * Returns the lines below a heading of a Markdown page, up to the next heading of the same or a higher level. Empty if there is
 * no such heading.
 */
export function sectionOf(page: string, heading: string): { text: string; line: number }[] {
  const lines = page.split("\n").map((text, index) => ({ text, line: index + 1 }));
  const start = lines.findIndex(({ text }) => text === heading);
  if (start < 0) return [];
  const level = heading.split(" ")[0]!.length;
  const followingLines = lines.slice(start + 1);
  const end = followingLines.findIndex(({ text }) => /^#+ /.test(text) && text.split(" ")[0]!.length <= level);
  return end < 0 ? followingLines : followingLines.slice(0, end);
}

/** Returns the cells of a table row. Empty if the line is not a row. */
export const cellsOf = (line: string): string[] =>
  line.startsWith("|")
    ? line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim())
    : [];
