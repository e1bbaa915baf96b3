import pMap from "p-map";
import { type AssetRecord, type AssetType, contentOf, fingerprint } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Answer, ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { listingOf, listingsOf } from "./read-list.ts";

/** Keys and certificates whose details are asked for side by side, per vault. */
const DETAILS_AT_ONCE = 8;

/** Keys or certificates whose answers are held in memory until all have come, some 3 KB each. */
const ANSWERS_AT_ONCE = 500;

/** One kind of a vault's assets as the cloud has them now. */
export interface ReadList {
  assets: AssetRecord[];
  /** Hash over all list entries: equal means nothing was listed differently. Empty when not everything could be read. */
  listing: string;
  /** Hash over all that was answered for details. Undefined where not all were asked for, or not all could be read. */
  answers: string | undefined;
  /** Entries or details that could not be read; the list itself was read to its end. */
  failure?: CloudFailure;
  /** Of keys: rotation policies that could not be read. */
  policyFailure?: CloudFailure;
}

/** What an answer says of an asset. */
type Members = Partial<AssetRecord>;

/** What asking for a part of an asset came to: the answer, or why there is none. `none`: there is nothing to ask for. */
type Part = Answer<Members> | "none" | "gone" | "withheld" | CloudFailure;
const isAnswer = (part: Part): part is Answer<Members> => typeof part === "object" && !(part instanceof CloudFailure);

/** An entry of a list and what was asked for because of it. */
interface Asked {
  entry: ListedAsset;
  /** The asset as it stood, where that was looked up. With the same entry it stays as it is, and nothing was asked for. */
  before?: AssetRecord | undefined;
  details: Part;
  policy: Part;
}

/** A hash over what was answered; undefined where not everything was. */
function answersOf(asked: readonly Asked[]): string | undefined {
  const isMissing = (part: Part) => part === "gone" || part instanceof CloudFailure;
  if (asked.some(({ before, details, policy }) => before || isMissing(details) || isMissing(policy))) return undefined;
  const textOf = (part: Part) => (isAnswer(part) ? part.text : part);
  return fingerprint(asked.map(({ entry, details, policy }) => [entry.name, textOf(details), textOf(policy)]));
}

/** Failures that may pass by themselves. */
const MAY_PASS: readonly CloudFailure["code"][] = ["throttled", "unreachable"];

/** What a part says, or why nothing is known. */
type Read = Members | "gone" | "withheld" | CloudFailure;
const isRead = (read: Read): read is Members => typeof read === "object" && !(read instanceof CloudFailure);

/** What failed of one part of all assets of a list. After a refusal the others are not asked for. */
interface Failures {
  first?: CloudFailure | undefined;
  refusal?: CloudFailure;
}

/**
 * Turns list entries into assets. Details of keys and certificates are asked for where `known` has no asset with the same
 * list entry, and of all that `refresh` names (for those `known` is only asked where something can't be read). Answers are
 * read once all have come, since certificates one after the other take a quarter of the time; undefined, and none is read,
 * where `isAsBefore` says of their hash that they are those that made the assets that stand.
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
  entries: ListedAsset[],
  vault: VaultRecord,
  options: {
    known: () => Promise<Map<string, AssetRecord>>;
    refresh: (name: string) => boolean;
    isAsBefore?: (answers: string) => boolean;
    now: string;
    signal: AbortSignal;
  },
): Promise<ReadList | undefined> {
  const { known, refresh, isAsBefore, now, signal } = options;
  const details: Failures = {};
  const policies: Failures = {};
  let whole = true;
  const standing = async ({ name }: ListedAsset) => (await known()).get(name.toLowerCase());

  async function ask(entry: ListedAsset): Promise<Asked> {
    const before = refresh(entry.name) ? undefined : await standing(entry);
    if (before?.listing === listingOf(entry)) return { entry, before, details: "none", policy: "none" };
    const parts = await Promise.all([
      partOf(entry, details, () => askDetails(client, type, entry.name, signal)),
      partOf(entry, policies, () => askPolicy(client, type, entry.name, signal)),
    ]);
    return { entry, before, details: parts[0], policy: parts[1] };
  }

  async function read({ entry, before, ...asked }: Asked): Promise<AssetRecord | undefined> {
    const listing = listingOf(entry);
    if (before?.listing === listing) return before;
    const detailsRead = membersOf(entry, asked.details, details);
    const policyRead = membersOf(entry, asked.policy, policies);
    const parts = [detailsRead, policyRead];
    const complete = !parts.some((part) => part instanceof CloudFailure);
    if (!complete || parts.includes("gone")) whole = false;
    if (parts.includes("gone")) return undefined;
    const kept = parts.every(isRead) ? undefined : await standing(entry);
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

  const assets: AssetRecord[] = [];
  let answers: string | undefined;
  // Nothing is asked for because of a secret.
  const [atOnce, concurrency] = type === "secret" ? [entries.length || 1, 1] : [ANSWERS_AT_ONCE, DETAILS_AT_ONCE];
  for (let at = 0; at === 0 || at < entries.length; at += atOnce) {
    const part = entries.slice(at, at + atOnce);
    const asked = await pMap(part, ask, { concurrency });
    // Of more than are held at once nothing is compared.
    if (part.length === entries.length) answers = answersOf(asked);
    if (answers !== undefined && isAsBefore?.(answers)) return undefined;
    for (const one of asked) {
      const asset = await read(one);
      if (asset) assets.push(asset);
    }
  }
  const result: ReadList = { assets, listing: whole ? listingsOf(entries) : "", answers: whole ? answers : undefined };
  if (details.first) result.failure = details.first;
  if (policies.first) result.policyFailure = policies.first;
  return result;
}

async function partOf(
  entry: ListedAsset,
  failures: Failures,
  ask: () => Promise<Answer<Members> | undefined>,
): Promise<Part> {
  if (failures.refusal) return failures.refusal;
  try {
    return (await ask()) ?? "none";
  } catch (error) {
    return failedPart(entry, failures, error);
  }
}

function membersOf(entry: ListedAsset, part: Part, failures: Failures): Read {
  if (part === "none") return {};
  if (!isAnswer(part)) return part;
  try {
    return part.read();
  } catch (error) {
    return failedPart(entry, failures, error);
  }
}

/** @throws what is no failure of this part alone. */
function failedPart(entry: ListedAsset, failures: Failures, error: unknown): "gone" | "withheld" | CloudFailure {
  if (!(error instanceof CloudFailure) || error.code === "timedOut") throw error;
  if (error.code === "notFound") return "gone";
  // Key Vault refuses to show a disabled item: that says nothing of the others and is no failure.
  if (error.code === "accessDenied" && !entry.enabled) return "withheld";
  if (error.code === "accessDenied") failures.refusal = error;
  failures.first ??= error;
  return error;
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

/** Of a secret there are none. */
async function askDetails(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Answer<Members> | undefined> {
  if (type === "secret") return undefined;
  if (type === "key") {
    return saying(await client.key(name, signal), (key) => ({
      version: key.version,
      keyType: key.keyType,
      keySize: key.keySize,
      keyCurve: key.keyCurve,
    }));
  }
  return saying(await client.certificate(name, signal), (certificate) => ({
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
  }));
}

/** Of a key; none where it has none. */
async function askPolicy(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Answer<Members> | undefined> {
  if (type !== "key") return undefined;
  const policy = await client.rotationPolicy(name, signal);
  return policy && saying(policy, (rotationPolicy) => ({ rotationPolicy }));
}

const saying = <T>({ text, read }: Answer<T>, members: (said: T) => Members): Answer<Members> => ({
  text,
  read: () => members(read()),
});
