import pMap from "p-map";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType, contentOf, fingerprint } from "../inventory/asset.ts";
import { packExpiries } from "../inventory/expiries.ts";
import { expiryKey, nameKey, partitions } from "../inventory/asset-keys.ts";
import { expiriesOf, forEachType, type VaultRecord } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { indexRange, isIndexKey, parseIndexKey, readStanding } from "./doubt.ts";

const READS_AT_ONCE = 8;

/** What a vault's own partition says. */
export interface InspectedVault {
  /** Index rows that do not follow from the rows by name, or can't be read. */
  readonly rows: readonly string[];
  /** Types whose fingerprint or packed expiries in the vault's row are not those of its rows. */
  readonly types: readonly AssetType[];
  /** Its assets, as `<type>.<name>`. */
  readonly assets: ReadonlySet<string>;
}

/** Holds a vault's partition and its row against the vault's rows by name. One request per 1,000 rows, two rows an asset. */
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
      if (!row.rowKey.startsWith("n!")) continue;
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
    // Nothing was listed yet, or it is to be listed again: nothing is claimed.
    if (!vault.contents[type]) return false;
    const { contents, expiries } = listed[type];
    return (
      vault.contents[type] !== fingerprint(contents) || !sameBytes(expiriesOf(vault, type), packExpiries(expiries))
    );
  });
  return { rows: [...doubted], types, assets };
}

const sameBytes = (a: Uint8Array | undefined, b: Uint8Array): boolean => Buffer.compare(a ?? new Uint8Array(), b) === 0;

/** An index row that is wrong. */
export interface Fault {
  readonly partitionKey: string;
  readonly key: string;
  readonly kind: DifferenceKind;
  /** The row's, where one stands. */
  readonly etag: string | undefined;
  /** The vault's own row by name, from which this one follows; undefined where none should stand. */
  readonly follows: AssetRecord | undefined;
}

/** What a second look at doubted index rows of one vault found. */
export interface SecondLook {
  readonly faults: readonly Fault[];
  /** Assets whose own row by name can't be read, or is not what its hash says. */
  readonly broken: readonly { readonly type: AssetType; readonly name: string }[];
}

/**
 * Reads doubted rows once more and holds them against the vault's own rows by name.
 *
 * @param vault - The vault's row; undefined when the inventory has it no more, so that none of its rows should stand.
 */
export async function lookAgain(
  tables: Tables,
  vault: VaultRecord | undefined,
  doubts: readonly { readonly partitionKey: string; readonly key: string }[],
): Promise<SecondLook> {
  const broken = new Map<string, { type: AssetType; name: string }>();
  const faults = await pMap(
    doubts,
    async ({ partitionKey, key }): Promise<Fault | undefined> => {
      const [standing, follows] = await Promise.all([
        readStanding(tables, Assets, partitionKey, key),
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

/** The vault's own row by name that this row should be a copy of; undefined when this row should not stand. */
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
  const own = await readStanding(
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

/** Whether a row is what its key, its vault and its own hash say. */
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
