import pMap from "p-map";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType, contentHash, fingerprint } from "../inventory/asset.ts";
import { indexKeys, NAME_PREFIX, nameKey, partitions } from "../inventory/asset-keys.ts";
import { packExpiries } from "../inventory/expiries.ts";
import { packPlanned } from "../inventory/planned-certificates.ts";
import { expiriesOf, forEachType, type VaultRecord } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { indexRange, parseIndexKey, readRowOrCorrupt } from "./suspected-differences.ts";

/**
 * Checks the rows of a vault's assets for the reconciliation. Every asset has rows in three partitions (of its vault, of its
 * subscription and of all assets), in each one by name and one by expiry. The row by name in the vault's partition is the
 * original, the asset's own row. The others must be copies of it.
 */

/** Number of suspected rows that are read again concurrently, each with its original. */
const READS_AT_ONCE = 8;

/** Problems found in a vault's own partition, and the assets in it. */
export interface InspectedVault {
  /** Keys of rows in the vault's partition that can't be read, and of rows by expiry that do not match the rows by name. */
  readonly rows: readonly string[];
  /**
   * Types of assets for which the vault's row does not match the assets' rows. The vault's row has a fingerprint of each type's
   * list (a hash of names and contents), all expiry dates in one binary column, and the renewals of certificates in another.
   */
  readonly types: readonly AssetType[];
  /** All assets of the vault, as `<type>.<name>`. */
  readonly assets: ReadonlySet<string>;
}

/** Compares a vault's row and the rows by expiry in its partition with the rows by name. Costs one request per 1,000 rows. */
export async function inspectVault(tables: Tables, vault: VaultRecord): Promise<InspectedVault> {
  const suspectedKeys = new Set<string>();
  const byExpiry = new Map<string, string>();
  const assets = new Set<string>();
  const withPlan: AssetRecord[] = [];
  const listed = forEachType(() => ({ contents: [] as [string, string][], expiries: [] as (number | undefined)[] }));
  const onCorrupt = ({ rowKey }: { rowKey: string }) => suspectedKeys.add(rowKey);
  for await (const rows of tables.pages(Assets, { ...indexRange(partitions.vault(vault.name)), onCorrupt })) {
    for (const row of rows) {
      // Rows by expiry sort before those by name.
      if (!row.rowKey.startsWith(NAME_PREFIX)) {
        byExpiry.set(row.rowKey, hashOf(row));
        continue;
      }
      if (row.rowKey !== nameKey(row.type, row.name, vault.name)) {
        suspectedKeys.add(row.rowKey);
        continue;
      }
      for (const key of indexKeys(row, vault.name)) {
        if (byExpiry.get(key) !== hashOf(row)) suspectedKeys.add(key);
        byExpiry.delete(key);
      }
      assets.add(`${row.type}.${row.name.toLowerCase()}`);
      listed[row.type].contents.push([row.name, row.content]);
      listed[row.type].expiries.push(row.expiresOn);
      if (row.renewal) withPlan.push(row);
    }
  }
  for (const key of byExpiry.keys()) suspectedKeys.add(key);
  const types = ASSET_TYPES.filter((type) => {
    // `vault.contents` has the fingerprints. Without one, the list was never read, or the next scan reads it again.
    if (!vault.contents[type]) return false;
    const { contents, expiries } = listed[type];
    return (
      vault.contents[type] !== fingerprint(contents) ||
      !sameBytes(expiriesOf(vault, type), packExpiries(expiries)) ||
      (type === "certificate" && !sameBytes(vault.certificateRenewals, packPlanned(withPlan)))
    );
  });
  return { rows: [...suspectedKeys], types, assets };
}

const sameBytes = (a: Uint8Array | undefined, b: Uint8Array): boolean => Buffer.compare(a ?? new Uint8Array(), b) === 0;

/** A wrong row of an asset. */
export interface Fault {
  readonly partitionKey: string;
  readonly key: string;
  readonly kind: DifferenceKind;
  /** ETag of the row, if it exists. */
  readonly etag: string | undefined;
  /** The asset's own row, of which this row should be a copy. Undefined if this row should not exist. */
  readonly original: AssetRecord | undefined;
}

/** Result of the second check of suspected rows of one vault. */
export interface Recheck {
  readonly faults: readonly Fault[];
  /** Assets whose own row can't be read or does not match its hash. */
  readonly broken: readonly { readonly type: AssetType; readonly name: string }[];
}

/**
 * Reads suspected rows again and compares them with the assets' own rows.
 *
 * @param vault - The vault's row. Undefined if the inventory no longer has it, so that all of its rows are superfluous.
 */
export async function recheckRows(
  tables: Tables,
  vault: VaultRecord | undefined,
  suspected: readonly { readonly partitionKey: string; readonly key: string }[],
): Promise<Recheck> {
  const broken = new Map<string, { type: AssetType; name: string }>();
  const faults = await pMap(
    suspected,
    async ({ partitionKey, key }): Promise<Fault | undefined> => {
      const [suspect, original] = await Promise.all([
        readRowOrCorrupt(tables, Assets, partitionKey, key),
        vault && readOriginal(tables, vault, partitionKey, key),
      ]);
      if (original === "broken") {
        const { type, name } = parseIndexKey(key)!;
        broken.set(`${type}.${name}`, { type, name });
        return undefined;
      }
      const etag = suspect.row?.etag ?? suspect.unreadable?.etag;
      const kind = kindOf(suspect.row, suspect.unreadable !== undefined, original);
      return kind && { partitionKey, key, kind, etag, original };
    },
    { concurrency: READS_AT_ONCE },
  );
  return { faults: faults.filter((fault) => fault !== undefined), broken: [...broken.values()] };
}

function kindOf(
  row: AssetRecord | undefined,
  unreadable: boolean,
  original: AssetRecord | undefined,
): DifferenceKind | undefined {
  if (unreadable) return "unreadable";
  if (row === undefined) return original && "missing";
  if (original === undefined) return "extra";
  return hashOf(row) === hashOf(original) ? undefined : "stale";
}

/**
 * Returns the asset's own row, of which the row with this key should be a copy. Undefined if no such row should exist. `broken`
 * if the asset's own row can't be read or is wrong itself.
 */
async function readOriginal(
  tables: Tables,
  vault: VaultRecord,
  partitionKey: string,
  key: string,
): Promise<AssetRecord | "broken" | undefined> {
  const { name: vaultName, subscriptionId } = vault;
  const index = parseIndexKey(key);
  const vaultPartitions = [partitions.all, partitions.subscription(subscriptionId), partitions.vault(vaultName)];
  if (!index || index.vault !== vaultName.toLowerCase() || !vaultPartitions.includes(partitionKey)) return undefined;
  const originalRow = await readRowOrCorrupt(
    tables,
    Assets,
    partitions.vault(vaultName),
    nameKey(index.type, index.name, vaultName),
  );
  if (originalRow.unreadable || (originalRow.row && !isConsistent(originalRow.row, index, vault))) return "broken";
  if (!originalRow.row) return undefined;
  if (index.kind === "name") return originalRow.row;
  return indexKeys({ ...originalRow.row, type: index.type, name: index.name }, vaultName).includes(key)
    ? originalRow.row
    : undefined;
}

/** Returns whether a row matches the type and the lower-case name in its key, its vault, and its own hash. */
export function isConsistent(
  row: Row<AssetRecord> | AssetRecord,
  { type, name }: { type: AssetType; name: string },
  vault: VaultRecord,
): boolean {
  const { firstSeenAt: _first, content, ...facts } = withoutKeys(row);
  return (
    row.type === type &&
    row.name.toLowerCase() === name &&
    row.vaultName.toLowerCase() === vault.name.toLowerCase() &&
    contentHash(facts) === content
  );
}
