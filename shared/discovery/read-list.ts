import { type AssetRecord, type AssetType, fingerprint, isStale } from "../inventory/asset.ts";
import { ALL_SEVENTHS, seventhOf } from "../inventory/details.ts";
import type { ReadSevenths, VaultFailure, VaultRecord } from "../inventory/vault.ts";
import type { CloudFailure } from "../platform/azure/failure.ts";
import type { ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { SECOND_MS } from "../platform/time.ts";

/** Part of the hash of a reading. Must be increased whenever the same responses are turned into different assets. */
const READING_VERSION = 1;

/**
 * Reads the list of one asset type to its last page. Omits objects that belong to a certificate, and repeated names.
 * @throws {CloudFailure} if a page can't be read, or `signal` is aborted.
 */
export async function readListing(client: VaultClient, type: AssetType, signal: AbortSignal): Promise<ListedAsset[]> {
  const pages: AsyncGenerator<ListedAsset[]> =
    type === "secret" ? client.secrets(signal) : type === "key" ? client.keys(signal) : client.certificates(signal);
  const entries = new Map<string, ListedAsset>();
  for await (const page of pages) {
    for (const entry of page) if (!entry.managed) entries.set(entry.name.toLowerCase(), entry);
  }
  return [...entries].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, entry]) => entry);
}

/** Hashes of list entries. The hash of a list and the hash in each asset are made of them. */
const listings = new WeakMap<ListedAsset, string>();

export function hashEntry(entry: ListedAsset): string {
  let listing = listings.get(entry);
  if (listing === undefined) {
    listing = fingerprint({ ...entry, tags: Object.entries(entry.tags ?? {}).sort() });
    listings.set(entry, listing);
  }
  return listing;
}

/** Returns a hash over list entries. */
export const hashEntries = (entries: ListedAsset[]): string =>
  fingerprint(entries.map((entry) => [entry.name, hashEntry(entry)]));

/**
 * Returns when the details of each seventh were last read, and the hash of its assets. Undefined until all sevenths were read.
 *
 * @param read - The sevenths of which all details were read at `now`.
 */
export function seventhsOf(
  assets: AssetRecord[],
  before: ReadSevenths | undefined,
  read: ReadonlySet<number>,
  now: string,
): ReadSevenths | undefined {
  const bySeventh = Map.groupBy(assets, ({ vaultName, name }) => seventhOf(vaultName, name));
  const at = unixSeconds(now);
  const sevenths = [...ALL_SEVENTHS].map((seventh): ReadSevenths[number] | undefined => {
    const readAt = read.has(seventh) ? at : before?.[seventh]?.[0];
    return readAt === undefined ? undefined : [readAt, hashContents(bySeventh.get(seventh) ?? [])];
  });
  return sevenths.every((one) => one !== undefined) ? sevenths : undefined;
}

/** Returns the same hashes with `now` as the time of reading. */
export const seventhsReadAt = (before: ReadSevenths, now: string): ReadSevenths =>
  before.map(([, contents]) => [unixSeconds(now), contents]);

const unixSeconds = (instant: string): number => Math.floor(Date.parse(instant) / SECOND_MS);

/**
 * Returns `before` with the new time for the sevenths that were read, or undefined if an asset of them changed.
 *
 * @param assets - The assets of the sevenths that were read.
 */
export function refreshIfUnchanged(
  assets: AssetRecord[],
  before: ReadSevenths,
  read: ReadonlySet<number>,
  now: string,
): ReadSevenths | undefined {
  const current = seventhsOf(assets, before, read, now)!;
  const isSame = [...read].every((seventh) => current[seventh]![1] === before[seventh]![1]);
  return isSame ? before.map((one, seventh) => (read.has(seventh) ? current[seventh]! : one)) : undefined;
}

/** Returns a hash over assets. An asset that must be read again has a different hash than the same asset after it was read. */
export const hashContents = (assets: AssetRecord[]): string =>
  fingerprint(
    assets.map((asset) => {
      const { name, content } = asset;
      return isStale(asset) ? [name, content, "incomplete"] : [name, content];
    }),
  );

/**
 * Returns a hash over everything that determines the assets of a type: the vault, the list and the responses. If the hash of a
 * later reading is the same, its assets are the same.
 *
 * @param contents - The hash over the assets of the first reading.
 */
export const readingHash = (
  { name, id, subscriptionId }: VaultRecord,
  { listing, contents, answers }: { listing: string; contents: string; answers: string },
): string => fingerprint([READING_VERSION, name, id, subscriptionId, listing, contents, answers]);

export const failureRecord = (failure: CloudFailure, at: string): VaultFailure => ({
  code: failure.code,
  message: failure.message,
  remedy: failure.remedy,
  at,
});
