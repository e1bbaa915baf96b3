import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { decodePDFRawStream, PDFArray, PDFDocument, type PDFRawStream } from "pdf-lib";
import { beforeAll, expect, test } from "vitest";
import { CONTENT_BOTTOM, type Column, MARGIN, numberPages, PADDING, PAGE, Sheet } from "../../shared/pdf/sheet.ts";
import { Typesetter } from "../../shared/pdf/typesetter.ts";
import { openTypeFromWoff } from "../../shared/pdf/woff.ts";

/** What a page shows, in points from its lower left corner. */
interface Drawn {
  texts: { text: string; x: number; y: number }[];
  boxes: { x: number; y: number; width: number; height: number }[];
  rules: { x: number; y: number; toX: number; toY: number }[];
}

let font: Uint8Array;
beforeAll(async () => {
  const file = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  font = openTypeFromWoff(await readFile(file));
});

/** Draws on a new document, and reads from its content what each page shows. */
async function drawn(draw: (sheet: Sheet, set: Typesetter, document: PDFDocument) => void): Promise<Drawn[]> {
  const document = await PDFDocument.create();
  const set = await Typesetter.create(document, font);
  draw(new Sheet(document, set), set, document);
  const read = await PDFDocument.load(await document.save());
  return read.getPages().map(({ node }) => {
    const streams = node.Contents();
    if (!(streams instanceof PDFArray)) throw new Error("A page's content is no list of streams.");
    const content = streams
      .asArray()
      .map((reference) => decodePDFRawStream(node.context.lookup(reference) as PDFRawStream).decode())
      .map((bytes) => Buffer.from(bytes).toString("latin1"))
      .join("\n");
    const found = (pattern: RegExp) => [...content.matchAll(pattern)].map(([, ...groups]) => groups.map(Number));
    return {
      texts: [...content.matchAll(/1 0 0 1 (\S+) (\S+) Tm\n<(\w+)> Tj/g)].map(([, x, y, hex]) => ({
        text: Buffer.from(hex!, "hex").toString("latin1"),
        x: Number(x),
        y: Number(y),
      })),
      boxes: found(/1 0 0 1 (\S+) (\S+) cm\n(?:1 0 0 1 0 0 cm\n)*0 0 m\n0 (\S+) l\n(\S+) \S+ l/g).map(
        ([x, y, height, width]) => ({ x: x!, y: y!, width: width!, height: height! }),
      ),
      rules: found(/(\S+) (\S+) m\n(\S+) (\S+) l\nS/g).map(([x, y, toX, toY]) => ({
        x: x!,
        y: y!,
        toX: toX!,
        toY: toY!,
      })),
    };
  });
}

const COLUMNS: Column[] = [
  { title: "Vault", width: 100 },
  { title: "Assets", width: 60, right: true },
];
const SIZE = 8;

test("a row's texts stand inside of its stripe, numbers at the right, and a rule ends it", async () => {
  let end = 0;
  const [page] = await drawn((sheet) => {
    sheet.row(COLUMNS, [{ paragraphs: ["kv-payments", "West Europe"] }, { paragraphs: ["7"] }], {
      size: SIZE,
      striped: true,
    });
    end = sheet.y;
  });
  const [box] = page!.boxes;
  expect(box).toMatchObject({ x: MARGIN, y: end, width: 160 });
  expect(box!.y + box!.height).toBeCloseTo(PAGE.height - MARGIN);
  expect(page!.texts.map(({ text }) => text)).toEqual(["kv-payments", "West Europe", "7"]);
  for (const { y } of page!.texts) {
    expect(y).toBeGreaterThan(box!.y);
    expect(y + SIZE * 0.7).toBeLessThan(box!.y + box!.height);
  }
  const [vault, location, assets] = page!.texts;
  expect([vault!.x, location!.x, assets!.y]).toEqual([MARGIN + PADDING, MARGIN + PADDING, vault!.y]);
  // A figure of Helvetica is 0.556 of its size wide.
  expect(assets!.x + 0.556 * SIZE).toBeCloseTo(MARGIN + 160 - PADDING);
  expect(page!.rules).toEqual([{ x: MARGIN, y: end, toX: MARGIN + 160, toY: end }]);
});

test("text goes on on the next page before it reaches the foot, and not earlier", async () => {
  const paragraphs = Array.from({ length: 60 }, (_, index) => `Line ${index}`);
  const pages = await drawn((sheet) => {
    for (const paragraph of paragraphs) sheet.text(paragraph, { size: 10 });
  });
  expect(pages.flatMap(({ texts }) => texts.map(({ text }) => text))).toEqual(paragraphs);
  expect(pages.length).toBe(2);
  const lowest = Math.min(...pages[0]!.texts.map(({ y }) => y));
  expect(lowest).toBeGreaterThanOrEqual(CONTENT_BOTTOM);
  expect(lowest).toBeLessThan(CONTENT_BOTTOM + 14);
  expect(pages[1]!.texts[0]!.y).toBe(pages[0]!.texts[0]!.y);
});

test("a fact's name and value stand on one line of one page, also at its end", async () => {
  const names = Array.from({ length: 50 }, (_, index) => `Name ${index}`);
  const pages = await drawn((sheet) => {
    for (const name of names) sheet.fact(name, `value of ${name}`);
  });
  expect(pages.length).toBe(2);
  expect(pages.flatMap(({ texts }) => texts).length).toBe(2 * names.length);
  for (const { texts } of pages)
    for (const { text, x, y } of texts.filter(({ x }) => x === MARGIN)) {
      const value = texts.find((one) => one.text === `value of ${text}`);
      expect(value?.y).toBe(y);
      expect(value!.x).toBeGreaterThan(x + 50);
      expect(y).toBeGreaterThanOrEqual(CONTENT_BOTTOM);
    }
});

test("every page has its number below a rule that is below the content", async () => {
  const pages = await drawn((sheet, set, document) => {
    sheet.text("first", { size: 10 });
    sheet.nextPage();
    sheet.text("second", { size: 10 });
    numberPages(document, set, "Compliance of Acme");
  });
  for (const [index, { texts, rules }] of pages.entries()) {
    const foot = texts.slice(-2);
    expect(foot.map(({ text }) => text)).toEqual(["Compliance of Acme", `Page ${index + 1} of 2`]);
    expect(rules).toEqual([{ x: MARGIN, y: rules[0]!.y, toX: PAGE.width - MARGIN, toY: rules[0]!.y }]);
    expect(rules[0]!.y).toBeLessThan(CONTENT_BOTTOM);
    for (const { y } of foot) {
      expect(y + 8).toBeLessThan(rules[0]!.y);
      expect(y).toBeGreaterThan(0);
    }
    expect(foot[1]!.x).toBeGreaterThan(PAGE.width / 2);
  }
});
