import pMap from "p-map";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType, contentOf, fingerprint } from "../inventory/asset.ts";
import { expiryKey, NAME_PREFIX, nameKey, partitions } from "../inventory/asset-keys.ts";
import { packExpiries } from "../inventory/expiries.ts";
import { expiriesOf, forEachType, type VaultRecord } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { indexRange, isIndexKey, parseIndexKey, readRowOrCorrupt } from "./suspected-differences.ts";

const READS_AT_ONCE = 8;

/** Problems found in a vault's own partition. */
export interface InspectedVault {
  /** Index rows that do not match the rows by name, or can't be read. */
  readonly rows: readonly string[];
  /** Types whose fingerprint or packed expiries in the vault's row do not match its rows. */
  readonly types: readonly AssetType[];
  /** Its assets, as `<type>.<name>`. */
  readonly assets: ReadonlySet<string>;
}

/** Compares a vault's partition and its row with the vault's rows by name. One request per 1,000 rows, two rows per asset. */
export async function inspectVault(tables: Tables, vault: VaultRecord): Promise<InspectedVault> {
  const doubted = new Set<string>();
  const byExpiry = new Map<string, string>();
  const assets = new Set<string>();
  const listed = forEachType(() => ({ contents: [] as [string, string][], expiries: [] as (number | undefined)[] }));
  const onCorrupt = ({ rowKey }: { rowKey: string }) => {
    if (isIndexKey(rowKey)) doubted.add(rowKey);
  };
  for await (const rows of tables.pages(Assets, { ...indexRange(partitions.vault(vault.name)), onCorrupt })) {
    for (const row of rows) {
      // Rows by expiry sort before those by name.
      if (row.rowKey.startsWith("e!")) byExpiry.set(row.rowKey, hashOf(row));
      if (!row.rowKey.startsWith(NAME_PREFIX)) continue;
      if (row.rowKey !== nameKey(row.type, row.name, vault.name)) {
        doubted.add(row.rowKey);
        continue;
      }
      const follows = expiryKey(row.type, row.expiresOn, row.name, vault.name);
      if (byExpiry.get(follows) !== hashOf(row)) doubted.add(follows);
      byExpiry.delete(follows);
      assets.add(`${row.type}.${row.name.toLowerCase()}`);
      listed[row.type].contents.push([row.name, row.content]);
      listed[row.type].expiries.push(row.expiresOn);
    }
  }
  for (const key of byExpiry.keys()) doubted.add(key);
  const types = ASSET_TYPES.filter((type) => {
    // Nothing is listed yet, or the list is to be read again.
    if (!vault.contents[type]) return false;
    const { contents, expiries } = listed[type];
    return (
      vault.contents[type] !== fingerprint(contents) || !sameBytes(expiriesOf(vault, type), packExpiries(expiries))
    );
  });
  return { rows: [...doubted], types, assets };
}

const sameBytes = (a: Uint8Array | undefined, b: Uint8Array): boolean => Buffer.compare(a ?? new Uint8Array(), b) === 0;

/** A wrong index row. */
export interface Fault {
  readonly partitionKey: string;
  readonly key: string;
  readonly kind: DifferenceKind;
  /** ETag of the row, if it exists. */
  readonly etag: string | undefined;
  /** The vault's own row by name of which this row should be a copy. Undefined if this row should not exist. */
  readonly follows: AssetRecord | undefined;
}

/** Result of the second check of suspected index rows of one vault. */
export interface SecondLook {
  readonly faults: readonly Fault[];
  /** Assets whose own row by name can't be read or does not match its hash. */
  readonly broken: readonly { readonly type: AssetType; readonly name: string }[];
}

/**
 * Reads suspected rows again and compares them with the vault's own rows by name.
 *
 * @param vault - The vault's row. Undefined if the inventory no longer has it, so that all of its rows are superfluous.
 */
export async function lookAgain(
  tables: Tables,
  vault: VaultRecord | undefined,
  suspected: readonly { readonly partitionKey: string; readonly key: string }[],
): Promise<SecondLook> {
  const broken = new Map<string, { type: AssetType; name: string }>();
  const faults = await pMap(
    suspected,
    async ({ partitionKey, key }): Promise<Fault | undefined> => {
      const [standing, follows] = await Promise.all([
        readRowOrCorrupt(tables, Assets, partitionKey, key),
        vault && followed(tables, vault, partitionKey, key),
      ]);
      if (follows === "broken") {
        const { type, name } = parseIndexKey(key)!;
        broken.set(`${type}.${name}`, { type, name });
        return undefined;
      }
      const etag = standing.row?.etag ?? standing.unreadable?.etag;
      const kind = kindOf(standing.row, standing.unreadable !== undefined, follows);
      return kind && { partitionKey, key, kind, etag, follows };
    },
    { concurrency: READS_AT_ONCE },
  );
  return { faults: faults.filter((fault) => fault !== undefined), broken: [...broken.values()] };
}

function kindOf(
  row: AssetRecord | undefined,
  unreadable: boolean,
  follows: AssetRecord | undefined,
): DifferenceKind | undefined {
  if (unreadable) return "unreadable";
  if (row === undefined) return follows && "missing";
  if (follows === undefined) return "extra";
  return hashOf(row) === hashOf(follows) ? undefined : "stale";
}

/** Returns the vault's own row by name of which this row should be a copy. Undefined if this row should not exist. */
async function followed(
  tables: Tables,
  vault: VaultRecord,
  partitionKey: string,
  key: string,
): Promise<AssetRecord | "broken" | undefined> {
  const { name: vaultName, subscriptionId } = vault;
  const index = parseIndexKey(key);
  const its = [partitions.all, partitions.subscription(subscriptionId), partitions.vault(vaultName)];
  if (!index || index.vault !== vaultName.toLowerCase() || !its.includes(partitionKey)) return undefined;
  const own = await readRowOrCorrupt(
    tables,
    Assets,
    partitions.vault(vaultName),
    nameKey(index.type, index.name, vaultName),
  );
  if (own.unreadable || (own.row && !isItself(own.row, index, vault))) return "broken";
  if (!own.row) return undefined;
  if (index.kind === "name") return own.row;
  return key === expiryKey(index.type, own.row.expiresOn, index.name, vaultName) ? own.row : undefined;
}

/** Returns whether a row matches its key, its vault and its own hash. */
export function isItself(
  row: Row<AssetRecord> | AssetRecord,
  { type, name }: { type: AssetType; name: string },
  vault: VaultRecord,
): boolean {
  const { firstSeenAt: _first, content, ...facts } = withoutKeys(row);
  return (
    row.type === type &&
    row.name.toLowerCase() === name &&
    row.vaultName.toLowerCase() === vault.name.toLowerCase() &&
    contentOf(facts) === content
  );
}
