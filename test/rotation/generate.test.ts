// Tests of generated random values for secrets, and of the shortest length that is hard to guess.

import { expect, test } from "vitest";
import { ALPHABETS, generateValue, minLength } from "../../shared/rotation/generate.ts";

/** Creates a source of randomness that returns these bytes in a loop. */
function repeatingBytes(...bytes: number[]) {
  let index = 0;
  return {
    number: () => 0,
    ulid: () => "",
    bytes: (count: number) => Uint8Array.from({ length: count }, () => bytes[index++ % bytes.length]!),
  };
}

test("bytes that would make some characters more likely are skipped", () => {
  // 248 is the largest multiple of 62 (letters and digits) up to 256. The bytes 248 to 255 are skipped.
  const value = generateValue({ length: 5, alphabet: "alphanumeric" }, repeatingBytes(255, 0, 248, 61, 247, 1));
  expect(value).toBe("A99BA");
  // 256 is a multiple of 16, so no byte is skipped.
  expect(generateValue({ length: 4, alphabet: "hex" }, repeatingBytes(255, 0, 16, 9))).toBe("f009");
});

test("a value has the requested length and uses the whole alphabet", () => {
  for (const alphabet of [...Object.keys(ALPHABETS), "xyz"]) {
    const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    const value = generateValue({ length: 200, alphabet }, repeatingBytes(...all));
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
])("a value of alphabet %s reaches 96 bits with %s characters", (alphabet, length) => {
  expect(minLength(alphabet)).toBe(length);
});

test("an alphabet with a repeated character has no minimum length", () => {
  expect(minLength("aab")).toBe(undefined);
});
