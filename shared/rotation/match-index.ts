import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import { Assets, sourceOf } from "../inventory/asset.ts";
import { namePrefix, nameRange, partitions } from "../inventory/asset-keys.ts";
import { VAULTS, Vaults } from "../inventory/vault.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd, keyText, keyTextOf } from "../platform/storage/keys.ts";
import { pack, unpack } from "../platform/storage/packed-members.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { guidsOf } from "./match-evidence.ts";

/** Says that a secret's metadata contains a GUID. All data is in the key. */
const GuidEntries = entity("RotationMatchIndex", z.object({}));
const GUIDS = "guids";
const guidKey = (guid: string, vaultName: string, secretName: string): string =>
  `${guid}|${keyText(vaultName.toLowerCase())}|${keyText(secretName.toLowerCase())}`;

/** State of the index for one vault: the content it was built from, and its keys. */
const Indexed = entity(
  "RotationMatchIndex",
  z.object({
    /** Hash of `contents.secret` of the vault's row. Empty during a build. */
    contents: z.string(),
    builtAt: z.string(),
    /** Row keys of this vault in the partition `guids`, packed. */
    keys: z.instanceof(Uint8Array),
  }),
);
const INDEXED = "vaults";

/** Number of vaults that were missing or stale in the index after its last update. */
const Status = entity("RotationMatchIndex", z.object({ at: z.string(), vaults: z.int(), waiting: z.int() }));
const STATUS = "status";

/** Time that one call works, well below the platform's limit. The next call continues. */
const BUDGET_MS = 3 * MINUTE_MS;
const PARALLEL = 4;
/** Every vault is rebuilt after this time even without changes, because no fence protects the rows of the index. */
const REBUILD_MS = 7 * DAY_MS;

/**
 * Index of the GUIDs in the tags, content types and names of secrets. It can be stale: secrets changed since the last update
 * may be missing or listed wrongly, so callers check the secret itself.
 */
export interface MatchIndex {
  /** Returns at most `limit` secrets that contain the GUID. Makes one request per 1,000. */
  holding(guid: string, limit: number): Promise<{ vaultName: string; secretName: string }[]>;
  /** Returns undefined before the first build. */
  status(): Promise<{ at: string; vaults: number; waiting: number } | undefined>;
  /**
   * Updates the index from the inventory. Makes two requests per 1,000 vaults. For each vault whose secrets changed: one
   * request per 1,000 secrets and one per 100 keys. Safe to repeat and to run concurrently.
   */
  update(): Promise<void>;
}

export function createMatchIndex(deps: { tables: Tables; clock: Clock; log: Logger }): MatchIndex {
  const { tables, clock, log } = deps;

  async function build(vaultName: string, contents: string): Promise<void> {
    const row = vaultName.toLowerCase();
    const keys: string[] = [];
    const prefix = namePrefix("secret");
    const range = { partitionKey: partitions.vault(vaultName), from: prefix, before: keyEnd(prefix) };
    for await (const secrets of tables.pages(Assets, { ...range, select: ["name", "contentType", "tags"] })) {
      for (const secret of secrets)
        for (const guid of guidsOf(secret)) keys.push(guidKey(guid, vaultName, secret.name));
    }
    const before = await tables.get(Indexed, INDEXED, row);
    const there = new Set(keys);
    const gone = before ? keysOf(before).filter((key) => !there.has(key)) : [];
    await tables.write(GuidEntries.table, GUIDS, [
      ...keys.map((key) => put(GuidEntries, key, {})),
      ...gone.map((key) => remove(GuidEntries, key)),
    ]);
    // Written last, so that the next call repeats an interrupted build.
    await tables.put(Indexed, INDEXED, row, { contents, builtAt: clock.now().toISOString(), keys: pack(keys) });
  }

  async function forget(row: string): Promise<void> {
    const known = await tables.get(Indexed, INDEXED, row);
    if (!known) return;
    await tables.write(
      GuidEntries.table,
      GUIDS,
      keysOf(known).map((key) => remove(GuidEntries, key)),
    );
    await tables.remove(Indexed, INDEXED, row);
  }

  return {
    async holding(guid, limit) {
      const prefix = `${guid.toLowerCase()}|`;
      const found: { vaultName: string; secretName: string }[] = [];
      const pageSize = Math.min(1000, limit);
      for await (const rows of tables.pages(GuidEntries, {
        partitionKey: GUIDS,
        from: prefix,
        before: keyEnd(prefix),
        pageSize,
      })) {
        for (const { rowKey } of rows) {
          const [, vaultName, secretName] = rowKey.split("|").map(keyTextOf);
          found.push({ vaultName: vaultName!, secretName: secretName! });
        }
        if (found.length >= limit) break;
      }
      return found.slice(0, limit);
    },

    status: () => tables.get(Status, STATUS, STATUS),

    async update() {
      const now = clock.now();
      const [began, stale] = [performance.now(), new Date(now.getTime() - REBUILD_MS).toISOString()];
      const known = new Map<string, { contents: string; builtAt: string }>();
      const all = { partitionKey: INDEXED, select: ["contents", "builtAt"] as const };
      for await (const rows of tables.pages(Indexed, { ...all, select: [...all.select] }))
        for (const { rowKey, contents, builtAt } of rows) known.set(rowKey, { contents, builtAt });

      const due: { name: string; contents: string }[] = [];
      let vaults = 0;
      const range = {
        ...nameRange(VAULTS),
        select: ["name" as const, "source" as const, "contents" as const],
      };
      for await (const rows of tables.pages(Vaults, range)) {
        for (const vault of rows) {
          const { name, contents } = vault;
          // A holder groups credentials of applications. It contains no vault secrets.
          if (sourceOf(vault) !== "keyVault") continue;
          vaults++;
          const wanted = hashOf(contents.secret);
          const built = known.get(name.toLowerCase());
          known.delete(name.toLowerCase());
          if (built?.contents !== wanted || built.builtAt < stale) due.push({ name, contents: wanted });
        }
      }
      let waiting = due.length;
      const inTime = () => performance.now() - began < BUDGET_MS;
      await pMap(
        due,
        async ({ name, contents }) => {
          if (!inTime()) return;
          await build(name, contents);
          waiting--;
        },
        { concurrency: PARALLEL },
      );
      // The remaining entries belong to vaults that left the inventory.
      await pMap([...known.keys()], (row) => forget(row), { concurrency: PARALLEL });
      await tables.put(Status, STATUS, STATUS, { at: now.toISOString(), vaults, waiting });
      if (waiting > 0) log.info("The index of matches continues with the next run", { vaults, waiting });
    },
  };
}

const keysOf = (row: Row<{ keys: Uint8Array }>): string[] => unpack(Indexed, row, "keys", z.array(z.string()));

const hashOf = (contents: string | undefined): string =>
  createHash("sha256")
    .update(contents ?? "none")
    .digest("base64url")
    .slice(0, 11);
