import { type AssetRecord, type AssetType, fingerprint, isStale } from "../inventory/asset.ts";
import { ALL_SEVENTHS, seventhOf } from "../inventory/details.ts";
import type { ReadSevenths, VaultFailure, VaultRecord } from "../inventory/vault.ts";
import type { CloudFailure } from "../platform/azure/failure.ts";
import type { ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { SECOND_MS } from "../platform/time.ts";

/** Goes into the hash of answers: must be raised whenever the same answers become other assets. */
const READING = 1;

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

/** The hashes of list entries, which a list's own hash and each asset's are made of. */
const listings = new WeakMap<ListedAsset, string>();

export function listingOf(entry: ListedAsset): string {
  let listing = listings.get(entry);
  if (listing === undefined) {
    listing = fingerprint({ ...entry, tags: Object.entries(entry.tags ?? {}).sort() });
    listings.set(entry, listing);
  }
  return listing;
}

/** Returns a hash over list entries. */
export const listingsOf = (entries: ListedAsset[]): string =>
  fingerprint(entries.map((entry) => [entry.name, listingOf(entry)]));

/**
 * When the details of each seventh were read, and what they were. Undefined while nobody read all of them.
 *
 * @param read - The sevenths of which all details were read, at `now`.
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
    return readAt === undefined ? undefined : [readAt, contentsOf(bySeventh.get(seventh) ?? [])];
  });
  return sevenths.every((one) => one !== undefined) ? sevenths : undefined;
}

/** The same details, all read at `now`. */
export const seventhsReadAt = (before: ReadSevenths, now: string): ReadSevenths =>
  before.map(([, contents]) => [unixSeconds(now), contents]);

const unixSeconds = (instant: string): number => Math.floor(Date.parse(instant) / SECOND_MS);

/**
 * `before`, where the assets of the sevenths that were read now are as they were then; undefined where they are not.
 *
 * @param assets - Those of the sevenths that were read.
 */
export function seventhsAsBefore(
  assets: AssetRecord[],
  before: ReadSevenths,
  read: ReadonlySet<number>,
  now: string,
): ReadSevenths | undefined {
  const anew = seventhsOf(assets, before, read, now)!;
  const isSame = [...read].every((seventh) => anew[seventh]![1] === before[seventh]![1]);
  return isSame ? before.map((one, seventh) => (read.has(seventh) ? anew[seventh]! : one)) : undefined;
}

/** Hash over assets. One that waits to be read again differs from the same one read. */
export const contentsOf = (assets: AssetRecord[]): string =>
  fingerprint(
    assets.map((asset) => {
      const { name, content } = asset;
      return isStale(asset) ? [name, content, "incomplete"] : [name, content];
    }),
  );

/**
 * A hash that two readings of a type share only where the second would come to the same assets as the first: of the same
 * vault, the same list and the same answers.
 *
 * @param contents - The hash over the assets that the first reading came to.
 */
export const sameReading = (
  { name, id, subscriptionId }: VaultRecord,
  { listing, contents, answers }: { listing: string; contents: string; answers: string },
): string => fingerprint([READING, name, id, subscriptionId, listing, contents, answers]);

export const failureRecord = (failure: CloudFailure, at: string): VaultFailure => ({
  code: failure.code,
  message: failure.message,
  remedy: failure.remedy,
  at,
});
