import { expect, test } from "vitest";
import { ALPHABETS, generate, minLength } from "../../shared/rotation/generate.ts";

/** Randomness that gives these bytes, and then begins with them again. */
function bytesOf(...given: number[]) {
  let at = 0;
  return {
    number: () => 0,
    ulid: () => "",
    bytes: (count: number) => Uint8Array.from({ length: count }, () => given[at++ % given.length]!),
  };
}

test("bytes that would make some characters likelier are passed over, and the length is kept", () => {
  // 256 is no multiple of 62: the bytes from 248 on are too many.
  const value = generate({ length: 5, alphabet: "alphanumeric" }, bytesOf(255, 0, 248, 61, 247, 1));
  expect(value).toBe("A99BA");
  // 256 is a multiple of 16: none is.
  expect(generate({ length: 4, alphabet: "hex" }, bytesOf(255, 0, 16, 9))).toBe("f009");
});

test("a value has as many characters of its alphabet as were asked for", () => {
  for (const alphabet of [...Object.keys(ALPHABETS), "xyz"]) {
    const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    const value = generate({ length: 200, alphabet }, bytesOf(...all));
    expect(value).toHaveLength(200);
    expect(new Set(value)).toEqual(new Set(ALPHABETS[alphabet] ?? alphabet));
  }
});

test.each([
  ["hex", 24],
  ["alphanumeric", 17],
  ["base64url", 16],
  ["symbols", 15],
  ["01", 96],
  ["aab", undefined],
])("a value of %s has 96 bits from %s characters on", (alphabet, length) => {
  expect(minLength(alphabet)).toBe(length);
});
