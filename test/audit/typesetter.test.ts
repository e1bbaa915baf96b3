import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { PDFDocument } from "pdf-lib";
import { beforeAll, expect, test } from "vitest";
import { Typesetter } from "../../shared/platform/pdf/typesetter.ts";
import { openTypeFromWoff } from "../../shared/platform/pdf/woff.ts";

/** Tests of line breaking in PDF exports. */

let typesetter: Typesetter;
beforeAll(async () => {
  const font = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  typesetter = await Typesetter.create(await PDFDocument.create(), openTypeFromWoff(await readFile(font)));
});

const FONT_SIZE_POINTS = 8;
/** Breaks a text into lines that are as wide as a sample text. */
const lines = (text: string, widthSample: string) =>
  typesetter.lines(text, "regular", FONT_SIZE_POINTS, typesetter.width(widthSample, "regular", FONT_SIZE_POINTS));

test("a line is broken after a space rather than inside a word", () => {
  expect(lines("first@acme.example, second@acme.example", "first@acme.example, second@acme.")).toEqual([
    "first@acme.example,",
    "second@acme.example",
  ]);
});

test("a line is not broken after an opening bracket", () => {
  expect(lines("DELETE /alerts/rules/{rule_id}", "DELETE /alerts/rules/{")).toEqual([
    "DELETE /alerts/rules/",
    "{rule_id}",
  ]);
});

test("a word longer than a line is broken anywhere, and no character is lost", () => {
  const broken = lines("x".repeat(50), "x".repeat(20));
  expect(broken.map(({ length }) => length)).toEqual([20, 20, 10]);
});
