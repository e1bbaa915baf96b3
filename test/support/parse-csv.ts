import { expect } from "vitest";

/** Returns the rows of a CSV file without a byte order mark. Accepts only what RFC 4180 defines. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [[]];
  // A cell, quoted with doubled quotes inside (`"a ""b"""`) or not, and the comma or line end after it.
  const pattern = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r\n|$)/gy;
  while (pattern.lastIndex < text.length) {
    const [, cell, end] = pattern.exec(text)!;
    rows.at(-1)!.push(cell!.startsWith('"') ? cell!.slice(1, -1).replaceAll('""', '"') : cell!);
    if (end === "\r\n") rows.push([]);
  }
  expect(rows.pop()).toEqual([]);
  return rows;
}
