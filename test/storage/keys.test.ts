import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { keyEnd, keyProblem, keyText, keyTextOf } from "../../shared/platform/storage/keys.ts";

// Row keys are built from texts that are encoded so that Azure Table storage accepts them, with "|" as the separator of their
// parts.

describe("keyText", () => {
  test("encodes any text reversibly as a legal key without the separator", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 100 }), (text) => {
        const part = keyText(text);
        expect(keyTextOf(part)).toBe(text);
        expect(part).not.toContain("|");
        expect(keyProblem(part)).toBeUndefined();
      }),
    );
  });

  test("encodes a lone surrogate", () => {
    expect(keyText("a\ud800b")).toBe("a!uD800b");
    expect(keyTextOf("a!uD800b")).toBe("a\ud800b");
  });

  test("leaves plain names unchanged, so that they keep their order", () => {
    expect(keyText("db-password.v2_é")).toBe("db-password.v2_é");
    expect(keyText("a/b|c%d!e")).toBe("a!2Fb!7Cc!25d!21e");
  });
});

describe("keyEnd", () => {
  test("sorts after all keys with the prefix and not after any later key", () => {
    const text = fc.string({ unit: "binary", maxLength: 5 });
    fc.assert(
      fc.property(
        text.filter((prefix) => prefix.length > 0 && !/^\uffff+$/.test(prefix)),
        text,
        text,
        (prefix, rest, other) => {
          const end = keyEnd(prefix);
          expect(prefix + rest < end).toBe(true);
          if (!other.startsWith(prefix) && other > prefix) expect(other >= end).toBe(true);
          expect(end.isWellFormed()).toBe(true);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("ends the range of a prefix with a separator", () => {
    expect(keyEnd("n|secret|")).toBe("n|secret}");
    expect(() => keyEnd("")).toThrow(RangeError);
  });
});

describe("a key that the service rejects", () => {
  test.each([
    "a/b",
    "a\\b",
    "a#b",
    "a?b",
    "a%b",
    "a\u0000",
    "a\u001f",
    "a\u007f",
    "a\u009f",
    "\ud800",
    "k".repeat(1025),
  ])("is found: %j", (key) => expect(keyProblem(key)).toBeDefined());

  test.each(["", "a b", "a'b", "{a}", "é€😀", "k".repeat(1024)])("is not reported: %j", (key) =>
    expect(keyProblem(key)).toBeUndefined(),
  );
});
