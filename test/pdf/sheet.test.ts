import { expect, test } from "vitest";
import { CONTENT_BOTTOM, type Column, MARGIN, numberPages, PADDING, PAGE } from "../../shared/platform/pdf/sheet.ts";
import { drawPages } from "../support/pdf-contents.ts";

// Tests of the layout of PDF pages: where texts, boxes and lines are drawn. Positions are in points from the lower left corner.

const COLUMNS: Column[] = [
  { title: "Vault", width: 100 },
  { title: "Assets", width: 60, right: true },
];
const FONT_SIZE = 8;
/** The color of all lines: red, green and blue from 0 to 1. */
const LINE_COLOR = "0.8 0.82 0.85";

test("the texts of a striped row are inside its box, with right-aligned numbers and a line below", async () => {
  let end = 0;
  const [page] = await drawPages((sheet) => {
    sheet.row(COLUMNS, [{ paragraphs: ["kv-payments", "West Europe"] }, { paragraphs: ["7"] }], {
      size: FONT_SIZE,
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
    expect(y + FONT_SIZE * 0.7).toBeLessThan(box!.y + box!.height);
  }
  const [vault, location, assets] = page!.texts;
  expect([vault!.x, location!.x, assets!.y]).toEqual([MARGIN + PADDING, MARGIN + PADDING, vault!.y]);
  // A digit in Helvetica is 0.556 times as wide as the font size.
  expect(assets!.x + 0.556 * FONT_SIZE).toBeCloseTo(MARGIN + 160 - PADDING);
  expect(page!.rules).toEqual([{ x: MARGIN, y: end, toX: MARGIN + 160, toY: end, color: LINE_COLOR }]);
});

test("text continues on the next page when it reaches the footer", async () => {
  const paragraphs = Array.from({ length: 60 }, (_, index) => `Line ${index}`);
  const pages = await drawPages((sheet) => {
    for (const paragraph of paragraphs) sheet.text(paragraph, { size: 10 });
  });
  expect(pages.flatMap(({ texts }) => texts.map(({ text }) => text))).toEqual(paragraphs);
  expect(pages.length).toBe(2);
  const lowest = Math.min(...pages[0]!.texts.map(({ y }) => y));
  expect(lowest).toBeGreaterThanOrEqual(CONTENT_BOTTOM);
  expect(lowest).toBeLessThan(CONTENT_BOTTOM + 14);
  expect(pages[1]!.texts[0]!.y).toBe(pages[0]!.texts[0]!.y);
});

test("a name and its value are on the same line, also at the end of a page", async () => {
  const names = Array.from({ length: 50 }, (_, index) => `Name ${index}`);
  const pages = await drawPages((sheet) => {
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

test("each page has its number below the footer line", async () => {
  const pages = await drawPages((sheet, set, document) => {
    sheet.text("first", { size: 10 });
    sheet.nextPage();
    sheet.text("second", { size: 10 });
    numberPages(document, set, "Compliance of Acme");
  });
  for (const [index, { texts, rules }] of pages.entries()) {
    const foot = texts.slice(-2);
    expect(foot.map(({ text }) => text)).toEqual(["Compliance of Acme", `Page ${index + 1} of 2`]);
    const { y: lineY } = rules[0]!;
    expect(rules).toEqual([{ x: MARGIN, y: lineY, toX: PAGE.width - MARGIN, toY: lineY, color: LINE_COLOR }]);
    expect(lineY).toBeLessThan(CONTENT_BOTTOM);
    for (const { y } of foot) {
      expect(y + 8).toBeLessThan(lineY);
      expect(y).toBeGreaterThan(0);
    }
    expect(foot[1]!.x).toBeGreaterThan(PAGE.width / 2);
  }
});
