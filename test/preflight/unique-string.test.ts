import { expect, test } from "vitest";
import { uniqueString } from "../../infra/preflight/unique-string.ts";

test("uniqueString returns the same text as Bicep", () => {
  // Results of Bicep 0.30. These arguments leave 4, 3, 3, 7 and 3 bytes after the last whole block of eight bytes.
  expect([
    uniqueString("test"),
    uniqueString("hello", "world"),
    uniqueString("abc"),
    uniqueString("/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/my-rg"),
    uniqueString("foo", "bar", "baz"),
  ]).toEqual(["rbgf3xv4ufgzg", "a7wkljktk6wne", "cgtzqvhu4i23s", "bmg7c6xu4tw46", "xzi4ioaxtmth4"]);
});
