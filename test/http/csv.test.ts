import { expect, test } from "vitest";
import { assetsCsv } from "../../shared/inventory/csv.ts";
import { createCsv } from "../../shared/platform/csv.ts";

// Tests of the CSV writer. A text that a spreadsheet could run as a formula must be read as text.

const csv = createCsv<{ text: string | null; count: number | undefined; on: boolean }>([
  { label: "text", value: ({ text }) => text },
  { label: "count", value: ({ count }) => count },
  { label: "on", value: ({ on }) => on },
]);
/** Writes a row with this text, and returns the text's cell as a CSV parser reads it. */
const writeAndReadCell = (text: string) => {
  const line = csv.rows([{ text, count: 1, on: true }]);
  // Matches the whole line, for example `"say ""hi""",1,true`.
  return /^\r\n"((?:[^"]|"")*)",1,true$/.exec(line)![1]!.replaceAll('""', '"');
};

test.each([
  "=1+1",
  "+1",
  "-1",
  "@SUM(A1)",
  "\t=1",
  "\r=1",
  "\n=1",
  "|calc",
  "%0A",
  "  =1",
  "\u00A0=1",
  "\u200B=1",
  "\uFEFF=1",
  "\u0000=1",
  "＝1",
  "＋1",
  "－1",
  "＠SUM",
  "\tplain",
  "\rplain",
  "\nplain",
])("a cell that a spreadsheet could run as a formula gets a leading apostrophe: %j", (text) => {
  expect(writeAndReadCell(text)).toBe(`'${text}`);
});

test.each(["plain", "a=1", "1-2", 'say "hi"', "a,b", "two\r\nlines", "user@example.com", "", "'quoted", "日本"])(
  "a cell with other text is unchanged: %j",
  (text) => {
    expect(writeAndReadCell(text)).toBe(text);
  },
);

test("a file starts with a byte order mark, and rows written in parts equal rows written at once", () => {
  const rows = [
    { text: "a", count: 1, on: true },
    { text: null, count: undefined, on: false },
  ];
  expect(csv.header()).toBe('\uFEFF"text","count","on"');
  expect(csv.rows(rows)).toBe('\r\n"a",1,true\r\n"","",false');
  expect(csv.rows(rows.slice(0, 1)) + csv.rows([]) + csv.rows(rows.slice(1))).toBe(csv.rows(rows));
});

test("the inventory as CSV has a certificate's names and a key's rotation policy", () => {
  const rotationPolicy = { expiryTime: "P90D", rotateAfter: "P60D" };
  const assets = [
    { id: "kv.certificate.web", subjectAlternativeNames: ["a.example.com", "b.example.com"], tags: { owner: "=x" } },
    { id: "kv.key.sign", rotationPolicy, tags: {} },
  ] as unknown as Parameters<typeof assetsCsv>[0];
  const text = assetsCsv(assets);
  expect(text.startsWith('\uFEFF"id",')).toBe(true);
  expect(text.endsWith("\r\n")).toBe(true);
  const [header, certificate, key] = text.slice(1).trimEnd().split("\r\n");
  const columnOf = (name: string) => header!.split(",").indexOf(`"${name}"`);
  expect(columnOf("subjectAlternativeNames")).toBeGreaterThan(0);
  expect(columnOf("rotationPolicy")).toBeGreaterThan(0);
  expect(certificate!.split(",")[columnOf("subjectAlternativeNames")]).toBe('"a.example.com b.example.com"');
  expect(key).toContain(`"${JSON.stringify(rotationPolicy).replaceAll('"', '""')}"`);
});
