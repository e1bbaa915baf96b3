import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { outcome, Signer } from "./signing.ts";

const idp = new Signer();

/** A position in a text as a fraction of its length. */
const place = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const PIECES = [
  "<!-- -->",
  "<?x?>",
  "<![CDATA[a]]>",
  "&amp;",
  "&#x61;",
  " ",
  "\r\n",
  "\u0000",
  "é",
  "<a/>",
  '"',
  "<",
  ">",
  "</saml:Assertion>",
];

/** One change of a text: an insertion, a removal, a duplication, or an exchange of two tags. */
const mutation = fc.oneof(
  fc.record({ kind: fc.constant("insert" as const), at: place, piece: fc.constantFrom(...PIECES) }),
  fc.record({ kind: fc.constant("replace" as const), at: place, piece: fc.string({ minLength: 1, maxLength: 2 }) }),
  fc.record({ kind: fc.constant("cut" as const), at: place, length: fc.integer({ min: 1, max: 400 }) }),
  fc.record({ kind: fc.constant("copy" as const), at: place, to: place, length: fc.integer({ min: 1, max: 3000 }) }),
  fc.record({ kind: fc.constant("exchange" as const), at: place, to: place }),
);
type Mutation = typeof mutation extends fc.Arbitrary<infer T> ? T : never;

function mutate(xml: string, change: Mutation): string {
  const at = Math.floor(change.at * xml.length);
  const splice = (from: number, removed: number, added: string) =>
    xml.slice(0, from) + added + xml.slice(from + removed);
  switch (change.kind) {
    case "insert":
      return splice(at, 0, change.piece);
    case "replace":
      return splice(at, change.piece.length, change.piece);
    case "cut":
      return splice(at, change.length, "");
    case "copy":
      return splice(Math.floor(change.to * xml.length), 0, xml.slice(at, at + change.length));
    case "exchange": {
      const parts = xml.split(/(?=<)/);
      const [one, other] = [change.at, change.to].map((where) => Math.floor(where * parts.length)) as [number, number];
      [parts[one], parts[other]] = [parts[other]!, parts[one]!];
      return parts.join("");
    }
  }
}

describe.each(["assertion", "response", "both"] as const)("A response whose %s is signed", (signs) => {
  it("is rejected or gives the same result, however it is changed", async () => {
    const xml = await idp.respond({ signs });
    const original = await outcome(xml, idp.expected());
    expect(original).toBeTypeOf("object");
    let [refused, taken] = [0, 0];
    await fc.assert(
      fc.asyncProperty(fc.array(mutation, { minLength: 1, maxLength: 2 }), async (changes) => {
        const found = await outcome(changes.reduce(mutate, xml), idp.expected());
        if (typeof found === "string") refused += 1;
        else {
          taken += 1;
          expect(found).toEqual(original);
        }
      }),
      { numRuns: 150 },
    );
    // Both results must occur: content outside the signature, and white space in tags, may change.
    expect(refused).toBeGreaterThan(50);
    expect(taken).toBeGreaterThan(0);
  });
});
