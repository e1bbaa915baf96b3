/**
 * Lists of a vault and the hashes by which a scan recognizes unchanged lists, responses and assets. Assets are divided into
 * seven parts ("sevenths"); scheduled full scans read the details of one part per day (inventory/details.ts).
 */
import { type AssetRecord, type AssetType, fingerprint, isStale } from "../inventory/asset.ts";
import { ALL_SEVENTHS, seventhOf } from "../inventory/details.ts";
import type { ReadSevenths, VaultFailure, VaultRecord } from "../inventory/vault.ts";
import type { CloudFailure } from "../platform/azure/failure.ts";
import type { ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { SECOND_MS } from "../platform/time.ts";

/** Part of `readingHash`. Increase it whenever the code turns the same responses into different assets. */
const READING_VERSION = 3;

/**
 * Reads the list of one asset type to its last page, sorted by name. Omits the keys and secrets that Key Vault manages as parts
 * of a certificate, and repeated names.
 *
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

/** Cached hashes of list entries. An entry's hash is needed for its list and for its asset. */
const entryHashes = new WeakMap<ListedAsset, string>();

export function hashEntry(entry: ListedAsset): string {
  let listing = entryHashes.get(entry);
  if (listing === undefined) {
    listing = fingerprint({ ...entry, tags: Object.entries(entry.tags ?? {}).sort() });
    entryHashes.set(entry, listing);
  }
  return listing;
}

/** Returns a hash over list entries. */
export const hashEntries = (entries: ListedAsset[]): string =>
  fingerprint(entries.map((entry) => [entry.name, hashEntry(entry)]));

/**
 * Returns for each seventh the tuple `[readAt, contents]`: when its details were last read (Unix seconds), and the hash of its
 * assets. Undefined until all sevenths were read.
 *
 * @param read - The sevenths of which all details were read at `now`.
 */
export function seventhsOf(
  assets: AssetRecord[],
  previous: ReadSevenths | undefined,
  read: ReadonlySet<number>,
  now: string,
): ReadSevenths | undefined {
  const bySeventh = Map.groupBy(assets, ({ vaultName, name }) => seventhOf(vaultName, name));
  const readSeconds = unixSeconds(now);
  const sevenths = [...ALL_SEVENTHS].map((seventh): ReadSevenths[number] | undefined => {
    const readAt = read.has(seventh) ? readSeconds : previous?.[seventh]?.[0];
    return readAt === undefined ? undefined : [readAt, hashContents(bySeventh.get(seventh) ?? [])];
  });
  return sevenths.every((one) => one !== undefined) ? sevenths : undefined;
}

/** Returns the same hashes with `now` as the time of reading. */
export const seventhsReadAt = (previous: ReadSevenths, now: string): ReadSevenths =>
  previous.map(([, contents]) => [unixSeconds(now), contents]);

const unixSeconds = (instant: string): number => Math.floor(Date.parse(instant) / SECOND_MS);

/**
 * Returns `previous` with the new time for the sevenths that were read, or undefined if an asset of them changed.
 *
 * @param assets - The assets of the sevenths that were read.
 */
export function refreshIfUnchanged(
  assets: AssetRecord[],
  previous: ReadSevenths,
  read: ReadonlySet<number>,
  now: string,
): ReadSevenths | undefined {
  const current = seventhsOf(assets, previous, read, now)!;
  const isSame = [...read].every((seventh) => current[seventh]![1] === previous[seventh]![1]);
  return isSame ? previous.map((one, seventh) => (read.has(seventh) ? current[seventh]! : one)) : undefined;
}

/** Returns a hash over assets. An asset whose details must be read again changes the hash. */
export const hashContents = (assets: AssetRecord[]): string =>
  fingerprint(
    assets.map((asset) => {
      const { name, content } = asset;
      return isStale(asset) ? [name, content, "incomplete"] : [name, content];
    }),
  );

/**
 * Returns a hash over everything that determines the assets of a type: the vault, the list and the responses. If a later scan
 * gets the same hash, the assets are the same.
 *
 * @param contents - The hash over the stored assets (`hashContents`).
 * @param answers - The hash over the responses for details.
 */
export const readingHash = (
  { name, id, subscriptionId }: VaultRecord,
  { listing, contents, answers }: { listing: string; contents: string; answers: string },
): string => fingerprint([READING_VERSION, name, id, subscriptionId, listing, contents, answers]);

/** Returns a failure in the form in which rows store it. */
export const failureRecord = (failure: CloudFailure, failedAt: string): VaultFailure => ({
  code: failure.code,
  message: failure.message,
  remedy: failure.remedy,
  at: failedAt,
});
