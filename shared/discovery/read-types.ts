/**
 * Reads the secrets, keys and certificates of one vault and compares them with the inventory. Secrets are read from their list
 * alone. Keys and certificates also have details, which cost a request each. For scheduled full scans they are divided into
 * seven parts, the "sevenths" (inventory/details.ts): each scan reads the parts that are due.
 */
import { checkRenewals } from "../certificates/renewal-checks.ts";
import type { RenewalInformation } from "../certificates/renewal-information.ts";
import { ASSET_TYPES, type AssetRecord, type AssetType, contentHash } from "../inventory/asset.ts";
import { ALL_SEVENTHS, dueSevenths, NO_SEVENTHS, seventhOf } from "../inventory/details.ts";
import { countOwners } from "../inventory/owners.ts";
import { packPlanned } from "../inventory/planned-certificates.ts";
import type { OwnerCounts, ReadSevenths, VaultRecord } from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, StoredVault } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults, VaultClient } from "../platform/azure/key-vault.ts";
import type { Logger } from "../platform/runtime.ts";
import { addRenewals } from "./add-renewals.ts";
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
  /** Reads the renewal windows that certificate authorities suggest. */
  renewalInformation: RenewalInformation;
  log: Logger;
}

/** Selects the lists and details of a vault that are read. */
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
    /** Hash of the list's entries. */
    listing: string;
    /** Hash of the assets. */
    contents: string;
    /** Undefined if unchanged. */
    assets: AssetRecord[] | undefined;
    /** Number of assets. */
    found: number;
    /** When the details of each seventh were last read. Undefined if unchanged. */
    details?: ReadSevenths | undefined;
    /** Result of `readingHash`. Undefined if some details were not requested or could not be read. */
    answers: string | undefined;
    /** When the authorities of certificates were asked and what they answered, packed. Undefined if none was asked. */
    renewalChecks?: Uint8Array<ArrayBuffer> | undefined;
  };
  /** Undefined if unchanged. */
  owners?: OwnerCounts | undefined;
  /** The certificates with a renewal plan, packed. Undefined if unchanged. */
  packedPlans?: Uint8Array<ArrayBuffer> | undefined;
  changes: AssetChange[];
  failure?: CloudFailure | undefined;
  /** Failure to read rotation policies of keys. */
  policyFailure?: CloudFailure | undefined;
}

const NO_NAMES: ReadonlySet<string> = new Set();

/** Reads secrets, keys and certificates concurrently. Each type succeeds or fails on its own. */
export async function readTypes(
  vault: VaultRecord,
  storedVault: StoredVault,
  options: ReadTypesOptions,
  deps: ReadTypesDeps,
  now: string,
): Promise<TypeResult[]> {
  let openedClient: VaultClient | undefined;
  const client = (): VaultClient => {
    openedClient ??= deps.keyVaults.open(vault);
    return openedClient;
  };
  try {
    return await Promise.all(
      ASSET_TYPES.map((type) => readType(type, vault, storedVault, options, { ...deps, client }, now)),
    );
  } finally {
    await openedClient?.close();
  }
}

/**
 * Reads one list and the assets in it, and does as little as the hashes in the vault's row allow:
 * 1. Reads the list, and decides which details are due.
 * 2. If the list is unchanged, requests only the details that are due. If these are unchanged too, the result is `unchanged`.
 * 3. Otherwise requests the details of new, changed and due assets. If all responses are those of the last scan, the result is
 *    `unchanged` and nothing is parsed.
 * 4. Compares the assets with the stored ones, and adds the renewal plans of certificates.
 */
async function readType(
  type: AssetType,
  vault: VaultRecord,
  storedVault: StoredVault,
  options: ReadTypesOptions,
  deps: ReadTypesDeps & { client: () => VaultClient },
  now: string,
): Promise<TypeResult> {
  const { row } = storedVault;
  const pendingOfType = storedVault.pending.filter(([pendingType]) => pendingType === type);
  /** Lower-case names of assets of this type that a crashed worker may have written only in part. */
  const interruptedWrites = new Set(pendingOfType.map(([, name]) => name));
  let rows: Promise<Map<string, AssetRecord>> | undefined;
  const storedAssets = () => {
    rows ??= row ? deps.writer.assetsOf(vault.name, type) : Promise.resolve(new Map());
    return rows;
  };
  /**
   * Counts the owners of unchanged assets if the row has no counts, or counts of another owner tag. Returns undefined if the
   * stored counts are still right.
   */
  const recountOwners = async () =>
    !row || row.owners?.[type]?.tag === deps.ownerTag
      ? undefined
      : countOwners((await storedAssets()).values(), deps.ownerTag);
  /** Packs the plans of unchanged certificates if the row does not have them: an earlier version wrote it. */
  const repackPlanned = async () =>
    type !== "certificate" || !row || row.certificateRenewals
      ? undefined
      : packPlanned((await storedAssets()).values());
  try {
    const client = deps.client();
    const items = await readListing(client, type, options.signal);
    const listing = hashEntries(items);
    const detailsBefore = type === "secret" ? undefined : row?.details?.[type];
    const dueParts = dueDetails(type, storedVault, options, deps, now);
    const windows =
      type === "certificate" && row ? await checkRenewals(row, storedAssets, { ...deps, ...options, now }) : undefined;
    /** Certificates whose authority suggests another window than the stored one. They are read and written again. */
    const changedWindows = windows?.changed ?? NO_NAMES;
    const isDue = (name: string) =>
      changedWindows.has(name.toLowerCase()) ||
      dueParts.size === ALL_SEVENTHS.size ||
      (dueParts.size > 0 && dueParts.has(seventhOf(vault.name, name)));
    const contentsBefore = row?.contents[type] ?? "";
    // A scan that a user requested also finds stored assets that another program changed. Other scans rely on the hashes in the
    // vault's row, and don't read the assets' rows.
    const comparesRows = row !== undefined && options.mode !== "delta" && !options.scheduled;
    const areRowsUnchanged =
      interruptedWrites.size === 0 && (!comparesRows || hasContents(await storedAssets(), contentsBefore));
    const isSameListing = row?.listings[type] === listing && areRowsUnchanged;
    // If the time of the last read is unknown, the responses are not compared and the details are parsed.
    const answersBefore = type === "secret" || detailsBefore ? row?.answers?.[type] : undefined;
    /** Returns the result for unchanged assets. For most vaults of a scan it does not read the assets' rows. */
    const unchanged = async (details: ReadSevenths | undefined): Promise<TypeResult> => {
      const list = { listing, contents: contentsBefore, assets: undefined, found: items.length, details };
      const derived = { owners: await recountOwners(), packedPlans: await repackPlanned() };
      const renewalChecks = windows?.toStore();
      return { type, changes: [], list: { ...list, answers: answersBefore, renewalChecks }, ...derived };
    };
    let readOptions = { storedAssets, refresh: isDue, now, signal: options.signal };
    if (isSameListing && dueParts.size < ALL_SEVENTHS.size) {
      // The list is unchanged, so only the details that are due are requested.
      const dueItems = items.filter(({ name }) => isDue(name));
      const { assets } = (await readAssets(client, type, dueItems, vault, readOptions))!;
      const details = detailsBefore && refreshIfUnchanged(assets, detailsBefore, dueParts, now);
      if (changedWindows.size === 0 && (dueParts.size === 0 || details)) return await unchanged(details);
      // Details changed. Build all assets now, from the stored ones and those just read; request again only details that
      // failed.
      const readAssetEntries = assets.map((asset) => [asset.name.toLowerCase(), asset] as const);
      readOptions = {
        ...readOptions,
        storedAssets: async () => new Map([...(await storedAssets()), ...readAssetEntries]),
        refresh: () => false,
      };
    }
    const hashReading = (contents: string, answers: string) => readingHash(vault, { listing, contents, answers });
    const isSameAnswers = (answers: string) =>
      isSameListing && changedWindows.size === 0 && answersBefore === hashReading(contentsBefore, answers);
    const assetList = await readAssets(client, type, items, vault, { ...readOptions, isSameAnswers });
    if (!assetList) return await unchanged(detailsBefore && seventhsReadAt(detailsBefore, now));
    const contents = hashContents(assetList.assets);
    const details = type === "secret" ? undefined : seventhsOf(assetList.assets, detailsBefore, dueParts, now);
    const answers = assetList.answers === undefined ? undefined : hashReading(contents, assetList.answers);
    const renewalChecks = windows?.toStore();
    const found = assetList.assets.length;
    const list = { listing: assetList.listing, contents, found, details, answers, renewalChecks };
    const failures = { failure: assetList.failure, policyFailure: assetList.policyFailure };
    if (row?.contents[type] === contents && areRowsUnchanged && changedWindows.size === 0) {
      const derived = { owners: await recountOwners(), packedPlans: await repackPlanned() };
      return { type, changes: [], list: { ...list, assets: undefined }, ...derived, ...failures };
    }
    const { assets } = assetList;
    const changes = compareAssets(type, await storedAssets(), assets, interruptedWrites, changedWindows);
    const owners = countOwners(assets, deps.ownerTag);
    if (type !== "certificate") return { type, changes, list: { ...list, assets }, owners, ...failures };
    const failure = await addRenewals(client, changes, assets, {
      storedAssets: await storedAssets(),
      windowOf: windows?.windowOf,
      signal: options.signal,
    });
    const packedPlans = packPlanned(assets);
    if (!failure) return { type, changes, list: { ...list, assets }, owners, packedPlans, ...failures };
    // Without fingerprints, so that the next scan reads the versions again.
    const incomplete = { ...list, listing: "", contents: hashContents(assets), answers: undefined, assets };
    return { type, changes, list: incomplete, owners, packedPlans, ...failures, failure: failures.failure ?? failure };
  } catch (error) {
    // An error of storage is not a failure of the vault. It is thrown, so that the queue redelivers the message.
    if (!(error instanceof CloudFailure)) throw error;
    return {
      type,
      changes: interruptedWrites.size > 0 ? rewriteInterrupted(type, await storedAssets(), interruptedWrites) : [],
      failure: error,
    };
  }
}

/** Returns whether stored assets match their own hashes, and together the hash of their contents in the vault's row. */
function hasContents(storedAssets: Map<string, AssetRecord>, contents: string): boolean {
  const assets = [...storedAssets].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, asset]) => asset);
  return assets.every(isIntact) && hashContents(assets) === contents;
}

const isIntact = (asset: AssetRecord): boolean => contentHash(asset) === asset.content;

/** Returns the sevenths (parts of the assets) whose details must be read although their list entries have not changed. */
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
 * @param changedWindows - Keys of certificates whose renewal window changed, which is not part of their content.
 */
function compareAssets(
  type: AssetType,
  storedAssets: Map<string, AssetRecord>,
  assets: AssetRecord[],
  interruptedWrites: ReadonlySet<string>,
  changedWindows: ReadonlySet<string>,
): AssetChange[] {
  const changes: AssetChange[] = [];
  const unmatched = new Map(storedAssets);
  for (const asset of assets) {
    const key = asset.name.toLowerCase();
    const assetBefore = unmatched.get(key);
    unmatched.delete(key);
    if (assetBefore) asset.firstSeenAt = assetBefore.firstSeenAt;
    const isUnchanged =
      assetBefore?.content === asset.content && assetBefore.listing === asset.listing && isIntact(assetBefore);
    if (!isUnchanged || interruptedWrites.has(key) || changedWindows.has(key)) {
      changes.push({ type, name: asset.name, before: assetBefore, after: asset });
    }
  }
  for (const assetBefore of unmatched.values())
    changes.push({ type, name: assetBefore.name, before: assetBefore, after: undefined });
  return changes;
}

/**
 * Returns the changes for a list that could not be read: only rows that a crashed worker may have left incomplete are written
 * again, with the stored asset.
 */
function rewriteInterrupted(
  type: AssetType,
  storedAssets: Map<string, AssetRecord>,
  interruptedWrites: ReadonlySet<string>,
): AssetChange[] {
  return [...storedAssets]
    .filter(([key]) => interruptedWrites.has(key))
    .map(([, asset]) => ({ type, name: asset.name, before: asset, after: asset }));
}
