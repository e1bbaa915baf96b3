import { ASSET_TYPES, type AssetRecord, type AssetType } from "../inventory/asset.ts";
import { ALL_SEVENTHS, dueSevenths, NO_SEVENTHS, seventhOf } from "../inventory/details.ts";
import { countOwners } from "../inventory/owners.ts";
import type { OwnerCounts, ReadSevenths, VaultRecord } from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, KnownVault } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults, VaultClient } from "../platform/azure/key-vault.ts";
import { readAssets } from "./read-assets.ts";
import {
  contentsOf,
  listingsOf,
  readListing,
  sameReading,
  seventhsAsBefore,
  seventhsOf,
  seventhsReadAt,
} from "./read-list.ts";
import type { ScanMode } from "./scan.ts";

export interface ReadTypesDeps {
  writer: Pick<InventoryWriter, "assetsOf">;
  keyVaults: KeyVaults;
  /** The tag that names an asset's owner. */
  ownerTag: string;
  /** How many days old details may become that change without a sign. */
  detailRefreshDays: number;
}

/** How much of a vault is read. */
export interface ReadTypesOptions {
  mode: ScanMode;
  /** By a scan that nobody asked for: a full one reads of what did not change only the details that are due. */
  scheduled?: boolean;
  signal: AbortSignal;
}

/** What one kind of a vault's assets came to in this scan. */
export interface TypeResult {
  type: AssetType;
  /** Undefined when the list could not be read: what was known of it stays. */
  list?: {
    listing: string;
    contents: string;
    assets: AssetRecord[] | undefined;
    found: number;
    /** Undefined where they are as they were. */
    details?: ReadSevenths | undefined;
    /** `sameReading` of what was answered; undefined where not all was asked for, or could be read. */
    answers: string | undefined;
  };
  /** Undefined where they are as they were. */
  owners?: OwnerCounts | undefined;
  changes: AssetChange[];
  failure?: CloudFailure | undefined;
  /** Of keys: rotation policies that could not be read. */
  policyFailure?: CloudFailure | undefined;
}

/** Reads the three kinds side by side; each succeeds or fails by itself. */
export async function readTypes(
  vault: VaultRecord,
  known: KnownVault,
  options: ReadTypesOptions,
  deps: ReadTypesDeps,
  now: string,
): Promise<TypeResult[]> {
  let opened: VaultClient | undefined;
  const client = (): VaultClient => {
    opened ??= deps.keyVaults.open(vault);
    return opened;
  };
  try {
    return await Promise.all(
      ASSET_TYPES.map((type) => readType(type, vault, known, options, { ...deps, client }, now)),
    );
  } finally {
    await opened?.close();
  }
}

async function readType(
  type: AssetType,
  vault: VaultRecord,
  known: KnownVault,
  options: ReadTypesOptions,
  deps: ReadTypesDeps & { client: () => VaultClient },
  now: string,
): Promise<TypeResult> {
  const { row } = known;
  const force = new Map(known.pending.filter(([of]) => of === type).map(([, name]) => [name, true]));
  let rows: Promise<Map<string, AssetRecord>> | undefined;
  const standing = () => {
    rows ??= row ? deps.writer.assetsOf(vault.name, type) : Promise.resolve(new Map());
    return rows;
  };
  /** Of assets that did not change: a version before counted no owners, or another tag named them. */
  const ownersAnew = async () =>
    !row || row.owners?.[type]?.tag === deps.ownerTag
      ? undefined
      : countOwners((await standing()).values(), deps.ownerTag);
  try {
    const client = deps.client();
    const items = await readListing(client, type, options.signal);
    const listing = listingsOf(items);
    const before = type === "secret" ? undefined : row?.details?.[type];
    const due = dueDetails(type, known, options, deps, now);
    const isDue = (name: string) =>
      due.size === ALL_SEVENTHS.size || (due.size > 0 && due.has(seventhOf(vault.name, name)));
    const isListedAsBefore = row?.listings[type] === listing && force.size === 0;
    const contentsBefore = row?.contents[type] ?? "";
    // Where nothing says when the details were read, they are read.
    const answersBefore = type === "secret" || before ? row?.answers?.[type] : undefined;
    /** Nothing changed: of most vaults of a scan not even the assets' rows are read. */
    const unchanged = async (details: ReadSevenths | undefined): Promise<TypeResult> => {
      const list = { listing, contents: contentsBefore, assets: undefined, found: items.length, details };
      return { type, changes: [], list: { ...list, answers: answersBefore }, owners: await ownersAnew() };
    };
    let reading = { known: standing, refresh: isDue, now, signal: options.signal };
    if (isListedAsBefore && due.size < ALL_SEVENTHS.size) {
      // Of what is not due nothing is asked for that no list tells of.
      const dueItems = items.filter(({ name }) => isDue(name));
      const { assets } = (await readAssets(client, type, dueItems, vault, reading))!;
      const details = before && seventhsAsBefore(assets, before, due, now);
      if (due.size === 0 || details) return await unchanged(details);
      // What was read just now is not read again, but for what could not be.
      const asRead = assets.map((asset) => [asset.name.toLowerCase(), asset] as const);
      reading = { ...reading, known: async () => new Map([...(await standing()), ...asRead]), refresh: () => false };
    }
    const hashOf = (contents: string, answers: string) => sameReading(vault, { listing, contents, answers });
    const isAsBefore = (answers: string) => isListedAsBefore && answersBefore === hashOf(contentsBefore, answers);
    const read = await readAssets(client, type, items, vault, { ...reading, isAsBefore });
    if (!read) return await unchanged(before && seventhsReadAt(before, now));
    const contents = contentsOf(read.assets);
    const details = type === "secret" ? undefined : seventhsOf(read.assets, before, due, now);
    const answers = read.answers === undefined ? undefined : hashOf(contents, read.answers);
    const list = { listing: read.listing, contents, found: read.assets.length, details, answers };
    const failures = { failure: read.failure, policyFailure: read.policyFailure };
    if (row?.contents[type] === contents && force.size === 0) {
      return { type, changes: [], list: { ...list, assets: undefined }, owners: await ownersAnew(), ...failures };
    }
    return {
      type,
      changes: diff(type, await standing(), read.assets, force),
      list: { ...list, assets: read.assets },
      owners: countOwners(read.assets, deps.ownerTag),
      ...failures,
    };
  } catch (error) {
    // Storage that fails is no failure of the vault: the message comes again.
    if (!(error instanceof CloudFailure)) throw error;
    return { type, changes: force.size > 0 ? stale(type, await standing(), force) : [], failure: error };
  }
}

/** The sevenths of which all details are read, whatever the list tells of them. */
function dueDetails(
  type: AssetType,
  { row, interrupted }: KnownVault,
  { mode, scheduled }: ReadTypesOptions,
  { detailRefreshDays }: ReadTypesDeps,
  now: string,
): ReadonlySet<number> {
  if (!row) return ALL_SEVENTHS;
  if (mode === "delta") return NO_SEVENTHS;
  if (!scheduled || interrupted) return ALL_SEVENTHS;
  return type === "secret" ? NO_SEVENTHS : dueSevenths(row.details?.[type], Date.parse(now), detailRefreshDays);
}

/** What differs between what stands and what was read; `force` names assets whose rows may be half written. */
function diff(
  type: AssetType,
  standing: Map<string, AssetRecord>,
  assets: AssetRecord[],
  force: Map<string, boolean>,
): AssetChange[] {
  const changes: AssetChange[] = [];
  const left = new Map(standing);
  for (const asset of assets) {
    const key = asset.name.toLowerCase();
    const before = left.get(key);
    left.delete(key);
    if (before) asset.firstSeenAt = before.firstSeenAt;
    if (before?.content !== asset.content || before.listing !== asset.listing || force.has(key)) {
      changes.push({ type, name: asset.name, before, after: asset });
    }
  }
  for (const before of left.values()) changes.push({ type, name: before.name, before, after: undefined });
  return changes;
}

/** Of a list that could not be read, only what a dead worker half wrote is put back to what stands. */
function stale(type: AssetType, standing: Map<string, AssetRecord>, force: Map<string, boolean>): AssetChange[] {
  return [...standing]
    .filter(([key]) => force.has(key))
    .map(([, asset]) => ({ type, name: asset.name, before: asset, after: asset }));
}
