/**
 * Converts results between memory and the compressed columns of rows. Long lists are split into chunks, one for each row, with
 * a hash that shows whether the row must be rewritten.
 */
import * as z from "zod";
import { ASSET_TYPES, type AssetType, fingerprint } from "../inventory/asset.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import {
  type Failure,
  type NewViolationItem,
  NewViolationItems,
  type ResolvedViolationItem,
  ResolvedViolationItems,
} from "./compliance-rows.ts";
import { AssetFacts } from "./finding-facts.ts";

/** Results of one asset: the codes of checks that it passes, and the failures. Not applicable checks are in neither. */
export interface AssetState {
  type: AssetType;
  name: string;
  passed: number[];
  failed: Failure[];
  /** Unix seconds at which the asset's age changes the next result. */
  dueAt?: number;
  /** Data for lists of violations. Only if something fails. */
  facts?: AssetFacts | undefined;
}

/** Returns `<type>.<name>` in lower case, which identifies an asset within its vault. */
export const assetKey = (type: AssetType, name: string): string => `${type}.${name.toLowerCase()}`;

/** How many resources pass and fail one check. */
export interface Tally {
  passed: number;
  failed: number;
}

/** Packs tallies by check code as triples `code, passed, failed` of 32-bit numbers: about 300 bytes per vault. */
export function packTallies(tallies: ReadonlyMap<number, Tally>): Uint8Array<ArrayBuffer> {
  const entries = [...tallies].sort(([a], [b]) => a - b);
  return new Uint8Array(
    Uint32Array.from(entries.flatMap(([code, { passed, failed }]) => [code, passed, failed])).buffer,
  );
}

export function unpackTallies(packed: Uint8Array): Map<number, Tally> {
  // Copied, because decoded bytes can lie unaligned in a larger buffer, and `Buffer.slice` does not copy.
  const words = new Uint32Array(new Uint8Array(packed).buffer);
  const tallies = new Map<number, Tally>();
  for (let index = 0; index + 2 < words.length; index += 3) {
    tallies.set(words[index]!, { passed: words[index + 1]!, failed: words[index + 2]! });
  }
  return tallies;
}

/**
 * Assets per details row (all assets of a vault with their results) and failing assets per findings row. Compressed, either stays
 * far below the 1 MiB limit of an entity.
 */
const ASSETS_PER_ROW = 4000;
export const FINDINGS_PER_ROW = 500;

/** The items of one row, compressed on demand, with a short hash to detect changes. */
export interface Chunk {
  hash: string;
  bytes(): Uint8Array<ArrayBuffer>;
  /** The facts of the row's items, in their order. Undefined if no item has any. */
  facts(): Uint8Array<ArrayBuffer> | undefined;
}

const Facts = z.array(AssetFacts.nullable());
type Facts = z.infer<typeof Facts>;

const hashOf = (items: readonly unknown[], facts: Facts | undefined): string =>
  facts === undefined ? fingerprint(items) : fingerprint([items, facts]);

/** Returns the facts of a row's items. Undefined if it has none. */
const unpackFacts = (bytes: Uint8Array | undefined): Facts | undefined =>
  bytes === undefined ? undefined : unpackBytes(bytes, Facts);

/**
 * Splits items into chunks of `perRow`. The items' facts are in a column of their own.
 *
 * @param stored - Returns an item in its stored form. Called twice per item, for the hash and for the row, because holding the
 * stored forms of a large vault would double the memory.
 */
function chunksOf<T>(
  items: readonly T[],
  perRow: number,
  stored: (item: T) => unknown,
  factsOf: (item: T) => AssetFacts | undefined,
): Chunk[] {
  const chunks: Chunk[] = [];
  for (let start = 0; start < items.length; start += perRow) {
    const part = items.slice(start, start + perRow);
    const values = () => part.map(stored);
    const facts = part.some((item) => factsOf(item) !== undefined)
      ? () => part.map((item) => factsOf(item) ?? null)
      : undefined;
    chunks.push({
      hash: hashOf(values(), facts?.()),
      bytes: () => pack(values()),
      facts: () => facts && pack(facts()),
    });
  }
  return chunks;
}

/** The check's code, since when it fails (Unix seconds), and the evidence. */
const StoredFailure = z.tuple([z.int(), z.int(), z.string()]);
/** Type, name, codes of passed checks, failures, and `dueAt` (0 if undefined). */
const StoredAsset = z.tuple([z.enum(ASSET_TYPES), z.string(), z.array(z.int()), z.array(StoredFailure), z.int()]);
type StoredAsset = z.infer<typeof StoredAsset>;

const byKey = (a: AssetState, b: AssetState): number => {
  const [left, right] = [assetKey(a.type, a.name), assetKey(b.type, b.name)];
  return left < right ? -1 : left > right ? 1 : 0;
};

/** Returns the chunks of a vault's details: all assets with their results, by key. */
export const detailChunks = (assets: Iterable<AssetState>): Chunk[] =>
  chunksOf([...assets].sort(byKey), ASSETS_PER_ROW, storedAsset, ({ facts }) => facts);

const storedAsset = ({ type, name, passed, failed, dueAt }: AssetState): StoredAsset => [
  type,
  name,
  passed,
  failed.map(({ code, since, evidence }): z.infer<typeof StoredFailure> => [code, since, evidence]),
  dueAt ?? 0,
];

/** Returns the assets of a details row, and the hash of the chunk from which the row was written. */
export function unpackDetails(bytes: Uint8Array, packedFacts?: Uint8Array): { hash: string; assets: AssetState[] } {
  const stored = unpackBytes(bytes, z.array(StoredAsset));
  const facts = unpackFacts(packedFacts);
  const assets = stored.map(([type, name, passed, failed, dueAt], index): AssetState => {
    const itemFacts = facts?.[index];
    return {
      type,
      name,
      passed,
      failed: failed.map(([code, since, evidence]) => ({ code, since, evidence })),
      ...(dueAt ? { dueAt } : {}),
      ...(itemFacts ? { facts: itemFacts } : {}),
    };
  });
  return { hash: hashOf(stored, facts), assets };
}

/** A failing asset of one check: its name, since when it fails (Unix seconds), the evidence, and further data. */
export type Finding = [name: string, since: number, evidence: string, facts?: AssetFacts | undefined];
type StoredFinding = [name: string, since: number, evidence: string];
const StoredFindings = z.array(z.tuple([z.string(), z.int(), z.string()]));

/** Returns the chunks of one check's findings in one vault, sorted by name, ignoring case. */
export const findingChunks = (findings: readonly Finding[]): Chunk[] =>
  chunksOf(sortedFindings(findings), FINDINGS_PER_ROW, storedFinding, ([, , , facts]) => facts);

const storedFinding = ([name, since, evidence]: Finding): StoredFinding => [name, since, evidence];

/** Returns the findings by name, ignoring case. */
export function sortedFindings(findings: readonly Finding[]): Finding[] {
  const keyed = findings.map((finding) => ({ finding, key: finding[0].toLowerCase() }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return keyed.map(({ finding }) => finding);
}

export function unpackFindings(bytes: Uint8Array, packedFacts?: Uint8Array): Finding[] {
  const facts = unpackFacts(packedFacts);
  return unpackBytes(bytes, StoredFindings).map((finding, index): Finding => {
    const itemFacts = facts?.[index];
    return itemFacts ? [...finding, itemFacts] : finding;
  });
}

/** Returns the hash of the chunk from which a findings row was written. */
export const findingsHash = (bytes: Uint8Array, packedFacts?: Uint8Array): string =>
  hashOf(unpackBytes(bytes, StoredFindings), unpackFacts(packedFacts));

/** Maximum number of new or resolved violations in one row. */
export const NEW_VIOLATIONS_PER_ROW = 1000;

export const packNewViolations = (items: readonly NewViolationItem[]): Uint8Array<ArrayBuffer> => pack(items);
export const unpackNewViolations = (bytes: Uint8Array): NewViolationItem[] => unpackBytes(bytes, NewViolationItems);

export const packResolvedViolations = (items: readonly ResolvedViolationItem[]): Uint8Array<ArrayBuffer> => pack(items);
export const unpackResolvedViolations = (bytes: Uint8Array): ResolvedViolationItem[] =>
  unpackBytes(bytes, ResolvedViolationItems);
