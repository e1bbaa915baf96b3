import pMap from "p-map";
import { CloudFailure } from "../azure/failure.ts";
import type { ListedAsset, VaultClient } from "../azure/key-vault.ts";
import { type AssetRecord, type AssetType, contentOf, fingerprint } from "../inventory/asset.ts";
import type { VaultFailure, VaultRecord } from "../inventory/vault.ts";

/** Keys and certificates whose details are read side by side, per vault. */
const DETAILS_AT_ONCE = 8;

/** One kind of a vault's assets as the cloud has them now. */
export interface ReadList {
  assets: AssetRecord[];
  /** Hash over all list entries: equal means nothing was listed differently. Empty when not all details could be read. */
  listing: string;
  /** Details that could not be read; the list itself is whole. */
  failure?: CloudFailure;
}

/** The list entries of one kind, read to the last page, without those that only back a certificate. */
export async function readListing(client: VaultClient, type: AssetType, signal: AbortSignal): Promise<ListedAsset[]> {
  const pages =
    type === "secret" ? client.secrets(signal) : type === "key" ? client.keys(signal) : client.certificates(signal);
  const items: ListedAsset[] = [];
  for await (const page of pages) for (const item of page) if (!isManaged(item)) items.push(item);
  return items.sort((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1));
}

const isManaged = (item: ListedAsset): boolean => "managed" in item && item.managed === true;

const listingOf = (item: ListedAsset): string => fingerprint({ ...item, tags: Object.entries(item.tags ?? {}).sort() });

export const listingsOf = (items: ListedAsset[]): string =>
  fingerprint(items.map((item) => [item.name, listingOf(item)]));
export const contentsOf = (assets: AssetRecord[]): string =>
  fingerprint(assets.map((asset) => [asset.name, asset.content]));

/**
 * Turns list entries into assets. Details of keys and certificates are read where `known` has no asset with the same
 * list entry, or of all when `refresh` is set (then `known` is only asked where details can't be read). A refusal to
 * read details leaves the list's own facts standing, without their hash, so that the next scan of any mode tries again.
 */
export async function readAssets(
  client: VaultClient,
  type: AssetType,
  items: ListedAsset[],
  vault: VaultRecord,
  options: { known: () => Promise<Map<string, AssetRecord>>; refresh: boolean; now: string; signal: AbortSignal },
): Promise<ReadList> {
  const { known, refresh, now, signal } = options;
  let failure: CloudFailure | undefined;
  let whole = true;
  const read = async (item: ListedAsset): Promise<AssetRecord | undefined> => {
    const listing = listingOf(item);
    const before = refresh ? undefined : (await known()).get(item.name.toLowerCase());
    if (before?.listing === listing) {
      return before;
    }
    const base = {
      type,
      name: item.name,
      vaultName: vault.name,
      vaultId: vault.id,
      subscriptionId: vault.subscriptionId,
      enabled: item.enabled,
      createdOn: item.createdOn,
      updatedOn: item.updatedOn,
      notBefore: item.notBefore,
      expiresOn: item.expiresOn,
      ...("contentType" in item ? { contentType: item.contentType } : {}),
      ...(item.tags && Object.keys(item.tags).length > 0 ? { tags: item.tags } : {}),
      listing,
    };
    let details: Partial<AssetRecord> | undefined;
    let refused = failure?.code === "accessDenied";
    try {
      if (!refused) details = await readDetails(client, type, item.name, signal);
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code === "timedOut") throw error;
      if (error.code === "notFound") {
        whole = false;
        return undefined;
      }
      // Access to one disabled item says nothing of the others; any other refusal is told once, as the list's failure.
      refused = item.enabled || error.code !== "accessDenied";
      if (refused) failure ??= error;
    }
    details ??= kept((await known()).get(item.name.toLowerCase()));
    if (refused) {
      whole = false;
      base.listing = "";
    }
    const asset = { ...base, ...details };
    return { ...asset, content: contentOf(asset), firstSeenAt: before?.firstSeenAt ?? now };
  };
  const assets = await pMap(items, read, { concurrency: type === "secret" ? 1 : DETAILS_AT_ONCE });
  return {
    assets: assets.filter((asset) => asset !== undefined),
    listing: whole ? listingsOf(items) : "",
    ...(failure ? { failure } : {}),
  };
}

/** The details an asset had before, where they can't be read now. */
function kept(before: AssetRecord | undefined): Partial<AssetRecord> {
  if (!before) return {};
  const { version, keyType, keySize, keyCurve, rotationPolicy, subject, issuer } = before;
  const { subjectAlternativeNames, thumbprint, validityMonths, autoRenew } = before;
  return {
    ...{ version, keyType, keySize, keyCurve, rotationPolicy, subject, issuer },
    ...{ subjectAlternativeNames, thumbprint, validityMonths, autoRenew },
  };
}

async function readDetails(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Partial<AssetRecord>> {
  if (type === "secret") return {};
  if (type === "key") {
    const [key, rotationPolicy] = await Promise.all([client.key(name, signal), client.rotationPolicy(name, signal)]);
    return {
      version: key.version,
      keyType: key.keyType,
      keySize: key.keySize,
      keyCurve: key.keyCurve,
      ...(rotationPolicy ? { rotationPolicy } : {}),
    };
  }
  const certificate = await client.certificate(name, signal);
  return {
    version: certificate.version,
    subject: certificate.subject,
    issuer: certificate.issuer,
    subjectAlternativeNames: certificate.subjectAlternativeNames,
    thumbprint: certificate.thumbprint,
    validityMonths: certificate.validityMonths,
    keyType: certificate.keyType,
    keySize: certificate.keySize,
    keyCurve: certificate.keyCurve,
    autoRenew: certificate.autoRenew,
  };
}

export const failureRecord = (failure: CloudFailure, at: string): VaultFailure => ({
  code: failure.code,
  message: failure.message,
  remedy: failure.remedy,
  at,
});
