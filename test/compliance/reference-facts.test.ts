import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { factsOf, packReferences, type Reference, unpackReferences } from "../../shared/compliance/references.ts";

/** Names that can't be compressed well. */
const noise = (at: number, length: number) =>
  Array.from({ length: Math.ceil(length / 64) }, (_, part) =>
    createHash("sha256").update(`${at}/${part}`).digest("hex"),
  )
    .join("")
    .slice(0, length);
const references = (count: number): Reference[] =>
  Array.from({ length: count }, (_, at) => ({
    asset: `secret.${noise(at, 120)}`,
    resolved: at % 4 === 0,
    evidence: `app (webApp), ${noise(at + 0.5, 250)}: SecretNotFound`,
  }));

test("references to any number of assets of a vault fit into its row, and all are counted", () => {
  const whole: Reference = { asset: undefined, resolved: false, evidence: "store (appConfiguration), A: NotFound" };
  const given = [whole, ...references(4000)];
  const facts = factsOf(given);
  const packed = packReferences(facts)!;
  expect(packed.length).toBeLessThanOrEqual(384 * 1024);
  expect(packReferences(unpackReferences(packed))!.length).toBe(packed.length);
  expect(facts.get("")?.examples).toEqual([whole.evidence]);
  const counted = [...facts.values()];
  expect(counted.reduce((all, one) => all + one.unresolved, 0)).toBe(3001);
  expect(counted.reduce((all, one) => all + one.resolved, 0)).toBe(1000);
  // Reading it again returns the same.
  expect(packReferences(factsOf(given))!.length).toBe(packed.length);
});

test("references that fit are listed individually, with examples", () => {
  const facts = factsOf(references(500));
  expect(facts.size).toBe(500);
  expect([...facts.values()].filter(({ examples }) => examples.length === 1)).toHaveLength(375);
});
