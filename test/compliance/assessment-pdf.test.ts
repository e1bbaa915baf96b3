import { afterAll, beforeAll, expect, test } from "vitest";
import type { Assessment } from "../../shared/compliance/compliance.ts";
import { assessmentDocument } from "../../shared/compliance/report/assessment-pdf.ts";
import { drawTrend } from "../../shared/compliance/report/trend.ts";
import { drawn } from "../support/pdf-contents.ts";
import { pdfText } from "../support/pdf-text.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openFixture } from "./compliance-fixture.ts";

let storage: TestStorage;
let nothingYet: Assessment;
beforeAll(async () => {
  storage = await openStorage();
  nothingYet = await openFixture(storage.connectionString()).compliance.assessment("pci-dss-4.0.1", {
    days: 30,
    each: 5,
  });
});
afterAll(() => storage.stop());

const textOf = async (scope: Partial<Assessment["scope"]>, history: Assessment["framework"]["history"] = []) => {
  const { framework } = nothingYet;
  const assessment = { ...nothingYet, framework: { ...framework, history }, scope: { ...nothingYet.scope, ...scope } };
  return await pdfText(
    await assessmentDocument(assessment, {
      days: 30,
      unread: { names: [], isListRead: true },
      unreadableVaults: 0,
      unicodeFont: undefined,
    }),
  );
};
const subscriptions = (count: number) => Array.from({ length: count }, (_, at) => `Team-${at}`);
const day = (date: string, score: number) => ({ date, score, passed: 1, failed: 1, total: 2, edition: 1 });
/** The text of the report without line breaks. */
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

test("the trend has its first and its last day, and the change of the score", async () => {
  const text = await textOf({}, [day("2026-11-19", 71.5), day("2026-11-20", 60), day("2026-11-21", 82.25)]);
  expect(text.split("\n")).toEqual(expect.arrayContaining(["0", "50", "100", "2026-11-19", "2026-11-21", "82.3"]));
  expect(flat(text)).toContain("3 days: 71.5 at first, 82.3 at last, between 60.0 and 82.3.");
  expect(flat(await textOf({}, [day("2026-11-21", 80)]))).toContain("There is one day's score only");
});

test("each label of the trend's scale is centered on its line", async () => {
  const history = [day("2026-11-19", 71.5), day("2026-11-20", 60)];
  const [page] = await drawn((sheet) => drawTrend(sheet, history));
  const lines = page!.rules.filter(({ y, toY }) => y === toY);
  const figures = page!.texts.filter(({ text }) => /^(0|50|100)$/.test(text));
  expect(figures).toHaveLength(3);
  // The height of digits is 0.7 of the font size of 7.5 points.
  for (const [at, { y }] of figures.entries()) expect(Math.abs(y + (0.7 * 7.5) / 2 - lines[at]!.y)).toBeLessThan(1);
});

test("a reason lists its controls once, whether or not its own text starts with them", async () => {
  const text = flat(await textOf({}));
  expect(text).toContain("secret-expired critical 8.6.3: change passwords of applications");
  expect(text).toContain("vault-rbac medium 7.2.4, 7.2.5.1: Microsoft's regulatory policy sets");
});
