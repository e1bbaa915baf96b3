import { type AssetRecord, type AssetType, fingerprint, isStale } from "../inventory/asset.ts";
import { ALL_SEVENTHS, seventhOf } from "../inventory/details.ts";
import type { ReadSevenths, VaultFailure, VaultRecord } from "../inventory/vault.ts";
import type { CloudFailure } from "../platform/azure/failure.ts";
import type { ListedAsset, UnreadableEntry, VaultClient } from "../platform/azure/key-vault.ts";
import { SECOND_MS } from "../platform/time.ts";

/** Goes into the hash of answers: must be raised whenever the same answers become other assets. */
const READING = 1;

/** An entry of a list as the service documents it. */
export type ListEntry = Exclude<ListedAsset, UnreadableEntry>;

/**
 * The list entries of one kind, read to the last page, without those that only back a certificate, each name once.
 * @throws {CloudFailure} when a page could not be read, or `signal` ended it.
 */
export async function readListing(client: VaultClient, type: AssetType, signal: AbortSignal): Promise<ListedAsset[]> {
  const unreadable: UnreadableEntry[] = [];
  const onUnreadable = (entry: UnreadableEntry) => unreadable.push(entry);
  const pages =
    type === "secret"
      ? client.secrets(signal, onUnreadable)
      : type === "key"
        ? client.keys(signal, onUnreadable)
        : client.certificates(signal, onUnreadable);
  const entries = new Map<string, ListEntry>();
  for await (const page of pages) {
    for (const entry of page) if (!isManaged(entry)) entries.set(entry.name.toLowerCase(), entry);
  }
  return [...[...entries].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, entry]) => entry), ...unreadable];
}

const isManaged = (entry: ListEntry): boolean => "managed" in entry && entry.managed === true;

/** The hashes of list entries, which a list's own hash and each asset's are made of. */
const listings = new WeakMap<ListEntry, string>();

export function listingOf(entry: ListEntry): string {
  let listing = listings.get(entry);
  if (listing === undefined) {
    listing = fingerprint({ ...entry, tags: Object.entries(entry.tags ?? {}).sort() });
    listings.set(entry, listing);
  }
  return listing;
}

export const isReadable = (entry: ListedAsset): entry is ListEntry => entry.kind !== "unreadable";

/** Hash over list entries; that of a list with unreadable ones is empty, so that it is never taken for unchanged. */
export function listingsOf(entries: ListedAsset[]): string {
  if (!entries.every(isReadable)) return "";
  return fingerprint(entries.map((entry) => [entry.name, listingOf(entry)]));
}

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
