import { ChangedVaults, markKey } from "../inventory/changed-vaults.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";

/**
 * Checks and repairs the rows of vaults. Each vault has its own row and a copy of it under its subscription. Both are written
 * in one transaction.
 */

/**
 * Returns the fault of a copy of a vault's row, with its repair. Undefined if the copy is right.
 *
 * @param key - Row key of the copy. It may belong to no vault, or to another subscription than the vault's.
 */
export async function copyFault(
  tables: Tables,
  vault: Row<VaultRecord> | undefined,
  key: string,
): Promise<{ kind: DifferenceKind; repair: () => Promise<unknown> } | undefined> {
  const copy = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
  const etag = copy.row?.etag ?? copy.unreadable?.etag;
  if (!vault || key !== vaultInSubscriptionKey(vault.subscriptionId, vault.name)) {
    return etag === undefined ? undefined : { kind: "extra", repair: () => tables.remove(Vaults, VAULTS, key, etag) };
  }
  if (copy.row && hashOf(copy.row) === hashOf(vault)) return undefined;
  const kind = copy.unreadable ? "unreadable" : copy.row ? "stale" : "missing";
  // Writes the copy. The unchanged vault's row is part of the transaction, so that it fails if the vault was written meanwhile.
  const rewrite: Operation[] = [
    replace(Vaults, vault.rowKey, withoutKeys(vault), vault.etag),
    put(Vaults, key, withoutKeys(vault)),
  ];
  return { kind, repair: () => tables.transaction(Vaults.table, VAULTS, rewrite) };
}

/**
 * Repairs a vault's own row that can't be read. Restores the row from its copy, without fingerprints, so that the next scan
 * reads all lists. Without a copy, removes the row, and the next scan finds the vault again.
 */
export async function repairVaultRow(tables: Tables, name: string): Promise<void> {
  const key = vaultKey(name);
  const { unreadable } = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
  if (!unreadable) return;
  const copy = await copyOf(tables, name);
  // Marks the vault as changed, because it is unknown with which values the totals contain it. `unkept`: the mark itself has no
  // values, so readers use those of the vault's row.
  const markChanged = put(ChangedVaults, markKey(name), { unkept: true });
  if (!copy) {
    await tables.transaction(Vaults.table, VAULTS, [remove(Vaults, key, unreadable.etag), markChanged]);
    return;
  }
  const record: VaultRecord = { ...withoutKeys(copy), listings: {}, contents: {} };
  await tables.transaction(Vaults.table, VAULTS, [
    replace(Vaults, key, record, unreadable.etag),
    replace(Vaults, copy.rowKey, record, copy.etag),
    markChanged,
  ]);
}

/** Restores a vault's missing row from its copy, without fingerprints, so that the next scan reads all lists. */
export async function restoreVaultRow(tables: Tables, copy: Row<VaultRecord>): Promise<void> {
  const record: VaultRecord = { ...withoutKeys(copy), listings: {}, contents: {} };
  await tables.transaction(Vaults.table, VAULTS, [
    insert(Vaults, vaultKey(record.name), record),
    replace(Vaults, copy.rowKey, record, copy.etag),
    put(ChangedVaults, markKey(record.name), { unkept: true }),
  ]);
}

/** Returns the copy of a vault's row under any subscription. */
async function copyOf(tables: Tables, name: string): Promise<Row<VaultRecord> | undefined> {
  // Row keys of copies: `s!<subscription>!<vault>`.
  const range = { partitionKey: VAULTS, from: "s!", before: keyEnd("s!"), onCorrupt: () => undefined };
  for await (const rows of tables.pages(Vaults, range)) {
    const copy = rows.find(({ rowKey }) => rowKey.endsWith(`!${name.toLowerCase()}`));
    if (copy) return copy;
  }
  return undefined;
}
