import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import { Assets, sourceOf } from "../inventory/asset.ts";
import { namePrefix, nameRange, partitions } from "../inventory/asset-keys.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd, keyText, keyTextOf } from "../platform/storage/keys.ts";
import { pack, packedMember, unpack } from "../platform/storage/packed-members.ts";
import { put, remove, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { guidsOf } from "./match-evidence.ts";

/** Index entry: a secret's metadata contains a GUID. The row key has the GUID, the vault and the secret. */
const GuidEntries = entity("RotationMatchIndex", z.object({}));
const GUIDS = "guids";
const guidKey = (guid: string, vaultName: string, secretName: string): string =>
  `${guid}|${keyText(vaultName.toLowerCase())}|${keyText(secretName.toLowerCase())}`;

/** State of the index for one vault: the content it was built from, and its keys. */
export const VaultIndexes = entity(
  "RotationMatchIndex",
  z.object({
    /** Hash of `contents.secret` of the vault's row in the inventory, which changes with the secrets of the vault. */
    contents: z.string(),
    builtAt: z.string(),
    /** Row keys of this vault in the partition `guids`, packed. */
    keys: packedMember(z.array(z.string())),
  }),
);
const VAULT_INDEX_PARTITION = "vaults";

/** Result of the last update: the number of key vaults, and how many of them were still missing or stale (`waiting`). */
export const Status = entity("RotationMatchIndex", z.object({ at: z.string(), vaults: z.int(), waiting: z.int() }));
const STATUS = "status";

/** Maximum duration of one update, well below the time limit of the Functions host. The next update continues. */
const MAX_DURATION_MS = 3 * MINUTE_MS;
const PARALLEL = 4;
/** A vault's entries are rebuilt after this time even without changes, to correct what concurrent updates left wrong. */
const REBUILD_MS = 7 * DAY_MS;

/**
 * Index of the GUIDs in the tags, content types and names of vault secrets, which finds secrets that name an application or
 * credential. A timer updates it. It can be outdated, so callers must check the secret itself.
 */
export interface MatchIndex {
  /** Returns at most `limit` secrets that contain the GUID. Makes one request per 1,000. */
  findSecrets(guid: string, limit: number): Promise<{ vaultName: string; secretName: string }[]>;
  /** Returns how complete the index is, or undefined before the first update. */
  status(): Promise<{ at: string; vaults: number; waiting: number } | undefined>;
  /**
   * Updates the index from the inventory. Makes two requests per 1,000 vaults. For each vault whose secrets changed: one
   * request per 1,000 secrets and one per 100 keys. Safe to repeat and to run concurrently.
   */
  update(): Promise<void>;
}

export function createMatchIndex(deps: { tables: Tables; clock: Clock; log: Logger }): MatchIndex {
  const { tables, clock, log } = deps;

  /**
   * Returns the keys of a vault's entries. If the row of the vault's index can't be read, finds the keys among the entries of
   * all vaults: one request per 1,000.
   *
   * @param vaultRowKey - Name of the vault in lower case.
   */
  async function storedKeys(vaultRowKey: string): Promise<string[]> {
    try {
      const vaultIndex = await tables.get(VaultIndexes, VAULT_INDEX_PARTITION, vaultRowKey);
      return vaultIndex ? unpackKeys(vaultIndex) : [];
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
    }
    const keys: string[] = [];
    for await (const entries of tables.pages(GuidEntries, { partitionKey: GUIDS }))
      for (const { rowKey } of entries) if (rowKey.split("|")[1] === keyText(vaultRowKey)) keys.push(rowKey);
    return keys;
  }

  /** Builds the entries of a vault again, and removes those that its secrets no longer have. */
  async function indexVault(vaultName: string, contents: string): Promise<void> {
    const vaultRowKey = vaultName.toLowerCase();
    const keys: string[] = [];
    const prefix = namePrefix("secret");
    const range = { partitionKey: partitions.vault(vaultName), from: prefix, before: keyEnd(prefix) };
    for await (const secrets of tables.pages(Assets, { ...range, select: ["name", "contentType", "tags"] })) {
      for (const secret of secrets)
        for (const guid of guidsOf(secret)) keys.push(guidKey(guid, vaultName, secret.name));
    }
    const currentKeys = new Set(keys);
    const staleKeys = (await storedKeys(vaultRowKey)).filter((key) => !currentKeys.has(key));
    await tables.write(GuidEntries.table, GUIDS, [
      ...keys.map((key) => put(GuidEntries, key, {})),
      ...staleKeys.map((key) => remove(GuidEntries, key)),
    ]);
    // Written last, so that the next call repeats an interrupted build.
    await tables.put(VaultIndexes, VAULT_INDEX_PARTITION, vaultRowKey, {
      contents,
      builtAt: clock.now().toISOString(),
      keys: pack(keys),
    });
  }

  async function removeVault(vaultRowKey: string): Promise<void> {
    const removals = (await storedKeys(vaultRowKey)).map((key) => remove(GuidEntries, key));
    await tables.write(GuidEntries.table, GUIDS, removals);
    await tables.remove(VaultIndexes, VAULT_INDEX_PARTITION, vaultRowKey);
  }

  return {
    async findSecrets(guid, limit) {
      const prefix = `${guid.toLowerCase()}|`;
      const secrets: { vaultName: string; secretName: string }[] = [];
      const pageSize = Math.min(1000, limit);
      for await (const rows of tables.pages(GuidEntries, {
        partitionKey: GUIDS,
        from: prefix,
        before: keyEnd(prefix),
        pageSize,
      })) {
        for (const { rowKey } of rows) {
          const [, vaultName, secretName] = rowKey.split("|").map(keyTextOf);
          secrets.push({ vaultName: vaultName!, secretName: secretName! });
        }
        if (secrets.length >= limit) break;
      }
      return secrets.slice(0, limit);
    },

    status: () => tables.get(Status, STATUS, STATUS),

    async update() {
      const now = clock.now();
      const startedAt = performance.now();
      const rebuildIfBuiltBefore = new Date(now.getTime() - REBUILD_MS).toISOString();
      const indexedVaults = new Map<string, { contents: string; builtAt: string }>();
      const all = {
        partitionKey: VAULT_INDEX_PARTITION,
        select: ["contents" as const, "builtAt" as const],
        // Without valid members, the vault is due and its index is built again.
        onCorrupt: ({ rowKey }: StorageCorrupt) => void indexedVaults.set(rowKey, { contents: "", builtAt: "" }),
      };
      for await (const rows of tables.pages(VaultIndexes, all))
        for (const { rowKey, contents, builtAt } of rows) indexedVaults.set(rowKey, { contents, builtAt });

      const due: { name: string; contents: string }[] = [];
      let vaults = 0;
      let unreadable = 0;
      const range = {
        ...nameRange(VAULTS),
        select: ["name" as const, "source" as const, "contents" as const],
        // The index of a vault whose row can't be read stays, and the vault counts as waiting.
        onCorrupt: ({ message, rowKey }: StorageCorrupt) => {
          log.error(message);
          unreadable++;
          for (const name of indexedVaults.keys()) if (vaultKey(name) === rowKey) indexedVaults.delete(name);
        },
      };
      for await (const rows of tables.pages(Vaults, range)) {
        for (const vault of rows) {
          const { name, contents } = vault;
          // Other sources group credentials of applications in rows like those of vaults, but have no vault secrets.
          if (sourceOf(vault) !== "keyVault") continue;
          vaults++;
          const contentsHash = hashOf(contents.secret);
          const built = indexedVaults.get(name.toLowerCase());
          // The vaults that stay in the map are not in the inventory any more.
          indexedVaults.delete(name.toLowerCase());
          if (built?.contents !== contentsHash || built.builtAt < rebuildIfBuiltBefore)
            due.push({ name, contents: contentsHash });
        }
      }
      let waiting = due.length;
      const hasTimeLeft = () => performance.now() - startedAt < MAX_DURATION_MS;
      await pMap(
        due,
        async ({ name, contents }) => {
          if (!hasTimeLeft()) return;
          try {
            await indexVault(name, contents);
            waiting--;
          } catch (error) {
            // A secret of the vault can't be read. The next update tries again.
            if (!(error instanceof StorageCorrupt)) throw error;
          }
        },
        { concurrency: PARALLEL },
      );
      // The remaining entries belong to vaults that left the inventory.
      await pMap([...indexedVaults.keys()], (vaultRowKey) => removeVault(vaultRowKey), { concurrency: PARALLEL });
      waiting += unreadable;
      vaults += unreadable;
      await tables.put(Status, STATUS, STATUS, { at: now.toISOString(), vaults, waiting });
      if (waiting > 0) log.info("The index of matches continues with the next run", { vaults, waiting });
    },
  };
}

const unpackKeys = (row: Row<{ keys: Uint8Array }>): string[] => unpack(VaultIndexes, row, "keys", z.array(z.string()));

/** Returns a hash that shows whether the secrets changed: 11 characters of 6 bits. */
const hashOf = (contents: string | undefined): string =>
  createHash("sha256")
    .update(contents ?? "none")
    .digest("base64url")
    .slice(0, 11);
