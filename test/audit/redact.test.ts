import { expect, test } from "vitest";
import { redact } from "../../shared/audit/redact.ts";

/** A value inside of so many lists, or of so many objects. */
const inLists = (depth: number): unknown => Array.from({ length: depth }).reduce((value) => [value], "deep" as unknown);
const inObjects = (depth: number): unknown =>
  Array.from({ length: depth }).reduce((value) => ({ in: value }), "deep" as unknown);

test.each([
  ["lists", inLists],
  ["objects", inObjects],
])("twelve %s in each other are kept, and what lies deeper is left out", (_, nested) => {
  expect(redact(nested(12))).toEqual(nested(12));
  expect(JSON.stringify(redact(nested(13)))).toContain("[too deep]");
});
