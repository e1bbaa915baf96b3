/** Turns the entries of a vault's list into assets, with the details and rotation policies that further requests return. */
import pMap from "p-map";
import { type AssetRecord, type AssetType, contentHash, fingerprint } from "../inventory/asset.ts";
import type { CertificateFacts } from "../inventory/certificate-facts.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Answer, CertificateDetails, ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { hashEntries, hashEntry } from "./read-list.ts";

/** Maximum number of keys or certificates of a vault whose details are requested concurrently. */
const MAX_CONCURRENT_DETAILS = 8;

/** Number of keys or certificates whose responses are in memory at the same time, about 3 KB each. */
const RESPONSES_PER_BATCH = 500;

/** The assets of one type that the vault has now. */
export interface AssetList {
  assets: AssetRecord[];
  /**
   * Hash over all list entries. The same hash means that no entry changed. Empty if an entry or its details could not be read.
   */
  listing: string;
  /** Hash over all responses for details. Undefined if details of some assets were not requested or could not be read. */
  answers: string | undefined;
  /** The first failure to read an entry or its details. The list itself was read completely. */
  failure?: CloudFailure;
  /** The first failure to read a key's rotation policy. */
  policyFailure?: CloudFailure;
}

/** Fields of an asset that one response contains. */
type AssetFields = Partial<AssetRecord>;

/**
 * The response for a part of an asset (its details or its rotation policy), or why there is none. An `Answer` has the
 * response's `text`, which `read` parses. `none`: the asset has no such part, or it was not requested. `gone`: the asset no
 * longer exists. `withheld`: Key Vault does not return the part of a disabled asset.
 */
type PartResponse = Answer<AssetFields> | "none" | "gone" | "withheld" | CloudFailure;
const isResponse = (part: PartResponse): part is Answer<AssetFields> =>
  typeof part === "object" && !(part instanceof CloudFailure);

/** A list entry with the responses for its details and policy. */
interface AssetResponses {
  entry: ListedAsset;
  /**
   * The stored asset with which the entry was compared. If its list entry has not changed, nothing was requested. Undefined if
   * the asset is new, or if its details are read in any case (`refresh`).
   */
  stored?: AssetRecord | undefined;
  details: PartResponse;
  policy: PartResponse;
}

/** Returns a hash over the responses, or undefined if a response is missing. */
function hashResponses(responses: readonly AssetResponses[]): string | undefined {
  const isMissing = (part: PartResponse) => part === "gone" || part instanceof CloudFailure;
  if (responses.some(({ stored, details, policy }) => stored || isMissing(details) || isMissing(policy)))
    return undefined;
  const textOf = (part: PartResponse) => (isResponse(part) ? part.text : part);
  return fingerprint(responses.map(({ entry, details, policy }) => [entry.name, textOf(details), textOf(policy)]));
}

/** Codes of failures after which the next scan may succeed without a change by a user. */
const TRANSIENT_CODES: readonly CloudFailure["code"][] = ["throttled", "unreachable"];

/** The fields of a part, or why they are missing. */
type PartFields = AssetFields | "gone" | "withheld" | CloudFailure;
const hasFields = (read: PartFields): read is AssetFields =>
  typeof read === "object" && !(read instanceof CloudFailure);

/** The failures of one part, over all assets of a list. After `accessDenied` the part is not requested for further assets. */
interface Failures {
  first?: CloudFailure | undefined;
  accessDenied?: CloudFailure;
}

/**
 * Turns list entries into assets. Requests the details of a key or certificate if `storedAssets` has no asset with the same
 * list entry, or if `refresh` returns true for it. If `refresh` returns true for all assets, `storedAssets` is called only for
 * details that Key Vault did not return.
 *
 * Responses are parsed after all have arrived, because parsing all certificates together takes a quarter of the time. If
 * `isSameAnswers` returns true for their hash, nothing is parsed and the result is undefined: the stored assets are up to date.
 *
 * If details can't be read, their stored values stay. The hash of the asset's list entry is emptied, so that the next scan in
 * any mode reads the details again. After a transient failure the whole asset keeps its stored state. Otherwise one change would
 * be counted twice: now that of the list entry, and with the next scan that of the details. After other failures, which may last,
 * the asset gets the fields of its list entry.
 *
 * @throws {CloudFailure} timedOut if `signal` was aborted.
 */
export async function readAssets(
  client: VaultClient,
  type: AssetType,
  entries: ListedAsset[],
  vault: VaultRecord,
  options: {
    storedAssets: () => Promise<Map<string, AssetRecord>>;
    refresh: (name: string) => boolean;
    isSameAnswers?: (answers: string) => boolean;
    now: string;
    signal: AbortSignal;
  },
): Promise<AssetList | undefined> {
  const { storedAssets, refresh, isSameAnswers, now, signal } = options;
  const detailsFailures: Failures = {};
  const policyFailures: Failures = {};
  let isComplete = true;
  const storedAsset = async ({ name }: ListedAsset) => (await storedAssets()).get(name.toLowerCase());

  async function requestParts(entry: ListedAsset): Promise<AssetResponses> {
    const stored = refresh(entry.name) ? undefined : await storedAsset(entry);
    if (stored?.listing === hashEntry(entry)) return { entry, stored, details: "none", policy: "none" };
    const parts = await Promise.all([
      requestPart(entry, detailsFailures, () => requestDetails(client, type, entry.name, signal)),
      requestPart(entry, policyFailures, () => requestPolicy(client, type, entry.name, signal)),
    ]);
    return { entry, stored, details: parts[0], policy: parts[1] };
  }

  /** Returns the asset that follows from the responses. Undefined if the asset no longer exists. */
  async function read(responses: AssetResponses): Promise<AssetRecord | undefined> {
    const { entry, stored: compared, details, policy } = responses;
    const listing = hashEntry(entry);
    if (compared?.listing === listing) return compared;
    const detailsRead = readPart(entry, details, detailsFailures);
    const policyRead = readPart(entry, policy, policyFailures);
    const parts = [detailsRead, policyRead];
    const isAssetComplete = !parts.some((part) => part instanceof CloudFailure);
    if (!isAssetComplete || parts.includes("gone")) isComplete = false;
    if (parts.includes("gone")) return undefined;
    // The stored asset has the values of the parts that are missing.
    const stored = parts.every(hasFields) ? undefined : await storedAsset(entry);
    if (stored && detailsRead instanceof CloudFailure && TRANSIENT_CODES.includes(detailsRead.code)) {
      return { ...stored, listing: "" };
    }
    // Created as one object literal: copying it with further fields would take 50% more memory for each asset.
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
      ...(hasFields(detailsRead) ? detailsRead : detailsOf(stored)),
      ...(hasFields(policyRead) ? policyRead : { rotationPolicy: stored?.rotationPolicy }),
      listing,
      // If the asset was not compared, the caller replaces this by the stored time (read-types.ts).
      firstSeenAt: compared?.firstSeenAt ?? now,
      content: "",
    };
    // The content hash includes the entry's hash even if that is not stored. So reading the same details later is no change.
    asset.content = contentHash(asset);
    if (!isAssetComplete) asset.listing = "";
    return asset;
  }

  const assets: AssetRecord[] = [];
  let answers: string | undefined;
  // Secrets have no details, so all are in one batch.
  const [batchSize, concurrency] =
    type === "secret" ? [entries.length || 1, 1] : [RESPONSES_PER_BATCH, MAX_CONCURRENT_DETAILS];
  for (let start = 0; start === 0 || start < entries.length; start += batchSize) {
    const part = entries.slice(start, start + batchSize);
    const requested = await pMap(part, requestParts, { concurrency });
    // The hash needs all responses in memory, so it stays undefined if the list exceeds one batch.
    if (part.length === entries.length) answers = hashResponses(requested);
    if (answers !== undefined && isSameAnswers?.(answers)) return undefined;
    for (const responses of requested) {
      const asset = await read(responses);
      if (asset) assets.push(asset);
    }
  }
  const result: AssetList = {
    assets,
    listing: isComplete ? hashEntries(entries) : "",
    answers: isComplete ? answers : undefined,
  };
  if (detailsFailures.first) result.failure = detailsFailures.first;
  if (policyFailures.first) result.policyFailure = policyFailures.first;
  return result;
}

async function requestPart(
  entry: ListedAsset,
  failures: Failures,
  request: () => Promise<Answer<AssetFields> | undefined>,
): Promise<PartResponse> {
  if (failures.accessDenied) return failures.accessDenied;
  try {
    return (await request()) ?? "none";
  } catch (error) {
    return failedPart(entry, failures, error);
  }
}

function readPart(entry: ListedAsset, part: PartResponse, failures: Failures): PartFields {
  if (part === "none") return {};
  if (!isResponse(part)) return part;
  try {
    return part.read();
  } catch (error) {
    return failedPart(entry, failures, error);
  }
}

/** @throws errors that are not a failure of this part alone. */
function failedPart(entry: ListedAsset, failures: Failures, error: unknown): "gone" | "withheld" | CloudFailure {
  if (!(error instanceof CloudFailure) || error.code === "timedOut") throw error;
  if (error.code === "notFound") return "gone";
  // Key Vault does not return details of a disabled item. This is no failure, and does not affect other items.
  if (error.code === "accessDenied" && !entry.enabled) return "withheld";
  if (error.code === "accessDenied") failures.accessDenied = error;
  failures.first ??= error;
  return error;
}

/** Returns an asset's stored details. The rotation policy is not included, because it is read separately. */
function detailsOf(asset: AssetRecord | undefined): Partial<AssetRecord> {
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
    certificate: asset.certificate,
    issuerName: asset.issuerName,
    renewalTrigger: asset.renewalTrigger,
  };
}

/** Requests an asset's details. Returns undefined for secrets, which have none. */
async function requestDetails(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Answer<AssetFields> | undefined> {
  if (type === "secret") return undefined;
  if (type === "key") {
    return mapResponse(await client.key(name, signal), (key) => ({
      version: key.version,
      keyType: key.keyType,
      keySize: key.keySize,
      keyCurve: key.keyCurve,
    }));
  }
  return mapResponse(await client.certificate(name, signal), (certificate) => ({
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
    issuerName: certificate.issuerName,
    renewalTrigger: triggerOf(certificate),
    certificate: factsOf(certificate),
  }));
}

/** The members are in one order, so that unchanged facts give the same hash. */
const factsOf = ({ issued, orderedMonths, exportable }: CertificateDetails): CertificateFacts => ({
  ...issued,
  ...(orderedMonths !== undefined && { orderedMonths }),
  ...(exportable !== undefined && { exportable }),
});

/** Returns when the policy renews a certificate. Undefined if the policy does not renew it. */
function triggerOf({ lifetimeActions }: CertificateDetails): AssetRecord["renewalTrigger"] {
  const renewal = lifetimeActions.find(({ action }) => action === "AutoRenew");
  if (!renewal) return undefined;
  const { action: _, ...trigger } = renewal;
  return trigger;
}

/** Requests a key's rotation policy. Returns undefined for other types, and for keys without a policy. */
async function requestPolicy(
  client: VaultClient,
  type: AssetType,
  name: string,
  signal: AbortSignal,
): Promise<Answer<AssetFields> | undefined> {
  if (type !== "key") return undefined;
  const policy = await client.rotationPolicy(name, signal);
  return policy && mapResponse(policy, (rotationPolicy) => ({ rotationPolicy }));
}

const mapResponse = <T>({ text, read }: Answer<T>, toFields: (value: T) => AssetFields): Answer<AssetFields> => ({
  text,
  read: () => toFields(read()),
});
