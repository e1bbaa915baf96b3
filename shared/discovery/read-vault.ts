import pMap from "p-map";
import { CloudFailure } from "../azure/failure.ts";
import type { ListedAsset, UnreadableEntry, VaultClient } from "../azure/key-vault.ts";
import { type AssetRecord, type AssetType, contentOf, fingerprint, isStale } from "../inventory/asset.ts";
import { ALL_SEVENTHS, seventhOf } from "../inventory/details.ts";
import type { ReadSevenths, VaultFailure, VaultRecord } from "../inventory/vault.ts";
import { SECOND_MS } from "../time.ts";

/** Keys and certificates whose details are read side by side, per vault. */
const DETAILS_AT_ONCE = 8;

/** An entry of a list as the service documents it. */
type ListEntry = Exclude<ListedAsset, UnreadableEntry>;

/** One kind of a vault's assets as the cloud has them now. */
export interface ReadList {
  assets: AssetRecord[];
  /** Hash over all list entries: equal means nothing was listed differently. Empty when not everything could be read. */
  listing: string;
  /** Entries or details that could not be read; the list itself was read to its end. */
  failure?: CloudFailure;
  /** Of keys: rotation policies that could not be read. */
  policyFailure?: CloudFailure;
}

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

function listingOf(entry: ListEntry): string {
  let listing = listings.get(entry);
  if (listing === undefined) {
    listing = fingerprint({ ...entry, tags: Object.entries(entry.tags ?? {}).sort() });
    listings.set(entry, listing);
  }
  return listing;
}

const isReadable = (entry: ListedAsset): entry is ListEntry => entry.kind !== "unreadable";

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
  const at = Math.floor(Date.parse(now) / SECOND_MS);
  const sevenths = [...ALL_SEVENTHS].map((seventh): ReadSevenths[number] | undefined => {
    const readAt = read.has(seventh) ? at : before?.[seventh]?.[0];
    return readAt === undefined ? undefined : [readAt, contentsOf(bySeventh.get(seventh) ?? [])];
  });
  return sevenths.every((one) => one !== undefined) ? sevenths : undefined;
}

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

/** What reading a part of an asset came to: its members, or why there are none. */
type Part = Partial<AssetRecord> | "gone" | "withheld" | CloudFailure;
const isRead = (part: Part): part is Partial<AssetRecord> =>
  typeof part === "object" && !(part instanceof CloudFailure);

/** Failures that may pass by themselves. */
const MAY_PASS: readonly CloudFailure["code"][] = ["throttled", "unreachable"];

/** What failed of one part of all assets of a list. After a refusal the others are not asked for. */
interface Failures {
  first?: CloudFailure | undefined;
  refusal?: CloudFailure;
}

/**
 * Turns list entries into assets. Details of keys and certificates are read where `known` has no asset with the same
 * list entry, and of all that `refresh` names (for those `known` is only asked where something can't be read).
 *
 * What can't be read stays as it was known and loses the hash of its list entry, so that the next scan of any mode tries
 * again. A failure that may pass leaves the whole asset as it was, so that one change is not counted twice; any other one
 * leaves the list's own facts standing, since it may last.
 *
 * @throws {CloudFailure} timedOut when `signal` ended it.
 */
export async function readAssets(
  client: VaultClient,
  type: AssetType,
  listed: ListedAsset[],
  vault: VaultRecord,
  options: {
    known: () => Promise<Map<string, AssetRecord>>;
    refresh: (name: string) => boolean;
    now: string;
    signal: AbortSignal;
  },
): Promise<ReadList> {
  const { known, refresh, now, signal } = options;
  const entries = listed.filter(isReadable);
  const unreadable = listed.filter((entry) => !isReadable(entry));
  const details: Failures = { first: unreadable[0]?.failure };
  const policies: Failures = {};
  let whole = unreadable.length === 0;

  async function read(entry: ListEntry): Promise<AssetRecord | undefined> {
    const listing = listingOf(entry);
    const standing = async () => (await known()).get(entry.name.toLowerCase());
    const before = refresh(entry.name) ? undefined : await standing();
    if (before?.listing === listing) return before;

    const parts = await Promise.all([
      readPart(entry, details, () => readDetails(client, type, entry.name, signal)),
      readPart(entry, policies, () => readPolicy(client, type, entry.name, signal)),
    ]);
    const complete = !parts.some((part) => part instanceof CloudFailure);
    if (!complete || parts.includes("gone")) whole = false;
    if (parts.includes("gone")) return undefined;
    const kept = parts.every(isRead) ? undefined : await standing();
    const [detailsRead, policyRead] = parts;
    if (kept && detailsRead instanceof CloudFailure && MAY_PASS.includes(detailsRead.code)) {
      return { ...kept, listing: "" };
    }
    // One object from the start: a copy with more members takes half as much memory again, and there is one an asset.
    const asset: AssetRecord = {
      type,
      name: entry.name,
      vaultName: vault.name,
      vaultId: vault.id,
      subscriptionId: vault.subscriptionId,
      enabled: entry.enabled,
      createdOn: entry.createdOn,
      updatedOn: entry.updatedOn,
      notBefore: entry.notBefore,
      expiresOn: entry.expiresOn,
      ...("contentType" in entry ? { contentType: entry.contentType } : {}),
      ...(entry.tags && Object.keys(entry.tags).length > 0 ? { tags: entry.tags } : {}),
      ...(isRead(detailsRead) ? detailsRead : knownDetails(kept)),
      ...(isRead(policyRead) ? policyRead : { rotationPolicy: kept?.rotationPolicy }),
      listing,
      firstSeenAt: before?.firstSeenAt ?? now,
      content: "",
    };
    // Over the entry's hash also where it is not kept: reading the same again later is no change.
    asset.content = contentOf(asset);
    if (!complete) asset.listing = "";
    return asset;
  }

  const assets = await pMap(entries, read, { concurrency: type === "secret" ? 1 : DETAILS_AT_ONCE });
  const result: ReadList = {
    assets: assets.filter((asset) => asset !== undefined),
    listing: whole ? listingsOf(entries) : "",
  };
  if (unreadable.length > 0) result.assets = withUnreadable(result.assets, entries, unreadable, await known());
  if (details.first) result.failure = details.first;
  if (policies.first) result.policyFailure = policies.first;
  return result;
}

async function readPart(
  entry: ListEntry,
  failures: Failures,
  work: () => Promise<Partial<AssetRecord>>,
): Promise<Part> {
  if (failures.refusal) return failures.refusal;
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CloudFailure) || error.code === "timedOut") throw error;
    if (error.code === "notFound") return "gone";
    // Key Vault refuses to show a disabled item: that says nothing of the others and is no failure.
    if (error.code === "accessDenied" && !entry.enabled) return "withheld";
    if (error.code === "accessDenied") failures.refusal = error;
    failures.first ??= error;
    return error;
  }
}

/** The assets, and those known that an unreadable entry may stand for: they must not count as removed. */
function withUnreadable(
  assets: AssetRecord[],
  entries: ListEntry[],
  unreadable: UnreadableEntry[],
  known: Map<string, AssetRecord>,
): AssetRecord[] {
  const listed = new Set(entries.map((entry) => entry.name.toLowerCase()));
  const nameless = unreadable.some(({ name }) => name === undefined);
  const names = new Set(unreadable.map(({ name }) => name?.toLowerCase()));
  const kept = [...known].filter(([name]) => !listed.has(name) && (nameless || names.has(name)));
  const key = ({ name }: AssetRecord) => name.toLowerCase();
  return [...assets, ...kept.map(([, asset]) => asset)].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

/** The details an asset had before, where they can't be read now; a rotation policy is read by itself. */
function knownDetails(asset: AssetRecord | undefined): Partial<AssetRecord> {
  if (!asset) return {};
  return {
    version: asset.version,
    keyType: asset.keyType,
    keySize: asset.keySize,
    keyCurve: asset.keyCurve,
    subject: asset.subject,
    issuer: asset.issuer,
    subjectAlternativeNames: asset.subjectAlternativeNames,
    thumbprint: asset.thumbprint,
    validityMonths: asset.validityMonths,
    autoRenew: asset.autoRenew,
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
    const key = await client.key(name, signal);
    return {
      version: key.version,
      keyType: key.keyType,
      keySize: key.keySize,
      keyCurve: key.keyCurve,
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

/** Of a key; none where it has none. */
async function readPolicy(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Partial<AssetRecord>> {
  if (type !== "key") return {};
  const rotationPolicy = await client.rotationPolicy(name, signal);
  return rotationPolicy ? { rotationPolicy } : {};
}

export const failureRecord = (failure: CloudFailure, at: string): VaultFailure => ({
  code: failure.code,
  message: failure.message,
  remedy: failure.remedy,
  at,
});
