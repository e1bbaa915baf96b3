import { describe, expect, test } from "vitest";
import {
  conditionalWrite,
  entityTag,
  isCurrent,
  requireMatch,
} from "../../shared/platform/http/conditional-requests.ts";
import { RowChanged, RowExists, RowMissing } from "../../shared/platform/storage/errors.ts";

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

describe("a write that another writer was faster than", () => {
  const conflicts = [RowChanged, RowExists, RowMissing].map((Conflict) => new Conflict("Things", "p", "r"));
  const refusal = async (error: Error, ifMatch?: string) =>
    await conditionalWrite(Promise.reject(error), ifMatch, "The thing").catch((thrown: unknown) => thrown);

  test.each([
    ['"a"', "preconditionFailed"],
    ["", "preconditionFailed"],
    // Neither says which state is to be changed.
    ["*", "conflict"],
    [undefined, "conflict"],
  ])("is refused under %s as %s", async (ifMatch, code) => {
    for (const conflict of conflicts) expect(await refusal(conflict, ifMatch)).toMatchObject({ code });
  });

  test("is told from one that failed", async () => {
    const broken = new Error("broken");
    expect(await refusal(broken, '"a"')).toBe(broken);
    expect(await conditionalWrite(Promise.resolve(1), '"a"', "The thing")).toBe(1);
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
