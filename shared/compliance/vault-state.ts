/**
 * Reads the stored results of one vault: its own row, its details (all assets with their results), and its fence. The fence is
 * a row whose ETag changes with each write of the results, so that a slower concurrent writer fails.
 */
import { randomUUID } from "node:crypto";
import pMap from "p-map";
import { locationsOf } from "../inventory/asset.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { undefinedIfNotPacked } from "../platform/storage/packed-members.ts";
import type { Fence, Tables } from "../platform/storage/tables.ts";
import { ASSET_CHECKS, checkOfCode, checkOfId } from "./checks/all.ts";
import {
  assetExemptionsRange,
  DetailsRangeRows,
  detailsPrefix,
  Exemptions,
  Findings,
  fenceKey,
  findingsPrefix,
  ResultFences,
  STATE,
  type VaultState,
  VaultStates,
  vaultStateKey,
} from "./compliance-rows.ts";
import { type AssetState, assetKey, FINDINGS_PER_ROW, unpackDetails } from "./packed-results.ts";

/** The stored results of a vault. */
export interface StoredState {
  row: Row<VaultState> | undefined;
  /** Results of the vault's assets by `assetKey`. */
  assets: Map<string, AssetState>;
  /** False if the write of a very large vault did not finish. Only an evaluation of the whole vault fixes that. */
  isComplete: boolean;
}

/** The stored results of a vault at the start of an evaluation, with the fence that guards the write of new results. */
export interface OpenedState extends StoredState {
  fence: Fence;
  /**
   * Exemptions of the vault's assets, from the vault's row. If that row is lost, they are read from the exemptions' own rows.
   */
  exemptions: VaultState["exemptions"];
  /** Keys of all existing details and findings rows. Only read if the results are incomplete or repaired; otherwise empty. */
  existingKeys: string[];
}

/** Maximum number of attempts to read consistent results, if an evaluation is written between the two requests. */
const READ_ATTEMPTS = 3;
const MAX_CONCURRENT_RANGES = 8;

/** Reads the stored results, usually with two requests. */
export async function loadState(tables: Tables, vaultName: string): Promise<StoredState> {
  const { row, assets, isComplete } = await readState(tables, vaultName);
  return { row, assets, isComplete };
}

/**
 * Returns the state of a vault that has no stored results, without reading. If the vault has results after all, the write of
 * new results fails.
 */
export function emptyState(tables: Tables, vaultName: string): OpenedState {
  return {
    row: undefined,
    assets: new Map(),
    isComplete: true,
    exemptions: [],
    existingKeys: [],
    fence: openFence(tables, vaultName, undefined),
  };
}

/**
 * Reads the stored results before new ones are written. The write fails if another worker wrote results in between. Call this
 * before the vault's row in the inventory is read or claimed: then the write also fails if a worker claims the vault later and
 * writes results.
 *
 * If the rows are inconsistent, or with `repair`, this advances the fence first, so that concurrent writers fail. Then it reads
 * all rows and the keys of rows to remove.
 */
export async function openState(
  tables: Tables,
  vaultName: string,
  { repair = false }: { repair?: boolean } = {},
): Promise<OpenedState> {
  const stored = await readState(tables, vaultName);
  const fence = openFence(tables, vaultName, stored.fence?.etag);
  if (stored.isComplete && !repair) {
    const { row, assets } = stored;
    return { row, assets, isComplete: true, exemptions: row?.exemptions ?? [], existingKeys: [], fence };
  }
  await fence.take();
  const { row, assets, detailsKeys } = await readOnce(tables, vaultName);
  const existingKeys = [...detailsKeys, ...(await readFindingsKeys(tables, vaultName))];
  const exemptions = row?.exemptions ?? (await readAssetExemptions(tables, vaultName));
  return { row, assets, isComplete: false, exemptions, existingKeys, fence };
}

/**
 * Returns the exemptions of single assets in a vault from their own rows, with `failing` false. One request per 1,000
 * exemptions.
 */
async function readAssetExemptions(tables: Tables, vaultName: string): Promise<VaultState["exemptions"]> {
  const exemptions: VaultState["exemptions"] = [];
  const range = { ...assetExemptionsRange, onCorrupt: () => {} };
  for await (const rows of tables.pages(Exemptions, range)) {
    for (const { id, checkId, until, scopeId = "" } of rows) {
      const type = checkOfId.get(checkId)?.resourceType;
      const asset = locationsOf(scopeId).find((location) => location.type === type);
      if (asset?.vaultName.toLowerCase() !== vaultName.toLowerCase()) continue;
      exemptions.push({ id, checkId, until, asset: assetKey(asset.type, asset.name), failing: false });
    }
  }
  return exemptions;
}

const openFence = (tables: Tables, vaultName: string, etag: string | undefined): Fence =>
  tables.fence(ResultFences, STATE, fenceKey(vaultName), { owner: randomUUID(), etag });

interface ReadState extends StoredState {
  /** `open`: true while a write that needs several transactions has not finished. */
  fence: { etag: string; open: boolean } | undefined;
  detailsKeys: string[];
}

async function readState(tables: Tables, vaultName: string): Promise<ReadState> {
  for (let attempt = 1; ; attempt++) {
    const state = await readOnce(tables, vaultName);
    if (state.isComplete || state.fence?.open || attempt === READ_ATTEMPTS) return state;
  }
}

/**
 * Reads the fence and the details first, then the vault's own row. So if another evaluation was written between the two
 * requests, the fence that was read is outdated, and a write with it fails.
 */
async function readOnce(tables: Tables, vaultName: string): Promise<ReadState> {
  const assets = new Map<string, AssetState>();
  const hashes: string[] = [];
  const detailsKeys: string[] = [];
  let fence: ReadState["fence"];
  const prefix = detailsPrefix(vaultName);
  const range = { partitionKey: STATE, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(DetailsRangeRows, range)) {
    for (const { rowKey, etag, open, assets: packed, facts } of rows) {
      if (rowKey === fenceKey(vaultName)) fence = { etag, open: open === true };
      else {
        const chunk = unpackDetailsOrEmpty(packed, facts);
        detailsKeys.push(rowKey);
        hashes.push(chunk.hash);
        for (const asset of chunk.assets) assets.set(assetKey(asset.type, asset.name), asset);
      }
    }
  }
  const row = await tables.get(VaultStates, STATE, vaultStateKey(vaultName));
  const isComplete = fence?.open !== true && hashes.join() === (row?.details ?? []).join();
  return { row, assets, isComplete, fence, detailsKeys };
}

/** Returns the content of a details row. Damaged content gets an empty hash, which makes the results inconsistent. */
function unpackDetailsOrEmpty(
  packed: Uint8Array | undefined,
  facts: Uint8Array | undefined,
): ReturnType<typeof unpackDetails> {
  return undefinedIfNotPacked(() => unpackDetails(packed ?? new Uint8Array(), facts)) ?? { hash: "", assets: [] };
}

async function readFindingsKeys(tables: Tables, vaultName: string): Promise<string[]> {
  const keysOf = async (prefix: string): Promise<string[]> => {
    const keys: string[] = [];
    const range = { partitionKey: STATE, from: prefix, before: keyEnd(prefix), select: [] };
    for await (const rows of tables.pages(Findings, range)) keys.push(...rows.map(({ rowKey }) => rowKey));
    return keys;
  };
  const prefixes = ASSET_CHECKS.map((check) => findingsPrefix(check, vaultName));
  return (await pMap(prefixes, keysOf, { concurrency: MAX_CONCURRENT_RANGES })).flat();
}

/** Returns whether the asset (`<type>.<name>`) fails the check. */
export const isAssetFailing = (assets: ReadonlyMap<string, AssetState>, asset: string, checkId: string): boolean =>
  assets.get(asset)?.failed.some(({ code }) => checkOfCode.get(code)?.id === checkId) ?? false;

/** Returns how many rows the findings of one check in one vault need. */
export const countFindingRows = (failed: number): number => Math.ceil(failed / FINDINGS_PER_ROW);
