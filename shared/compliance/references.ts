import * as z from "zod";
import type { AssetType } from "../inventory/asset.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import type { ReferenceFacts } from "./check.ts";
import { assetKey } from "./packed-results.ts";

/**
 * References to a vault's assets whose platform reports whether it can resolve them, such as an app's setting. The data comes
 * from dependency discovery and is stored in the vault's row, so that a scan needs no further request.
 */
export interface Reference {
  /** `<type>.<name>`. Undefined for a reference to the whole vault. */
  asset: string | undefined;
  resolved: boolean;
  /** The consumer, its place, and the platform's status. */
  evidence: string;
}

/** Whether an asset was read within the policy's days. Present only if logs are complete for all of these days. */
export interface AssetUse {
  asset: string;
  unused: boolean;
  /** Must be the same from day to day, so that results don't change daily. */
  evidence: string;
}

/** By `assetKey`, with "" for the vault as a whole. */
export type VaultReferences = ReadonlyMap<string, ReferenceFacts>;

const MAX_EXAMPLES = 3;
const MAX_EXAMPLE_CHARACTERS = 300;
const WHOLE_VAULT = "";
/** Space for references in the vault's row, which has at most 1 MiB. */
const MAX_PACKED_BYTES = 384 * 1024;

export function factsOf(references: Iterable<Reference | AssetUse>): VaultReferences {
  const facts = new Map<string, ReferenceFacts>();
  for (const reference of references) {
    const key = reference.asset?.toLowerCase() ?? WHOLE_VAULT;
    const one = facts.get(key) ?? { resolved: 0, unresolved: 0, examples: [] };
    facts.set(key, one);
    if ("unused" in reference) {
      one.use = { unused: reference.unused, evidence: reference.evidence };
      continue;
    }
    const { resolved, evidence } = reference;
    if (resolved) one.resolved++;
    else {
      one.unresolved++;
      if (one.examples.length < MAX_EXAMPLES) one.examples.push(evidence.slice(0, MAX_EXAMPLE_CHARACTERS));
    }
  }
  return bounded(facts);
}

/**
 * Packs references within that space. Authors of app settings can name any number of assets of any vault. If the space is too
 * small, examples are dropped, and then the last assets count as references to the vault as a whole.
 */
function bounded(facts: VaultReferences): VaultReferences {
  const fits = (some: VaultReferences) => (packReferences(some)?.length ?? 0) <= MAX_PACKED_BYTES;
  if (fits(facts)) return facts;
  const whole = facts.get(WHOLE_VAULT);
  const plain = [...facts]
    .filter(([key]) => key !== WHOLE_VAULT)
    .map(([key, one]): [string, ReferenceFacts] => [key, { ...one, examples: [] }]);
  for (let count = plain.length; ; count = Math.floor(count / 2)) {
    const kept = new Map(plain.slice(0, count));
    const rest = sum([whole, ...plain.slice(count).map(([, one]) => one)]);
    if (rest) kept.set(WHOLE_VAULT, rest);
    if (count === 0 || fits(kept)) return kept;
  }
}

/** Returns the references to an asset. The key and secret of a certificate count as the certificate. */
export function factsOfAsset(
  references: VaultReferences,
  { type, name }: { type: AssetType; name: string },
): ReferenceFacts | undefined {
  const types: AssetType[] = type === "certificate" ? ["certificate", "secret", "key"] : [type];
  return sum(types.map((one) => references.get(assetKey(one, name))));
}

/** Returns the references to the vault: those without an object, and those to objects that it does not contain. */
export function factsOfVault(
  references: VaultReferences,
  assets: { has(key: string): boolean },
): ReferenceFacts | undefined {
  const isThere = (key: string) => assets.has(key) || assets.has(`certificate.${key.slice(key.indexOf(".") + 1)}`);
  return sum([...references].filter(([key]) => key === WHOLE_VAULT || !isThere(key)).map(([, facts]) => facts));
}

function sum(all: (ReferenceFacts | undefined)[]): ReferenceFacts | undefined {
  const found = all.filter((one) => one !== undefined);
  if (found.length === 0) return undefined;
  return {
    resolved: found.reduce((count, one) => count + one.resolved, 0),
    unresolved: found.reduce((count, one) => count + one.unresolved, 0),
    examples: found.flatMap(({ examples }) => examples).slice(0, MAX_EXAMPLES),
    ...(found.length === 1 && found[0]!.use !== undefined && { use: found[0]!.use }),
  };
}

/**
 * Returns the keys of assets whose results may change with these references. A reference to a certificate's secret is one to
 * the certificate.
 */
export const evaluatedWith = (assets: readonly string[]): string[] => [
  ...new Set(assets.flatMap((key) => [key, `certificate.${key.slice(key.indexOf(".") + 1)}`])),
];

/** If the use is known, it follows at the end: `unused` or `used`, and the evidence. */
const Packed = z.array(z.tuple([z.string(), z.int(), z.int(), z.array(z.string())]).rest(z.string()));

/** Compressed. Undefined if there are none, as in rows of earlier versions. */
export const packReferences = (references: VaultReferences): Uint8Array<ArrayBuffer> | undefined =>
  references.size === 0
    ? undefined
    : pack(
        [...references]
          .map(([key, { resolved, unresolved, examples, use }]) => {
            const counts = [key, resolved, unresolved, examples] as const;
            return use ? ([...counts, use.unused ? "unused" : "used", use.evidence] as const) : counts;
          })
          .sort(([a], [b]) => (a < b ? -1 : 1)),
      );

export const unpackReferences = (packed: Uint8Array | undefined): VaultReferences =>
  new Map(
    packed === undefined
      ? []
      : unpackBytes(packed, Packed).map(([key, resolved, unresolved, examples, use, evidence = ""]) => [
          key,
          { resolved, unresolved, examples, ...(use !== undefined && { use: { unused: use === "unused", evidence } }) },
        ]),
  );
