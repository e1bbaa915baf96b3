import { describe, expect, test } from "vitest";
import { isCurrent } from "../../shared/platform/http/answer-version.ts";
import { conditionalWrite, entityTag, requireMatch } from "../../shared/platform/http/conditional-requests.ts";
import { RowChanged, RowExists, RowMissing } from "../../shared/platform/storage/errors.ts";

/** An ETag as Azure Table Storage writes it. Only ETags of the API, which are derived from it, reach callers. */
const STORAGE_ETAG = `W/"datetime'2026-11-21T10%3A00%3A00.0000000Z'"`;

describe("If-Match", () => {
  test.each([
    [undefined, '"a"'],
    ["*", '"a"'],
    [" * ", '"a"'],
    ['"a"', '"a"'],
    ['"b", "a"', '"a"'],
    ['"b" ,\t"a"', '"a"'],
    ['"x, y", "a"', '"a"'],
    // Storage's own ETag of the row is accepted too, although it is weak: tags are compared as text, with their `W/`.
    [STORAGE_ETAG, STORAGE_ETAG],
    [`"b", ${STORAGE_ETAG}`, STORAGE_ETAG],
    // The ETag that the API shows for the same row.
    [entityTag({ etag: STORAGE_ETAG }), STORAGE_ETAG],
  ])("%s allows a change of a resource with the ETag %s", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).not.toThrow();
  });

  test.each([
    ['"b"', '"a"'],
    ['"b", "c"', '"a"'],
    // The `W/` counts, so a weak tag does not match the strong tag with the same text.
    ['W/"a"', '"a"'],
    ["a", '"a"'],
    ['"a', '"a"'],
    ["", '"a"'],
    ['"*"', '"a"'],
    ['"x, "a", y"', '"x"'],
    [STORAGE_ETAG.replace("W/", ""), STORAGE_ETAG],
  ])("%s does not allow a change of a resource with the ETag %s", (header, etag) => {
    expect(() => requireMatch(etag, header, "The thing")).toThrow(
      expect.objectContaining({ code: "preconditionFailed" }),
    );
  });
});

describe("a write that fails because another writer changed the row", () => {
  const conflicts = [RowChanged, RowExists, RowMissing].map((Conflict) => new Conflict("Things", "p", "r"));
  /** Returns the error of a conditional write whose storage request fails with `error`. */
  const errorOfWrite = async (error: Error, ifMatch?: string) =>
    await conditionalWrite(Promise.reject(error), ifMatch, "The thing").catch((thrown: unknown) => thrown);

  test.each([
    ['"a"', "preconditionFailed"],
    ["", "preconditionFailed"],
    // These values name no state of the resource, so the write has no precondition that could fail.
    ["*", "conflict"],
    [undefined, "conflict"],
  ])("is reported with If-Match: %s as %s", async (ifMatch, code) => {
    for (const conflict of conflicts) expect(await errorOfWrite(conflict, ifMatch)).toMatchObject({ code });
  });
});

test("a write that fails for another reason reports its own error", async () => {
  const otherError = new Error("broken");
  await expect(conditionalWrite(Promise.reject(otherError), '"a"', "The thing")).rejects.toBe(otherError);
  expect(await conditionalWrite(Promise.resolve(1), '"a"', "The thing")).toBe(1);
});

test("the API's ETag of a row is strong and changes with storage's ETag", () => {
  const [current, later] = [STORAGE_ETAG, STORAGE_ETAG.replace("10%3A", "11%3A")].map((etag) => entityTag({ etag }));
  expect(current).toMatch(/^"[\w-]{22}"$/);
  expect(later).not.toBe(current);
  expect(() => requireMatch(STORAGE_ETAG, later, "The thing")).toThrow();
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
  ])('%s means that the caller has the state with the ETag "a": %s', (header, expected) => {
    expect(isCurrent('"a"', header)).toBe(expected);
    expect(isCurrent('W/"a"', header)).toBe(expected);
  });
});
