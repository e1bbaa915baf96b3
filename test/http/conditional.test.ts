import { describe, expect, test } from "vitest";
import { entityTag, isCurrent, requireMatch } from "../../shared/http/conditional.ts";

const STORED = `W/"datetime'2026-11-21T10%3A00%3A00.0000000Z'"`;

describe("If-Match", () => {
  test.each([
    [undefined, '"a"'],
    ["*", '"a"'],
    [" * ", '"a"'],
    ['"a"', '"a"'],
    ['"b", "a"', '"a"'],
    ['"b" ,\t"a"', '"a"'],
    ['"x, y", "a"', '"a"'],
    [STORED, STORED],
    [`"b", ${STORED}`, STORED],
    // As it is shown: storage's own is nobody's to see.
    [entityTag({ etag: STORED }), STORED],
  ])("%s lets %s be changed", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).not.toThrow();
  });

  test.each([
    ['"b"', '"a"'],
    ['"b", "c"', '"a"'],
    // The comparison is the strong one (RFC 9110, 8.8.3.2): a weak tag is not the strong one of the same text.
    ['W/"a"', '"a"'],
    ["a", '"a"'],
    ['"a', '"a"'],
    ["", '"a"'],
    ['"*"', '"a"'],
    ['"x, "a", y"', '"x"'],
    [STORED.replace("W/", ""), STORED],
  ])("%s does not let %s be changed", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).toThrow(
      expect.objectContaining({ code: "preconditionFailed" }),
    );
  });
});

test("the tag that is shown of a row is strong, ours, and another one for each state", () => {
  const [shown, later] = [STORED, STORED.replace("10%3A", "11%3A")].map((etag) => entityTag({ etag }));
  expect(shown).toMatch(/^"[\w-]{22}"$/);
  expect(later).not.toBe(shown);
  expect(() => requireMatch(STORED, later, "The thing")).toThrow();
});

describe("If-None-Match", () => {
  test.each([
    [null, false],
    ["*", true],
    ['"a"', true],
    ['W/"a"', true],
    ['"b", W/"a"', true],
    ['"b"', false],
    ["a", false],
    ["", false],
  ])("%s says that it is current: %s", (header, current) => {
    expect(isCurrent('"a"', header)).toBe(current);
    expect(isCurrent('W/"a"', header)).toBe(current);
  });
});
