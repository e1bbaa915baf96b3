import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import { Assets, sourceOf } from "../inventory/asset.ts";
import { namePrefix, partitions } from "../inventory/layout.ts";
import { VAULTS, Vaults } from "../inventory/vault.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd, keyText, keyTextOf } from "../platform/storage/keys.ts";
import { pack, unpack } from "../platform/storage/packed-members.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { guidsOf } from "./match-evidence.ts";

/** That a secret's metadata holds a GUID. The key says all. */
const Held = entity("RotationMatchIndex", z.object({}));
const GUIDS = "guids";
const heldKey = (guid: string, vaultName: string, secretName: string): string =>
  `${guid}|${keyText(vaultName.toLowerCase())}|${keyText(secretName.toLowerCase())}`;

/** Which content of a vault's secrets the index was built from, and the keys that came of it. */
const Indexed = entity(
  "RotationMatchIndex",
  z.object({
    /** Hash of what `contents.secret` of the vault's row was; empty while it is being built. */
    contents: z.string(),
    builtAt: z.string(),
    /** The keys in `guids`, packed. */
    keys: z.instanceof(Uint8Array),
  }),
);
const INDEXED = "vaults";

/** How many vaults were not in the index yet when it was last brought up to date. */
const Status = entity("RotationMatchIndex", z.object({ at: z.string(), vaults: z.int(), waiting: z.int() }));
const STATUS = "status";

/** What one call works at most: well under the platform's limit, the next call goes on. */
const BUDGET_MS = 3 * MINUTE_MS;
const PARALLEL = 4;
/** Each vault is built again so often, whatever it has, since nothing fences the index's rows. */
const REBUILD_MS = 7 * DAY_MS;

/**
 * Which secrets hold a GUID in a tag, the content type or the name. It may lack what changed since it was brought up to
 * date, and may name secrets that hold the GUID no more: who asks it looks at the secret itself.
 */
export interface MatchIndex {
  /** Secrets that hold the GUID, at most `limit`. One request per 1,000. */
  holding(guid: string, limit: number): Promise<{ vaultName: string; secretName: string }[]>;
  /** Undefined until it was first built. */
  status(): Promise<{ at: string; vaults: number; waiting: number } | undefined>;
  /**
   * Brings it up to date with the inventory: two requests per 1,000 vaults, and for each vault whose secrets changed one per
   * 1,000 secrets and one per 100 keys. May be done twice, and at once.
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
        for (const guid of guidsOf(secret)) keys.push(heldKey(guid, vaultName, secret.name));
    }
    const before = await tables.get(Indexed, INDEXED, row);
    const there = new Set(keys);
    const gone = before ? keysOf(before).filter((key) => !there.has(key)) : [];
    await tables.write(Held.table, GUIDS, [
      ...keys.map((key) => put(Held, key, {})),
      ...gone.map((key) => remove(Held, key)),
    ]);
    // Last: until then the next call builds it again.
    await tables.put(Indexed, INDEXED, row, { contents, builtAt: clock.now().toISOString(), keys: pack(keys) });
  }

  async function forget(row: string): Promise<void> {
    const known = await tables.get(Indexed, INDEXED, row);
    if (!known) return;
    await tables.write(
      Held.table,
      GUIDS,
      keysOf(known).map((key) => remove(Held, key)),
    );
    await tables.remove(Indexed, INDEXED, row);
  }

  return {
    async holding(guid, limit) {
      const prefix = `${guid.toLowerCase()}|`;
      const found: { vaultName: string; secretName: string }[] = [];
      const pageSize = Math.min(1000, limit);
      for await (const rows of tables.pages(Held, {
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
        partitionKey: VAULTS,
        from: "n!",
        before: keyEnd("n!"),
        select: ["name" as const, "source" as const, "contents" as const],
      };
      for await (const rows of tables.pages(Vaults, range)) {
        for (const vault of rows) {
          const { name, contents } = vault;
          // What stands in a vault's place for the credentials of applications holds no secret of a vault.
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
      // What is left are vaults that are in the inventory no more.
      await pMap([...known.keys()], (row) => forget(row), { concurrency: PARALLEL });
      await tables.put(Status, STATUS, STATUS, { at: now.toISOString(), vaults, waiting });
      if (waiting > 0) log.info("The index of matches goes on with the next run", { vaults, waiting });
    },
  };
}

const keysOf = (row: Row<{ keys: Uint8Array }>): string[] => unpack(Indexed, row, "keys", z.array(z.string()));

const hashOf = (contents: string | undefined): string =>
  createHash("sha256")
    .update(contents ?? "none")
    .digest("base64url")
    .slice(0, 11);
