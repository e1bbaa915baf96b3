import { randomUUID } from "node:crypto";
import pMap from "p-map";
import { placesOf } from "../inventory/asset.ts";
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
  /** By `assetKey`. */
  assets: Map<string, AssetState>;
  /** False if the write of a very large vault did not finish. Only an evaluation of the whole vault fixes that. */
  whole: boolean;
}

/** The stored results of a vault when an evaluation starts, with its fence for writing others. */
export interface KnownState extends StoredState {
  fence: Fence;
  /** Exemptions in the vault's row. If the row is lost, they are rebuilt from the exemptions' own rows. */
  exemptions: VaultState["exemptions"];
  /** If the results are incomplete: the keys of all existing details and findings rows. */
  standing: string[];
}

/** How often the two requests of a reading are repeated if an evaluation was written in between. */
const READ_ATTEMPTS = 3;
const RANGES_AT_ONCE = 8;

/** Reads the stored results with two requests. */
export async function loadState(tables: Tables, vaultName: string): Promise<StoredState> {
  const { row, assets, whole } = await readState(tables, vaultName);
  return { row, assets, whole };
}

/**
 * Returns the state of a vault without results, like a vault that was never seen. Reads nothing: if it is wrong, the write
 * fails.
 */
export function noState(tables: Tables, vaultName: string): KnownState {
  return {
    row: undefined,
    assets: new Map(),
    whole: true,
    exemptions: [],
    standing: [],
    fence: openFence(tables, vaultName, undefined),
  };
}

/**
 * Reads the stored results to write new ones. The write fails if another worker wrote in between. Read before the vault's row
 * in the inventory is read or claimed, so that the state is older than the writes of any worker that claims the vault
 * afterwards.
 *
 * Inconsistent rows are read again under the fence, key by key. `repair` reads everything that way.
 */
export async function openState(
  tables: Tables,
  vaultName: string,
  { repair = false }: { repair?: boolean } = {},
): Promise<KnownState> {
  const found = await readState(tables, vaultName);
  const fence = openFence(tables, vaultName, found.fence?.etag);
  if (found.whole && !repair) {
    const { row, assets } = found;
    return { row, assets, whole: true, exemptions: row?.exemptions ?? [], standing: [], fence };
  }
  await fence.take();
  const { row, assets, detailsKeys } = await readOnce(tables, vaultName);
  const standing = [...detailsKeys, ...(await findingsKeys(tables, vaultName))];
  const exemptions = row?.exemptions ?? (await exemptionsIn(tables, vaultName));
  return { row, assets, whole: false, exemptions, standing, fence };
}

/**
 * Returns the exemptions of single assets in a vault from their own rows, as if none of the pairs failed. One request per
 * 1,000.
 */
async function exemptionsIn(tables: Tables, vaultName: string): Promise<VaultState["exemptions"]> {
  const exemptions: VaultState["exemptions"] = [];
  const range = { ...assetExemptionsRange, onCorrupt: () => {} };
  for await (const rows of tables.pages(Exemptions, range)) {
    for (const { id, checkId, until, scopeId = "" } of rows) {
      const type = checkOfId.get(checkId)?.resourceType;
      const asset = placesOf(scopeId).find((place) => place.type === type);
      if (asset?.vaultName.toLowerCase() !== vaultName.toLowerCase()) continue;
      exemptions.push({ id, checkId, until, asset: assetKey(asset.type, asset.name), failing: false });
    }
  }
  return exemptions;
}

const openFence = (tables: Tables, vaultName: string, etag: string | undefined): Fence =>
  tables.fence(ResultFences, STATE, fenceKey(vaultName), { owner: randomUUID(), etag });

interface ReadState extends StoredState {
  fence: { etag: string; open: boolean } | undefined;
  detailsKeys: string[];
}

async function readState(tables: Tables, vaultName: string): Promise<ReadState> {
  for (let attempt = 1; ; attempt++) {
    const state = await readOnce(tables, vaultName);
    if (state.whole || state.fence?.open || attempt === READ_ATTEMPTS) return state;
  }
}

/**
 * Reads the fence and the details first, then the vault's own row. So the row is never older than the fence, and if another
 * evaluation was written in between, the fence is outdated.
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
        const chunk = readable(packed, facts);
        detailsKeys.push(rowKey);
        hashes.push(chunk.hash);
        for (const asset of chunk.assets) assets.set(assetKey(asset.type, asset.name), asset);
      }
    }
  }
  const row = await tables.get(VaultStates, STATE, vaultStateKey(vaultName));
  const whole = fence?.open !== true && hashes.join() === (row?.details ?? []).join();
  return { row, assets, whole, fence, detailsKeys };
}

/** A row that can't be read counts as inconsistent and is rewritten with the others. */
function readable(packed: Uint8Array | undefined, facts: Uint8Array | undefined): ReturnType<typeof unpackDetails> {
  return undefinedIfNotPacked(() => unpackDetails(packed ?? new Uint8Array(), facts)) ?? { hash: "", assets: [] };
}

async function findingsKeys(tables: Tables, vaultName: string): Promise<string[]> {
  const keysOf = async (prefix: string): Promise<string[]> => {
    const keys: string[] = [];
    const range = { partitionKey: STATE, from: prefix, before: keyEnd(prefix), select: [] };
    for await (const rows of tables.pages(Findings, range)) keys.push(...rows.map(({ rowKey }) => rowKey));
    return keys;
  };
  const prefixes = ASSET_CHECKS.map((check) => findingsPrefix(check, vaultName));
  return (await pMap(prefixes, keysOf, { concurrency: RANGES_AT_ONCE })).flat();
}

/** Returns whether the pair of check and asset (`<type>.<name>`) fails. */
export const isFailing = (assets: ReadonlyMap<string, AssetState>, asset: string, checkId: string): boolean =>
  assets.get(asset)?.failed.some(({ code }) => checkOfCode.get(code)?.id === checkId) ?? false;

/** Returns the keys of rows with this number of findings of one check and vault. */
export const findingRows = (failed: number): number => Math.ceil(failed / FINDINGS_PER_ROW);
