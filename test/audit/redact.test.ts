import { expect, test } from "vitest";
import { redact } from "../../shared/audit/redact.ts";

/** A value nested in this many lists or objects. */
const inLists = (depth: number): unknown => Array.from({ length: depth }).reduce((value) => [value], "deep" as unknown);
const inObjects = (depth: number): unknown =>
  Array.from({ length: depth }).reduce((value) => ({ in: value }), "deep" as unknown);

test.each([
  ["lists", inLists],
  ["objects", inObjects],
])("twelve nested %s are kept, and deeper levels are left out", (_, nested) => {
  expect(redact(nested(12))).toEqual(nested(12));
  expect(JSON.stringify(redact(nested(13)))).toContain("[too deep]");
});
