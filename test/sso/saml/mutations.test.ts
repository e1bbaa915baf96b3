import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Signer, verificationResult } from "./signing.ts";

// Changes valid SAML responses at random. A changed response must be rejected, or sign in the same person as the valid one.

const idp = new Signer();

/** A position in a text as a fraction of its length. */
const position = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
/** Texts that a mutation inserts. */
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

/** One change of a text: an insertion, a replacement, a removal, a duplication, or an exchange of two tags. */
const mutation = fc.oneof(
  fc.record({ kind: fc.constant("insert" as const), at: position, piece: fc.constantFrom(...PIECES) }),
  fc.record({ kind: fc.constant("replace" as const), at: position, piece: fc.string({ minLength: 1, maxLength: 2 }) }),
  fc.record({ kind: fc.constant("cut" as const), at: position, length: fc.integer({ min: 1, max: 400 }) }),
  fc.record({
    kind: fc.constant("copy" as const),
    at: position,
    to: position,
    length: fc.integer({ min: 1, max: 3000 }),
  }),
  fc.record({ kind: fc.constant("exchange" as const), at: position, to: position }),
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
      const [first, second] = [change.at, change.to].map((fraction) => Math.floor(fraction * parts.length)) as [
        number,
        number,
      ];
      [parts[first], parts[second]] = [parts[second]!, parts[first]!];
      return parts.join("");
    }
  }
}

describe.each(["assertion", "response", "both"] as const)("A response whose %s is signed", (signs) => {
  it("is rejected or gives the same result after random changes", async () => {
    const xml = await idp.respond({ signs });
    const original = await verificationResult(xml, idp.expected());
    expect(original).toBeTypeOf("object");
    let [rejected, accepted] = [0, 0];
    await fc.assert(
      fc.asyncProperty(fc.array(mutation, { minLength: 1, maxLength: 2 }), async (changes) => {
        const result = await verificationResult(changes.reduce(mutate, xml), idp.expected());
        // The reason of a rejection is a text, an accepted person is an object.
        if (typeof result === "string") rejected += 1;
        else {
          accepted += 1;
          expect(result).toEqual(original);
        }
      }),
      { numRuns: 150 },
    );
    // Both must occur, or the test tests nothing. Accepted are changes outside the signed content and of white space in tags.
    expect(rejected).toBeGreaterThan(50);
    expect(accepted).toBeGreaterThan(0);
  });
});
