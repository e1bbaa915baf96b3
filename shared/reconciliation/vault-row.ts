import { ChangedVaults, changedKey } from "../inventory/changed-vaults.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { type DifferenceKind, hashOf } from "./compare.ts";
import { readStanding } from "./doubt.ts";

/** What is wrong with the copy of a vault's row under a key, and how to mend it; undefined when it is as it should be. */
export async function copyFault(
  tables: Tables,
  vault: Row<VaultRecord> | undefined,
  key: string,
): Promise<{ kind: DifferenceKind; mend: () => Promise<unknown> } | undefined> {
  const copy = await readStanding(tables, Vaults, VAULTS, key);
  const etag = copy.row?.etag ?? copy.unreadable?.etag;
  if (!vault || key !== vaultInSubscriptionKey(vault.subscriptionId, vault.name)) {
    return etag === undefined ? undefined : { kind: "extra", mend: () => tables.remove(Vaults, VAULTS, key, etag) };
  }
  if (copy.row && hashOf(copy.row) === hashOf(vault)) return undefined;
  const kind = copy.unreadable ? "unreadable" : copy.row ? "stale" : "missing";
  // Both rows in one transaction, as every write of a vault: the copy, and the row it follows from as it was seen.
  const rewrite: Operation[] = [
    replace(Vaults, vault.rowKey, withoutKeys(vault), vault.etag),
    put(Vaults, key, withoutKeys(vault)),
  ];
  return { kind, mend: () => tables.transaction(Vaults.table, VAULTS, rewrite) };
}

/** From its copy, with nothing listed; without a copy it goes, and the next scan finds the vault anew. */
export async function mendVaultRow(tables: Tables, name: string): Promise<void> {
  const key = vaultKey(name);
  const { unreadable } = await readStanding(tables, Vaults, VAULTS, key);
  if (!unreadable) return;
  const copy = await copyOf(tables, name);
  // How the totals count it can't be told: until they are renewed its own row is asked.
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
