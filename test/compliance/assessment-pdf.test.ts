// The PDF report of a framework for assessors: its scope, its trend chart and its reasons.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Assessment } from "../../shared/compliance/compliance.ts";
import { assessmentDocument } from "../../shared/compliance/report/assessment-pdf.ts";
import { addSection, addTable, cell } from "../../shared/compliance/report/tables.ts";
import { drawTrend } from "../../shared/compliance/report/trend.ts";
import { MARGIN, PAGE } from "../../shared/platform/pdf/sheet.ts";
import { drawPages, readPages } from "../support/pdf-contents.ts";
import { pdfText } from "../support/pdf-text.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openFixture } from "./compliance-fixture.ts";

let storage: TestStorage;
/** The assessment of an empty inventory. Each test replaces parts of it. */
let emptyAssessment: Assessment;
beforeAll(async () => {
  storage = await openStorage();
  emptyAssessment = await openFixture(storage.connectionString()).compliance.assessment("pci-dss-4.0.1", {
    days: 30,
    violationsPerCheck: 5,
  });
});
afterAll(() => storage.stop());

/** Returns the report with another scope and other parts of the framework's results. */
const reportOf = (scope: Partial<Assessment["scope"]>, framework: Partial<Assessment["framework"]>) =>
  assessmentDocument(
    {
      ...emptyAssessment,
      framework: { ...emptyAssessment.framework, ...framework },
      scope: { ...emptyAssessment.scope, ...scope },
    },
    { days: 30, unread: { names: [], isListRead: true }, unreadableVaults: 0, unicodeFont: undefined },
  );
const textOf = async (scope: Partial<Assessment["scope"]>, history: Assessment["framework"]["history"] = []) =>
  await pdfText(await reportOf(scope, { history }));
const subscriptions = (count: number) => Array.from({ length: count }, (_, index) => `Team-${index}`);
/** Returns the stored score of one day. */
const day = (date: string, score: number) => ({ date, score, passed: 1, failed: 1, total: 2, edition: 1 });
/** Replaces each line break and run of spaces by one space. */
const flat = (text: string) => text.replaceAll(/\s+/g, " ");

test("the scope lists the first twelve subscriptions, and counts the others", async () => {
  const few = flat(await textOf({ vaults: 3, subscriptions: subscriptions(12) }));
  expect(few).toContain(`3 key vaults with what they hold, of 12 subscriptions: ${subscriptions(12).join(", ")}`);
  expect(few).not.toMatch(/Team-11 and/);
  const many = flat(await textOf({ vaults: 3, subscriptions: subscriptions(14) }));
  expect(many).toContain(`of 14 subscriptions: ${subscriptions(12).join(", ")} and 2 more`);
  expect(many).not.toContain("Team-12");
});

test("the scope says whether application credentials were included", async () => {
  const applications = "credentials of applications in directories";
  expect(flat(await textOf({ directories: 1 }))).toContain(applications);
  expect(flat(await textOf({ directories: 0 }))).not.toContain(applications);
});

test("the trend shows its first and last day, and the range of the score", async () => {
  const text = await textOf({}, [day("2026-11-19", 71.5), day("2026-11-20", 60), day("2026-11-21", 82.25)]);
  expect(text.split("\n")).toEqual(expect.arrayContaining(["0", "50", "100", "2026-11-19", "2026-11-21", "82.3"]));
  expect(flat(text)).toMatch(/Score [\d.]+ of 100, (up|down) [\d.]+ since 2026-\d\d-\d\d\. \d+ of \d+ controls fail/);
  expect(flat(text)).toContain("3 days: 71.5 at first, 82.3 at last, between 60.0 and 82.3.");
  expect(flat(await textOf({}, [day("2026-11-21", 80)]))).toContain("There is one day's score only");
});

test("each label of the trend's scale is centered on its line", async () => {
  const history = [day("2026-11-19", 71.5), day("2026-11-20", 60)];
  const [page] = await drawPages((sheet) => drawTrend(sheet, history));
  const horizontalLines = page!.rules.filter(({ y, toY }) => y === toY);
  const labels = page!.texts.filter(({ text }) => /^(0|50|100)$/.test(text));
  expect(labels).toHaveLength(3);
  const digitHeight = 0.7 * 7.5; // The font size is 7.5 points, and the height of a digit is 0.7 of that.
  for (const [index, { y }] of labels.entries())
    expect(Math.abs(y + digitHeight / 2 - horizontalLines[index]!.y)).toBeLessThan(1);
});

test("the trend and its labels are within the margins of the page", async () => {
  const [page] = await drawPages((sheet) => drawTrend(sheet, [day("2026-11-19", 71.5), day("2026-11-20", 100)]));
  const right = PAGE.width - MARGIN;
  for (const { x, toX } of page!.rules) expect([x >= MARGIN, toX <= right]).toEqual([true, true]);
  for (const { x, width } of page!.boxes) expect([x >= MARGIN, x + width <= right]).toEqual([true, true]);
  const digitWidth = 0.556 * 7.5; // The width of a digit is 0.556 of the font size.
  for (const { text, x } of page!.texts.filter(({ text }) => /^[\d.-]+$/.test(text)))
    expect([text, x >= MARGIN, x + digitWidth * text.length <= right]).toEqual([text, true, true]);
});

test("a control's number of failed checks is red if it is 1 or more", async () => {
  const controls = emptyAssessment.framework.controls.map((control, index) => ({ ...control, failed: index % 2 }));
  const texts = (await readPages(await reportOf({}, { controls }))).flatMap((page) => page.texts);
  for (const { id, failed } of controls) {
    const { x, y } = texts.find(({ text }) => text === id)!;
    const [, number] = texts.filter((one) => one.y === y && one.x > x && /^\d+$/.test(one.text));
    expect([id, number!.text, number!.color === "0.7 0.12 0.1"]).toEqual([id, String(failed), failed === 1]);
  }
});

test("a section's heading is on the page of its table's first row, wherever the section starts", async () => {
  const rows = [[cell("first row", "its second line", "its third line")]];
  const pages = await drawPages((sheet) => {
    sheet.label("First page", { x: MARGIN, y: 50 });
    for (let top = 50; top < 250; top += 2) {
      sheet.nextPage();
      sheet.label("Text above", { x: MARGIN, y: top });
      sheet.y = top;
      addSection(sheet, `Section ${top}`);
      addTable(sheet, `Section ${top}`, [{ title: "Column", width: 100 }], rows);
    }
  });
  const headings = pages.flatMap(({ texts }) => texts.filter(({ text }) => text.startsWith("Section ")));
  expect(headings).toHaveLength(100);
  for (const { texts } of pages)
    expect(texts.some(({ text }) => text.startsWith("Section "))).toBe(texts.some(({ text }) => text === "first row"));
});

test("each further page of a table repeats the title of its section", async () => {
  const rows = Array.from({ length: 100 }, (_, index) => [cell(`row ${index}`)]);
  const pages = await drawPages((sheet) => {
    addSection(sheet, "Failures");
    addTable(sheet, "Failures", [{ title: "Column", width: 100 }], rows);
  });
  expect(pages.length).toBeGreaterThan(2);
  const titles = pages.map(({ texts }) =>
    texts.filter(({ text }) => text.startsWith("Failures")).map(({ text }) => text),
  );
  expect(titles).toEqual(pages.map((_, index) => [index === 0 ? "Failures" : "Failures (continued)"]));
});

test("the reason of a check names its controls once, also if its text already starts with them", async () => {
  const text = flat(await textOf({}));
  expect(text).toContain("secret-expired critical 8.6.3: change passwords of applications");
  expect(text).toContain("vault-rbac medium 7.2.4, 7.2.5.1: Microsoft's regulatory policy sets");
});
