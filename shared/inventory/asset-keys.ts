import { keyEnd } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import { type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { END_OF_TIME } from "./asset-status.ts";

/**
 * Row keys of assets. An asset is in three partitions (all, its subscription, its vault), in each once by name and once by
 * expiry in unix seconds:
 * - `n!secret!db-password!kv-payments`
 * - `e!secret!1767225600!db-password!kv-payments`, or `e!secret!~!db-password!kv-payments` without an expiry
 *
 * A certificate with a renewal plan (renewal.ts) has two other rows in place of the one by expiry, because its status does not
 * follow from its expiry alone. One is by expiry, the other by the time at which it needs attention:
 * - `e!certificate-renewed!1767225600!www!kv-payments`
 * - `e!certificate-late!1764547200!www!kv-payments`
 *
 * `!` separates the parts because it sorts before every character of a Key Vault name, so that whole names are compared.
 */
export const partitions = {
  all: "all",
  subscription: (id: string): string => `sub:${id.toLowerCase()}`,
  vault: (name: string): string => `vault:${name.toLowerCase()}`,
};

/** Ten digits are enough until the year 2286; later expiries count as the last second. "No expiry" sorts after them. */
const NO_EXPIRY = "~";
const expiryText = (expiresOn: number | undefined): string =>
  expiresOn === undefined ? NO_EXPIRY : boundText(Math.min(expiresOn, END_OF_TIME - 1));
/** Returns the text of a bound, which may be later than the last expiry a key can contain. */
const boundText = (instant: number): string => String(Math.min(Math.max(instant, 0), END_OF_TIME)).padStart(10, "0");

/** Prefix of the row keys that sort by name, of assets and of vaults. */
export const NAME_PREFIX = "n!";
/** The range of all rows of a partition, by name. */
export const nameRange = (partitionKey: string) => ({ partitionKey, from: NAME_PREFIX, before: keyEnd(NAME_PREFIX) });
export const namePrefix = (type: AssetType): string => `${NAME_PREFIX}${type}!`;
/** An index by expiry: of one type, or of certificates with a renewal plan, which the index of their type does not contain. */
export type ExpiryIndex = AssetType | typeof RENEWED;
/** Part of the stored keys of certificates with a renewal plan, whether they were renewed already or not. */
export const RENEWED = "certificate-renewed";
export const expiryPrefix = (index: ExpiryIndex): string => `e!${index}!`;

export const nameKey = (type: AssetType, name: string, vault: string): string =>
  `${namePrefix(type)}${name.toLowerCase()}!${vault.toLowerCase()}`;

export const expiryKey = (index: ExpiryIndex, expiresOn: number | undefined, name: string, vault: string): string =>
  `${expiryPrefix(index)}${expiryText(expiresOn)}!${name.toLowerCase()}!${vault.toLowerCase()}`;

const LATE_PREFIX = "e!certificate-late!";
/** Row key of a certificate by the time at which it needs attention (`RenewalPlan.attentionAt`). */
const lateKey = (attentionAt: number, name: string, vault: string): string =>
  `${LATE_PREFIX}${boundText(attentionAt)}!${name.toLowerCase()}!${vault.toLowerCase()}`;
/** Returns the row key bounds of certificates with a plan that needed attention before a time in seconds. */
export const lateBounds = (before: number) => ({ from: LATE_PREFIX, before: LATE_PREFIX + boundText(before) });

/** Returns the keys of an asset's rows in a partition, except that by name. */
export function indexKeys(
  { type, expiresOn, name, renewal }: Pick<AssetRecord, "type" | "expiresOn" | "name" | "renewal">,
  vault: string,
): string[] {
  if (!renewal) return [expiryKey(type, expiresOn, name, vault)];
  return [expiryKey(RENEWED, expiresOn, name, vault), lateKey(renewal.attentionAt, name, vault)];
}

/**
 * Returns the keys of rows that may exist for an announced entry (`PendingEntry`), whose state is otherwise unknown.
 *
 * @param expiry - In unix seconds. Negative for the time at which a certificate needs attention.
 */
export function announcedKeys(type: AssetType, expiry: number | null, name: string, vault: string): string[] {
  if (expiry !== null && expiry < 0) return [lateKey(-expiry, name, vault)];
  const key = expiryKey(type, expiry ?? undefined, name, vault);
  // The entry does not say whether the certificate has a renewal plan, which decides its key.
  return type === "certificate" ? [key, expiryKey(RENEWED, expiry ?? undefined, name, vault)] : [key];
}

/**
 * Returns the row key bounds of a range of expiries in seconds.
 *
 * @param unset - Whether assets without an expiry belong to the range.
 */
export const expiryBounds = (index: ExpiryIndex, from: number, before: number, unset: boolean) => ({
  from: expiryPrefix(index) + boundText(from),
  // Keys with an expiry sort before "~". Keys without one sort after it and before "~~".
  before: expiryPrefix(index) + (unset ? `${NO_EXPIRY}${NO_EXPIRY}` : boundText(before)),
});

/**
 * Row key of a vault's fence in each of its partitions. It sorts after every `e!` and before every `n!`, so that no list reads
 * it. A fence is a row whose ETag each write of the vault's rows requires, so that late requests of a crashed worker fail
 * (vault-claim.ts).
 */
const FENCE = "f!";
export const fenceKey = (vaultName: string): string => `${FENCE}${vaultName.toLowerCase()}`;
export const fenceRange = (partitionKey: string) => ({ partitionKey, from: FENCE, before: keyEnd(FENCE) });
export const vaultOfFence = (rowKey: string): string => rowKey.slice(FENCE.length);
export const AssetFences = fenceEntity(Assets.table);
