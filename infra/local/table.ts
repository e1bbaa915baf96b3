/** Prints a table. The first row is the heading, and whole numbers are right-aligned. */
export function printTable(rows: string[][]): void {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  rows.forEach((row, index) => {
    const cells = row.map((cell, column) =>
      /^-?\d+$/.test(cell) ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
    );
    console.log(`  ${cells.join("  ")}`);
    if (index === 0) console.log(`  ${widths.map((width) => "─".repeat(width)).join("  ")}`);
  });
}
