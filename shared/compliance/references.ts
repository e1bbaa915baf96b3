import * as z from "zod";
import type { AssetType } from "../inventory/asset.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import type { ReferenceFacts } from "./check.ts";
import { assetKey } from "./pack.ts";

/**
 * References to a vault's assets of which the platform that keeps them says whether it can follow them, such as an app's
 * setting. What the room of dependencies tells is kept in the vault's row, so that a scan has it without asking.
 */
export interface Reference {
  /** `<type>.<name>`; undefined where the whole vault is named. */
  asset: string | undefined;
  resolved: boolean;
  /** Who names it, where, and what the platform says. */
  evidence: string;
}

/** Whether an asset was read within the days of the policy, where logs that were whole for all of them say so. */
export interface AssetUse {
  asset: string;
  unused: boolean;
  /** The same from day to day. */
  evidence: string;
}

/** By `assetKey`, "" for the vault as a whole. */
export type VaultReferences = ReadonlyMap<string, ReferenceFacts>;

const MAX_EXAMPLES = 3;
const MAX_EXAMPLE_CHARACTERS = 300;
const WHOLE_VAULT = "";
/** The vault's row, of at most 1 MiB, has so much room for them beside all else. */
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
 * Who writes an app's settings can name as many assets of any vault as they like. Where there is no room for all, none has
 * examples, and the last of them count as references to the vault as a whole.
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

/** Of an asset; a certificate's key and secret are part of it. */
export function factsOfAsset(
  references: VaultReferences,
  { type, name }: { type: AssetType; name: string },
): ReferenceFacts | undefined {
  const types: AssetType[] = type === "certificate" ? ["certificate", "secret", "key"] : [type];
  return sum(types.map((one) => references.get(assetKey(one, name))));
}

/** Of the vault: those that name all of it, and those that name what it does not hold. */
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

/** The keys whose results may change with references to these: what names a certificate's secret is about the certificate. */
export const evaluatedWith = (assets: readonly string[]): string[] => [
  ...new Set(assets.flatMap((key) => [key, `certificate.${key.slice(key.indexOf(".") + 1)}`])),
];

/** Where the use is known, it stands behind: `unused` or `used`, and the evidence. */
const Packed = z.array(z.tuple([z.string(), z.int(), z.int(), z.array(z.string())]).rest(z.string()));

/** Deflated; undefined where there is none, as in rows of earlier versions. */
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
