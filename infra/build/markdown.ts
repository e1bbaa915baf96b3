/** Returns `text` as a Markdown code span. */
export const code = (text: string): string => `\`${text}\``;

/** Returns a Markdown table that ends with a line break. A `|` in a cell is escaped. */
export function table(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |\n`;
  return line(columns) + line(columns.map(() => "---")) + rows.map(line).join("");
}
