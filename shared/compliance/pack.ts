import { deflateRawSync, inflateRawSync } from "node:zlib";
import * as z from "zod";
import { ASSET_TYPES, type AssetType, fingerprint } from "../inventory/asset.ts";
import type { Failure } from "./layout.ts";

/** One asset's results: which checks it passes, by code, and which it fails. Checks that don't apply are in neither. */
export interface AssetState {
  type: AssetType;
  name: string;
  passed: number[];
  failed: Failure[];
  /** Unix seconds at which age alone changes the first result. */
  dueAt?: number;
}

export const assetKey = (type: AssetType, name: string): string => `${type}.${name.toLowerCase()}`;

export interface Tally {
  passed: number;
  failed: number;
}

/** Tallies per check code, as 32-bit triples `code, passed, failed`: some 300 bytes a vault. */
export function packTallies(tallies: ReadonlyMap<number, Tally>): Uint8Array<ArrayBuffer> {
  const entries = [...tallies].sort(([a], [b]) => a - b);
  return new Uint8Array(
    Uint32Array.from(entries.flatMap(([code, { passed, failed }]) => [code, passed, failed])).buffer,
  );
}

export function unpackTallies(packed: Uint8Array): Map<number, Tally> {
  // A copy, since decoded bytes may lie unaligned in a larger buffer (and a Buffer's slice is none).
  const words = new Uint32Array(new Uint8Array(packed).buffer);
  const tallies = new Map<number, Tally>();
  for (let at = 0; at + 2 < words.length; at += 3) {
    tallies.set(words[at]!, { passed: words[at + 1]!, failed: words[at + 2]! });
  }
  return tallies;
}

/** Assets per details row and failing assets per findings row: deflated, either stays far below the 1 MiB of an entity. */
const ASSETS_PER_ROW = 4000;
export const FINDINGS_PER_ROW = 500;

const deflate = (value: unknown): Uint8Array<ArrayBuffer> => new Uint8Array(deflateRawSync(JSON.stringify(value)));
const inflate = (bytes: Uint8Array): unknown => JSON.parse(inflateRawSync(bytes).toString());

/** A row's content before it is deflated, and a short hash to see by whether it differs. */
export interface Chunk {
  hash: string;
  bytes(): Uint8Array<ArrayBuffer>;
}

function chunksOf<T>(items: readonly T[], perRow: number): Chunk[] {
  const chunks: Chunk[] = [];
  for (let start = 0; start < items.length; start += perRow) {
    const part = items.slice(start, start + perRow);
    chunks.push({ hash: fingerprint(part), bytes: () => deflate(part) });
  }
  return chunks;
}

const StoredFailure = z.tuple([z.int(), z.int(), z.string()]);
const StoredAsset = z.tuple([z.enum(ASSET_TYPES), z.string(), z.array(z.int()), z.array(StoredFailure), z.int()]);
type StoredAsset = z.infer<typeof StoredAsset>;

const byKey = (a: AssetState, b: AssetState): number => {
  const [left, right] = [assetKey(a.type, a.name), assetKey(b.type, b.name)];
  return left < right ? -1 : left > right ? 1 : 0;
};

export const detailChunks = (assets: Iterable<AssetState>): Chunk[] =>
  chunksOf(
    [...assets]
      .sort(byKey)
      .map(
        ({ type, name, passed, failed, dueAt }): StoredAsset => [
          type,
          name,
          passed,
          failed.map(({ code, since, evidence }): z.infer<typeof StoredFailure> => [code, since, evidence]),
          dueAt ?? 0,
        ],
      ),
    ASSETS_PER_ROW,
  );

/** A details row's assets, with the hash its chunk was written under. */
export function unpackDetails(bytes: Uint8Array): { hash: string; assets: AssetState[] } {
  const stored = z.array(StoredAsset).parse(inflate(bytes));
  const assets = stored.map(
    ([type, name, passed, failed, dueAt]): AssetState => ({
      type,
      name,
      passed,
      failed: failed.map(([code, since, evidence]) => ({ code, since, evidence })),
      ...(dueAt ? { dueAt } : {}),
    }),
  );
  return { hash: fingerprint(stored), assets };
}

/** A failing asset of one check: its name, since when (unix seconds), and the facts. */
export type Finding = [name: string, since: number, evidence: string];
const StoredFindings = z.array(z.tuple([z.string(), z.int(), z.string()]));

/** Findings in the order of their names, whatever their case. */
export function findingChunks(findings: readonly Finding[]): Chunk[] {
  const keyed = findings.map((finding) => ({ finding, key: finding[0].toLowerCase() }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return chunksOf(
    keyed.map(({ finding }) => finding),
    FINDINGS_PER_ROW,
  );
}

export const unpackFindings = (bytes: Uint8Array): Finding[] => StoredFindings.parse(inflate(bytes));

/** A violation that arose: its check's code, the resource's name, since when, and the resource's tags. */
export type NewViolationItem = [code: number, name: string, since: number, tags: Record<string, string>];
const StoredNewViolations = z.array(z.tuple([z.int(), z.string(), z.int(), z.record(z.string(), z.string())]));
const NEW_VIOLATIONS_PER_ROW = 1000;

export const newViolationChunks = (items: readonly NewViolationItem[]): Chunk[] =>
  chunksOf(items, NEW_VIOLATIONS_PER_ROW);
export const unpackNewViolations = (bytes: Uint8Array): NewViolationItem[] => StoredNewViolations.parse(inflate(bytes));
