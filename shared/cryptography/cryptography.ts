import * as z from "zod";
import type { AssetRecord, AssetType } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import type { Inventory } from "../inventory/inventory.ts";
import { decodeCursor, encodeCursor, MAX_LIMIT, type Page } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { type AssetConsumer, type CbomPart, cbomPart } from "./cbom.ts";
import {
  compareRanks,
  type PostQuantum,
  type ProtectionRules,
  postQuantumOf,
  type QuantumState,
  type Rank,
  rankOf,
} from "./post-quantum.ts";

/**
 * Reads keys and certificates from the inventory: as a cryptographic bill of materials (CBOM), and ranked by how urgently they
 * need algorithms that a quantum computer does not break.
 */

/** Maximum number of assets in one part of the CBOM, because the platform collects a response in memory. */
const ASSETS_PER_PART = 5_000;

/** Types of the assets that have an algorithm, in the order of the CBOM. */
const CRYPTO_TYPES = ["key", "certificate"] as const satisfies AssetType[];

export interface CryptographyFilter {
  type?: (typeof CRYPTO_TYPES)[number] | undefined;
  vault?: string | undefined;
  subscription?: string | undefined;
  quantum?: QuantumState | undefined;
}

/** Numbers of all assets that match the filter. */
interface PostQuantumSummary extends Record<QuantumState, number> {
  assets: number;
  /** The most frequent first. */
  byAlgorithm: { algorithm: string; assets: number }[];
  consumersKnown: boolean;
}

export interface Cryptography {
  /**
   * Ranks enabled keys and certificates. Reads all that match the filter, because no index has their order: one request per
   * 1,000, and one per 1,000 dependencies. Keeps only those of the page in memory.
   *
   * @throws {Problem} invalidCursor
   */
  postQuantum(
    filter: CryptographyFilter,
    request: { limit: number; cursor: string | undefined },
  ): Promise<{ page: Page<PostQuantum>; summary: PostQuantumSummary }>;
  /**
   * Returns a part of the CBOM: a CycloneDX document with up to 5,000 assets, and a cursor for the rest. Makes one request per
   * 1,000 assets, and one per 1,000 dependencies.
   *
   * @param version - Version of the service, which the document names as its tool.
   * @throws {Problem} invalidCursor
   */
  cbom(
    filter: CryptographyFilter,
    cursor: string | undefined,
    version: string,
  ): Promise<CbomPart & { nextCursor: string | null }>;
}

/** Years up to 9999 have four digits, also after the longest protection of the setting is added. */
const MAX_NOW_MS = Date.UTC(9000, 0);

const RankCursor = z.object({
  /** The filter of the first page, as JSON. */
  f: z.string(),
  /** Time of the first page, which decides the dates on all pages. */
  now: z.int().min(0).max(MAX_NOW_MS),
  /** Rank of the last item. */
  r: z.tuple([z.int(), z.string().max(10), z.int(), z.string().max(512)]),
});

const PartCursor = z.object({
  f: z.string(),
  t: z.enum(CRYPTO_TYPES),
  /** Cursor in the inventory. Absent at the beginning of a type. */
  c: z.string().max(3000).optional(),
  /** Number of this part, from 1. */
  n: z.int().min(1).max(1_000_000),
});

/** Without `quantum`, the key is that of earlier versions, so that their cursors stay valid. */
const filterKey = ({ type, vault, subscription, quantum }: CryptographyFilter): string =>
  JSON.stringify([type, vault, subscription, ...(quantum === undefined ? [] : [quantum])]);

/** Decodes a cursor that has the filter of its first page. @throws {Problem} invalidCursor */
function cursorOf<S extends z.ZodType<{ f: string }>>(schema: S, cursor: string | undefined, key: string) {
  if (cursor === undefined) return undefined;
  const state = decodeCursor(schema, cursor);
  if (state.f !== key)
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  return state;
}

export function createCryptography(deps: {
  inventory: Pick<Inventory, "assets" | "moment">;
  /** Returns the consumers of the assets of one vault, or of all. Undefined if consumers are not known. */
  consumersOf: (vaultName: string | undefined) => Promise<AsyncGenerator<AssetConsumer> | undefined>;
  ownerTag: string;
  protection: ProtectionRules;
}): Cryptography {
  const { inventory, consumersOf, ownerTag, protection } = deps;

  /** Returns a page of assets of a type by name, without those that do not count. */
  async function pageOfType(
    { vault, subscription }: CryptographyFilter,
    type: (typeof CRYPTO_TYPES)[number],
    limit: number,
    cursor: string | undefined,
  ): Promise<{ assets: AssetRecord[]; now: number; nextCursor: string | null }> {
    const moment = await inventory.moment();
    const filter = {
      type,
      counted: true,
      ...(vault !== undefined && { vault }),
      ...(subscription !== undefined && { subscription }),
    };
    const { items, nextCursor } = await inventory.assets.list(filter, { limit, offset: 0, cursor }, moment);
    return { assets: items.map(({ asset }) => asset), now: moment.now, nextCursor };
  }

  async function* allAssets(filter: CryptographyFilter): AsyncGenerator<AssetRecord[]> {
    for (const type of CRYPTO_TYPES) {
      if (filter.type !== undefined && filter.type !== type) continue;
      for (let cursor: string | undefined | null; cursor !== null; ) {
        const page = await pageOfType(filter, type, MAX_LIMIT, cursor);
        yield page.assets;
        cursor = page.nextCursor;
      }
    }
  }

  /** Returns the number of consumers by lower-case asset ID. Undefined if consumers are not known. */
  async function countConsumers(vault: string | undefined): Promise<ReadonlyMap<string, number> | undefined> {
    const consumers = await consumersOf(vault);
    if (!consumers) return undefined;
    const counts = new Map<string, number>();
    for await (const { assetId } of consumers) counts.set(assetId, (counts.get(assetId) ?? 0) + 1);
    return counts;
  }

  /** Returns the consumers of these assets, by lower-case asset ID. */
  async function readConsumers(
    assets: readonly AssetRecord[],
    vault: string | undefined,
  ): Promise<Map<string, AssetConsumer["resource"][]>> {
    const found = new Map<string, AssetConsumer["resource"][]>(assets.flatMap(usedIdsOf).map((id) => [id, []]));
    for await (const { assetId, resource } of (await consumersOf(vault)) ?? []) {
      const { id, kind, name } = resource;
      found.get(assetId)?.push({ id, kind, name });
    }
    return found;
  }

  return {
    async postQuantum(filter, { limit, cursor: cursorText }) {
      const key = filterKey(filter);
      const cursor = cursorOf(RankCursor, cursorText, key);
      const after: Rank | undefined = cursor?.r;
      const { now } = cursor ?? (await inventory.moment());
      const counts = await countConsumers(filter.vault);
      const summary = { assets: 0, vulnerable: 0, unknown: 0, safe: 0 };
      const byAlgorithm = new Map<string, number>();
      let best: { rank: Rank; item: PostQuantum }[] = [];
      const trim = () => {
        best = best.sort((a, b) => compareRanks(a.rank, b.rank)).slice(0, limit + 1);
      };
      for await (const assets of allAssets(filter)) {
        for (const asset of assets.filter(({ enabled }) => enabled)) {
          const owner = ownersOf(asset, ownerTag)[0];
          const consumers = counts && usedIdsOf(asset).reduce((sum, id) => sum + (counts.get(id) ?? 0), 0);
          const item = postQuantumOf(asset, { now, owner, consumers, protection });
          if (filter.quantum !== undefined && filter.quantum !== item.quantum) continue;
          summary.assets++;
          summary[item.quantum]++;
          const name = item.algorithm?.name;
          if (name !== undefined) byAlgorithm.set(name, (byAlgorithm.get(name) ?? 0) + 1);
          const rank = rankOf(item);
          if (!after || compareRanks(rank, after) > 0) best.push({ rank, item });
        }
        // Trimmed once a page, so that at most a page more than the limit is in memory.
        trim();
      }
      trim();
      const items = best.slice(0, limit);
      const last = items.at(-1);
      return {
        page: {
          items: items.map(({ item }) => item),
          total: summary.assets,
          limit,
          offset: 0,
          nextCursor: last && best.length > limit ? encodeCursor({ f: key, now, r: last.rank }) : null,
        },
        summary: {
          ...summary,
          byAlgorithm: [...byAlgorithm]
            .map(([algorithm, assets]) => ({ algorithm, assets }))
            .sort((a, b) => b.assets - a.assets || (a.algorithm < b.algorithm ? -1 : 1)),
          consumersKnown: counts !== undefined,
        },
      };
    },

    async cbom(filter, cursorText, version) {
      const key = filterKey(filter);
      const cursor = cursorOf(PartCursor, cursorText, key);
      const part = cursor?.n ?? 1;
      const types = CRYPTO_TYPES.filter((type) => filter.type === undefined || filter.type === type);
      const assets: AssetRecord[] = [];
      let position: { type: (typeof CRYPTO_TYPES)[number]; cursor?: string | undefined } | undefined = cursor
        ? { type: cursor.t, cursor: cursor.c }
        : { type: types[0]! };
      let now = 0;
      while (position && assets.length < ASSETS_PER_PART) {
        const { type }: { type: (typeof CRYPTO_TYPES)[number] } = position;
        const limit = Math.min(MAX_LIMIT, ASSETS_PER_PART - assets.length);
        const page = await pageOfType(filter, type, limit, position.cursor);
        assets.push(...page.assets);
        now = page.now;
        const nextType: typeof type | undefined = types[types.indexOf(type) + 1];
        position = page.nextCursor !== null ? { type, cursor: page.nextCursor } : nextType && { type: nextType };
      }
      const consumers = await readConsumers(assets, filter.vault);
      const document = cbomPart(assets, {
        now,
        part,
        isOnlyPart: part === 1 && !position,
        consumersOf: (asset) => usedIdsOf(asset).flatMap((id) => consumers.get(id) ?? []),
        version,
      });
      return {
        ...document,
        nextCursor: position
          ? encodeCursor({ f: key, t: position.type, c: position.cursor, n: part + 1 } satisfies z.input<
              typeof PartCursor
            >)
          : null,
      };
    },
  };
}

/** Returns the IDs under which consumers use an asset: for a certificate also those of its key and its secret. */
function usedIdsOf({ type, vaultName, name, credential }: AssetRecord): string[] {
  if (credential) return [];
  const types: readonly AssetType[] = type === "certificate" ? ["certificate", "key", "secret"] : [type];
  return types.map((each) => `${vaultName}.${each}.${name}`.toLowerCase());
}
