import { ChangedVaults, changedKey } from "../inventory/changed-vaults.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";

/** Returns the problem of the copy of a vault's row under a key, with its repair. Undefined if it is right. */
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
  // Writes both rows in one transaction, like every write of a vault: the copy, and the unchanged row by its ETag.
  const rewrite: Operation[] = [
    replace(Vaults, vault.rowKey, withoutKeys(vault), vault.etag),
    put(Vaults, key, withoutKeys(vault)),
  ];
  return { kind, repair: () => tables.transaction(Vaults.table, VAULTS, rewrite) };
}

/** Restores the row from its copy, with nothing listed. Without a copy, removes it, and the next scan finds the vault again. */
export async function repairVaultRow(tables: Tables, name: string): Promise<void> {
  const key = vaultKey(name);
  const { unreadable } = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
  if (!unreadable) return;
  const copy = await copyOf(tables, name);
  // Its state in the totals is unknown. Its own row is read until the totals are renewed.
  const unknown = put(ChangedVaults, changedKey(name), { unkept: true });
  if (!copy) {
    await tables.transaction(Vaults.table, VAULTS, [remove(Vaults, key, unreadable.etag), unknown]);
    return;
  }
  const record: VaultRecord = { ...withoutKeys(copy), listings: {}, contents: {} };
  await tables.transaction(Vaults.table, VAULTS, [
    replace(Vaults, key, record, unreadable.etag),
    replace(Vaults, copy.rowKey, record, copy.etag),
    unknown,
  ]);
}

async function copyOf(tables: Tables, name: string): Promise<Row<VaultRecord> | undefined> {
  const range = { partitionKey: VAULTS, from: "s!", before: keyEnd("s!"), onCorrupt: () => undefined };
  for await (const rows of tables.pages(Vaults, range)) {
    const found = rows.find(({ rowKey }) => rowKey.endsWith(`!${name.toLowerCase()}`));
    if (found) return found;
  }
  return undefined;
}
