import { expect, test } from "vitest";
import { redact } from "../../shared/audit/redact.ts";

/** Returns a text nested in `depth` lists. */
const nestedLists = (depth: number): unknown =>
  Array.from({ length: depth }).reduce((value) => [value], "deep" as unknown);
/** Returns a text nested in `depth` objects. */
const nestedObjects = (depth: number): unknown =>
  Array.from({ length: depth }).reduce((value) => ({ in: value }), "deep" as unknown);

test.each([
  ["lists", nestedLists],
  ["objects", nestedObjects],
])("redact copies up to twelve levels of nested %s and replaces deeper ones with [too deep]", (_, nested) => {
  expect(redact(nested(12))).toEqual(nested(12));
  expect(JSON.stringify(redact(nested(13)))).toContain("[too deep]");
});
