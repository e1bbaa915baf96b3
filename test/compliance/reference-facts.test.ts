// What a vault's row stores of the references to its assets: apps and other resources that name a secret in their settings.
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import {
  packReferences,
  type Reference,
  summarizeReferences,
  unpackReferences,
} from "../../shared/compliance/references.ts";

/** Returns hexadecimal digits that compress badly, the same for the same seed. */
const incompressibleText = (seed: number, length: number) =>
  Array.from({ length: Math.ceil(length / 64) }, (_, part) =>
    createHash("sha256").update(`${seed}/${part}`).digest("hex"),
  )
    .join("")
    .slice(0, length);
const references = (count: number): Reference[] =>
  Array.from({ length: count }, (_, index) => ({
    asset: `secret.${incompressibleText(index, 120)}`,
    resolved: index % 4 === 0,
    evidence: `app (webApp), ${incompressibleText(index + 0.5, 250)}: SecretNotFound`,
  }));

test("references to thousands of assets fit into the vault's row, which counts them all", () => {
  const wholeVault: Reference = {
    asset: undefined,
    resolved: false,
    evidence: "store (appConfiguration), A: NotFound",
  };
  const stored = [wholeVault, ...references(4000)];
  const facts = summarizeReferences(stored);
  const packed = packReferences(facts)!;
  const MAX_PACKED_BYTES = 384 * 1024;
  expect(packed.length).toBeLessThanOrEqual(MAX_PACKED_BYTES);
  expect(packReferences(unpackReferences(packed))!.length).toBe(packed.length);
  // The empty key has the references to the vault as a whole.
  expect(facts.get("")?.examples).toEqual([wholeVault.evidence]);
  // Every fourth of the 4,000 references to assets is resolved. The reference to the whole vault is not.
  const counts = [...facts.values()];
  expect(counts.reduce((sum, { unresolved }) => sum + unresolved, 0)).toBe(3001);
  expect(counts.reduce((sum, { resolved }) => sum + resolved, 0)).toBe(1000);
  // The same references are packed to the same size again.
  expect(packReferences(summarizeReferences(stored))!.length).toBe(packed.length);
});

test("references that fit into the row are stored for each asset, with examples", () => {
  const facts = summarizeReferences(references(500));
  expect(facts.size).toBe(500);
  // Three of four references are not resolved, and so are stored as examples.
  expect([...facts.values()].filter(({ examples }) => examples.length === 1)).toHaveLength(375);
});
