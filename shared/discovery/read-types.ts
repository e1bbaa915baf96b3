import { ASSET_TYPES, type AssetRecord, type AssetType } from "../inventory/asset.ts";
import { ALL_SEVENTHS, dueSevenths, NO_SEVENTHS, seventhOf } from "../inventory/details.ts";
import { countOwners } from "../inventory/owners.ts";
import type { OwnerCounts, ReadSevenths, VaultRecord } from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, StoredVault } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults, VaultClient } from "../platform/azure/key-vault.ts";
import { readAssets } from "./read-assets.ts";
import {
  hashContents,
  hashEntries,
  readingHash,
  readListing,
  refreshIfUnchanged,
  seventhsOf,
  seventhsReadAt,
} from "./read-list.ts";
import type { ScanMode } from "./scan.ts";

export interface ReadTypesDeps {
  writer: Pick<InventoryWriter, "assetsOf">;
  keyVaults: KeyVaults;
  /** Name of the tag that contains an asset's owner. */
  ownerTag: string;
  /** Maximum age in days of details that can change without a change of their list entry. */
  detailRefreshDays: number;
}

/** Selects what is read of a vault. */
export interface ReadTypesOptions {
  mode: ScanMode;
  /**
   * Whether a schedule started the scan. A scheduled full scan reads the details of unchanged assets only when they are due.
   */
  scheduled?: boolean;
  signal: AbortSignal;
}

/** Result of a scan for the assets of one type. */
export interface TypeResult {
  type: AssetType;
  /** Undefined if the list could not be read. The stored assets then stay. */
  list?: {
    listing: string;
    contents: string;
    assets: AssetRecord[] | undefined;
    found: number;
    /** Undefined if unchanged. */
    details?: ReadSevenths | undefined;
    /** Result of `readingHash`. Undefined if some details were not requested or could not be read. */
    answers: string | undefined;
  };
  /** Undefined if unchanged. */
  owners?: OwnerCounts | undefined;
  changes: AssetChange[];
  failure?: CloudFailure | undefined;
  /** Failure to read rotation policies of keys. */
  policyFailure?: CloudFailure | undefined;
}

/** Reads secrets, keys and certificates concurrently. Each type succeeds or fails on its own. */
export async function readTypes(
  vault: VaultRecord,
  readForUpdate: StoredVault,
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
      ASSET_TYPES.map((type) => readType(type, vault, readForUpdate, options, { ...deps, client }, now)),
    );
  } finally {
    await opened?.close();
  }
}

async function readType(
  type: AssetType,
  vault: VaultRecord,
  readForUpdate: StoredVault,
  options: ReadTypesOptions,
  deps: ReadTypesDeps & { client: () => VaultClient },
  now: string,
): Promise<TypeResult> {
  const { row } = readForUpdate;
  const interruptedWrites = new Map(
    readForUpdate.pending.filter(([of]) => of === type).map(([, name]) => [name, true]),
  );
  let rows: Promise<Map<string, AssetRecord>> | undefined;
  const storedAssets = () => {
    rows ??= row ? deps.writer.assetsOf(vault.name, type) : Promise.resolve(new Map());
    return rows;
  };
  /** Counts the owners of unchanged assets if the row has no counts, or counts of another owner tag. */
  const recountOwners = async () =>
    !row || row.owners?.[type]?.tag === deps.ownerTag
      ? undefined
      : countOwners((await storedAssets()).values(), deps.ownerTag);
  try {
    const client = deps.client();
    const items = await readListing(client, type, options.signal);
    const listing = hashEntries(items);
    const detailsBefore = type === "secret" ? undefined : row?.details?.[type];
    const due = dueDetails(type, readForUpdate, options, deps, now);
    const isDue = (name: string) =>
      due.size === ALL_SEVENTHS.size || (due.size > 0 && due.has(seventhOf(vault.name, name)));
    const isSameListing = row?.listings[type] === listing && interruptedWrites.size === 0;
    const contentsBefore = row?.contents[type] ?? "";
    // Without a time of the last reading, the details are read.
    const answersBefore = type === "secret" || detailsBefore ? row?.answers?.[type] : undefined;
    /** Returns the result for unchanged assets. For most vaults of a scan it does not read the assets' rows. */
    const unchanged = async (details: ReadSevenths | undefined): Promise<TypeResult> => {
      const list = { listing, contents: contentsBefore, assets: undefined, found: items.length, details };
      return { type, changes: [], list: { ...list, answers: answersBefore }, owners: await recountOwners() };
    };
    let reading = { storedAssets, refresh: isDue, now, signal: options.signal };
    if (isSameListing && due.size < ALL_SEVENTHS.size) {
      // Assets that are not due are requested only if their list entry changed.
      const dueItems = items.filter(({ name }) => isDue(name));
      const { assets } = (await readAssets(client, type, dueItems, vault, reading))!;
      const details = detailsBefore && refreshIfUnchanged(assets, detailsBefore, due, now);
      if (due.size === 0 || details) return await unchanged(details);
      // Assets that were just read are requested again only if they could not be read.
      const asRead = assets.map((asset) => [asset.name.toLowerCase(), asset] as const);
      reading = {
        ...reading,
        storedAssets: async () => new Map([...(await storedAssets()), ...asRead]),
        refresh: () => false,
      };
    }
    const hashReading = (contents: string, answers: string) => readingHash(vault, { listing, contents, answers });
    const isSameAnswers = (answers: string) => isSameListing && answersBefore === hashReading(contentsBefore, answers);
    const read = await readAssets(client, type, items, vault, { ...reading, isSameAnswers });
    if (!read) return await unchanged(detailsBefore && seventhsReadAt(detailsBefore, now));
    const contents = hashContents(read.assets);
    const details = type === "secret" ? undefined : seventhsOf(read.assets, detailsBefore, due, now);
    const answers = read.answers === undefined ? undefined : hashReading(contents, read.answers);
    const list = { listing: read.listing, contents, found: read.assets.length, details, answers };
    const failures = { failure: read.failure, policyFailure: read.policyFailure };
    if (row?.contents[type] === contents && interruptedWrites.size === 0) {
      return { type, changes: [], list: { ...list, assets: undefined }, owners: await recountOwners(), ...failures };
    }
    return {
      type,
      changes: diff(type, await storedAssets(), read.assets, interruptedWrites),
      list: { ...list, assets: read.assets },
      owners: countOwners(read.assets, deps.ownerTag),
      ...failures,
    };
  } catch (error) {
    // A failure of the storage is not a failure of the vault: the error escapes and the queue redelivers the message.
    if (!(error instanceof CloudFailure)) throw error;
    return {
      type,
      changes: interruptedWrites.size > 0 ? rewriteInterrupted(type, await storedAssets(), interruptedWrites) : [],
      failure: error,
    };
  }
}

/** Returns the sevenths of which all details are read, even if their list entries have not changed. */
function dueDetails(
  type: AssetType,
  { row, interrupted }: StoredVault,
  { mode, scheduled }: ReadTypesOptions,
  { detailRefreshDays }: ReadTypesDeps,
  now: string,
): ReadonlySet<number> {
  if (!row) return ALL_SEVENTHS;
  if (mode === "delta") return NO_SEVENTHS;
  if (!scheduled || interrupted) return ALL_SEVENTHS;
  return type === "secret" ? NO_SEVENTHS : dueSevenths(row.details?.[type], Date.parse(now), detailRefreshDays);
}

/**
 * Returns the changes from the stored assets to the assets that were read.
 *
 * @param interruptedWrites - Keys of assets whose rows may be incomplete, because a worker crashed. They are always written.
 */
function diff(
  type: AssetType,
  storedAssets: Map<string, AssetRecord>,
  assets: AssetRecord[],
  interruptedWrites: Map<string, boolean>,
): AssetChange[] {
  const changes: AssetChange[] = [];
  const left = new Map(storedAssets);
  for (const asset of assets) {
    const key = asset.name.toLowerCase();
    const before = left.get(key);
    left.delete(key);
    if (before) asset.firstSeenAt = before.firstSeenAt;
    if (before?.content !== asset.content || before.listing !== asset.listing || interruptedWrites.has(key)) {
      changes.push({ type, name: asset.name, before, after: asset });
    }
  }
  for (const before of left.values()) changes.push({ type, name: before.name, before, after: undefined });
  return changes;
}

/**
 * Returns the changes for a list that could not be read: only rows that a crashed worker may have left incomplete are written
 * again, with the stored asset.
 */
function rewriteInterrupted(
  type: AssetType,
  storedAssets: Map<string, AssetRecord>,
  interruptedWrites: Map<string, boolean>,
): AssetChange[] {
  return [...storedAssets]
    .filter(([key]) => interruptedWrites.has(key))
    .map(([, asset]) => ({ type, name: asset.name, before: asset, after: asset }));
}
