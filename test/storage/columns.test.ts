import { expect, test } from "vitest";
import * as z from "zod";
import { encode } from "../../shared/platform/storage/columns.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { MAX_TEXT_UNITS } from "../../shared/platform/storage/limits.ts";

// A text that is too long for one column of Azure Table storage is split into several columns.

const { members } = entity("Texts", z.object({ text: z.string() }));

/** Characters of two UTF-16 units (surrogate pairs), from the first to the last code point that needs two. */
const PAIRS = ["\u{10000}", "\u{103ff}", "\u{1f511}", "\u{10fc00}", "\u{10ffff}"];

test.each(PAIRS)("a long text is not split within the surrogate pair %j", (pair) => {
  for (const before of [MAX_TEXT_UNITS - 2, MAX_TEXT_UNITS - 1, MAX_TEXT_UNITS]) {
    const text = `${"a".repeat(before)}${pair}${"b".repeat(MAX_TEXT_UNITS)}`;
    const pieces = Object.values(encode(members, { text })) as string[];
    expect(pieces.join("")).toBe(text);
    expect(pieces.length).toBeGreaterThan(1);
    for (const piece of pieces) {
      expect(piece.isWellFormed()).toBe(true);
      expect(piece.length).toBeLessThanOrEqual(MAX_TEXT_UNITS);
    }
  }
});

test("a character of one unit next to the range of surrogates can be the last of a piece", () => {
  const text = `${"a".repeat(MAX_TEXT_UNITS - 1)}\ud7ff${"b".repeat(10)}`;
  const [first] = Object.values(encode(members, { text })) as string[];
  expect(first).toHaveLength(MAX_TEXT_UNITS);
  const nextText = `${"a".repeat(MAX_TEXT_UNITS - 1)}\ue000${"b".repeat(10)}`;
  expect((Object.values(encode(members, { text: nextText })) as string[])[0]).toHaveLength(MAX_TEXT_UNITS);
});
