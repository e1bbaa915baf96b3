import * as z from "zod";
import type { AssetType } from "../inventory/asset.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import type { ReferenceFacts } from "./check.ts";
import { assetKey } from "./packed-results.ts";

/**
 * A reference to an asset of a vault, such as an app's setting, whose platform reports whether it can resolve it. Dependency
 * discovery finds references. They are stored in the vault's row of compliance, so that a scan need not query them.
 */
export interface Reference {
  /** `<type>.<name>`. Undefined for a reference to the whole vault. */
  asset: string | undefined;
  resolved: boolean;
  /** The consumer, the setting with the reference, and the platform's status. */
  evidence: string;
}

/** Whether an asset was read within the policy's days. Present only if logs are complete for all of these days. */
export interface AssetUse {
  asset: string;
  unused: boolean;
  /** Must be the same from day to day, so that results don't change daily. */
  evidence: string;
}

/** Summaries of references by `assetKey`. The key "" stands for the vault as a whole. */
export type VaultReferences = ReadonlyMap<string, ReferenceFacts>;

const MAX_EXAMPLES = 3;
const MAX_EXAMPLE_CHARACTERS = 300;
const WHOLE_VAULT = "";
/** Maximum size of packed references. The vault's row has at most 1 MiB. */
const MAX_PACKED_BYTES = 384 * 1024;

/** Returns the numbers of references and the use of each asset, limited to the space in the vault's row. */
export function summarizeReferences(references: Iterable<Reference | AssetUse>): VaultReferences {
  const facts = new Map<string, ReferenceFacts>();
  for (const reference of references) {
    const key = reference.asset?.toLowerCase() ?? WHOLE_VAULT;
    const assetFacts = facts.get(key) ?? { resolved: 0, unresolved: 0, examples: [] };
    facts.set(key, assetFacts);
    // Only an `AssetUse` has the member `unused`.
    if ("unused" in reference) {
      assetFacts.use = { unused: reference.unused, evidence: reference.evidence };
      continue;
    }
    const { resolved, evidence } = reference;
    if (resolved) assetFacts.resolved++;
    else {
      assetFacts.unresolved++;
      if (assetFacts.examples.length < MAX_EXAMPLES)
        assetFacts.examples.push(evidence.slice(0, MAX_EXAMPLE_CHARACTERS));
    }
  }
  return limitSize(facts);
}

/**
 * Limits references to `MAX_PACKED_BYTES`, because authors of app settings can name any number of assets of any vault. If they
 * are too large, removes the examples. If they are still too large, counts references to the last assets as references to the
 * vault as a whole.
 */
function limitSize(facts: VaultReferences): VaultReferences {
  const fits = (candidate: VaultReferences) => (packReferences(candidate)?.length ?? 0) <= MAX_PACKED_BYTES;
  if (fits(facts)) return facts;
  const wholeVault = facts.get(WHOLE_VAULT);
  const withoutExamples = [...facts]
    .filter(([key]) => key !== WHOLE_VAULT)
    .map(([key, assetFacts]): [string, ReferenceFacts] => [key, { ...assetFacts, examples: [] }]);
  for (let count = withoutExamples.length; ; count = Math.floor(count / 2)) {
    const limited = new Map(withoutExamples.slice(0, count));
    const remainder = sum([wholeVault, ...withoutExamples.slice(count).map(([, assetFacts]) => assetFacts)]);
    if (remainder) limited.set(WHOLE_VAULT, remainder);
    if (count === 0 || fits(limited)) return limited;
  }
}

/** Returns the references to an asset. The key and secret of a certificate count as the certificate. */
export function factsOfAsset(
  references: VaultReferences,
  { type, name }: { type: AssetType; name: string },
): ReferenceFacts | undefined {
  const types: AssetType[] = type === "certificate" ? ["certificate", "secret", "key"] : [type];
  return sum(types.map((assetType) => references.get(assetKey(assetType, name))));
}

/**
 * Returns the references to the vault itself: those that name no asset, and those to assets that the vault does not contain.
 */
export function factsOfVault(
  references: VaultReferences,
  assets: { has(key: string): boolean },
): ReferenceFacts | undefined {
  const exists = (key: string) => assets.has(key) || assets.has(`certificate.${key.slice(key.indexOf(".") + 1)}`);
  return sum([...references].filter(([key]) => key === WHOLE_VAULT || !exists(key)).map(([, facts]) => facts));
}

/** Adds references up. Keeps the use only if there is a single summary, because the use of several assets can't be added. */
function sum(all: (ReferenceFacts | undefined)[]): ReferenceFacts | undefined {
  const present = all.filter((facts) => facts !== undefined);
  if (present.length === 0) return undefined;
  return {
    resolved: present.reduce((count, { resolved }) => count + resolved, 0),
    unresolved: present.reduce((count, { unresolved }) => count + unresolved, 0),
    examples: present.flatMap(({ examples }) => examples).slice(0, MAX_EXAMPLES),
    ...(present.length === 1 && present[0]!.use !== undefined && { use: present[0]!.use }),
  };
}

/**
 * Returns the keys of assets whose results may change with references to these assets. These are the assets, and certificates
 * of the same name, because a reference to a certificate's secret counts for the certificate.
 */
export const affectedAssets = (assets: readonly string[]): string[] => [
  ...new Set(assets.flatMap((key) => [key, `certificate.${key.slice(key.indexOf(".") + 1)}`])),
];

/** Tuples of key, resolved, unresolved and examples. If the use is known, `unused` or `used` and the evidence follow. */
const Packed = z.array(z.tuple([z.string(), z.int(), z.int(), z.array(z.string())]).rest(z.string()));

/** Returns the references compressed. Undefined if there are none, as in rows of earlier versions. */
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
