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
    // The entity tag in the API. Storage's own ETag is not exposed.
    [entityTag({ etag: STORED }), STORED],
  ])("%s allows a change of %s", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).not.toThrow();
  });

  test.each([
    ['"b"', '"a"'],
    ['"b", "c"', '"a"'],
    // Strong comparison (RFC 9110, 8.8.3.2): a weak tag does not match the strong tag with the same text.
    ['W/"a"', '"a"'],
    ["a", '"a"'],
    ['"a', '"a"'],
    ["", '"a"'],
    ['"*"', '"a"'],
    ['"x, "a", y"', '"x"'],
    [STORED.replace("W/", ""), STORED],
  ])("%s does not allow a change of %s", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).toThrow(
      expect.objectContaining({ code: "preconditionFailed" }),
    );
  });
});

describe("a write that lost against another writer", () => {
  const conflicts = [RowChanged, RowExists, RowMissing].map((Conflict) => new Conflict("Things", "p", "r"));
  const refusal = async (error: Error, ifMatch?: string) =>
    await conditionalWrite(Promise.reject(error), ifMatch, "The thing").catch((thrown: unknown) => thrown);

  test.each([
    ['"a"', "preconditionFailed"],
    ["", "preconditionFailed"],
    // Neither header names the state to change.
    ["*", "conflict"],
    [undefined, "conflict"],
  ])("is rejected under %s as %s", async (ifMatch, code) => {
    for (const conflict of conflicts) expect(await refusal(conflict, ifMatch)).toMatchObject({ code });
  });

  test("is distinguished from a failed write", async () => {
    const broken = new Error("broken");
    expect(await refusal(broken, '"a"')).toBe(broken);
    expect(await conditionalWrite(Promise.resolve(1), '"a"', "The thing")).toBe(1);
  });
});

test("the entity tag of a row is strong, not storage's own, and changes with each state", () => {
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
  ])("%s is current: %s", (header, current) => {
    expect(isCurrent('"a"', header)).toBe(current);
    expect(isCurrent('W/"a"', header)).toBe(current);
  });
});
