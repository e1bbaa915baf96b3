import * as z from "zod";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { type AssetRecord, sourceOf } from "./asset.ts";
import type { Moment } from "./health.ts";
import { type AssetQueries, createAssetQueries } from "./query.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey } from "./vault.ts";
import { type InventoryWriter, type RecordChanges, VaultBusy } from "./write.ts";

/** The inventory's questions, and leaving it. Writing is the scans' (write.ts). */
export interface Inventory {
  assets: AssetQueries;
  /** Now, and the thresholds in force. */
  moment(): Promise<Moment>;
  /** Vaults by name, of all or of one subscription. A request per 1,000 vaults, which are all counted. */
  vaults(filter: { subscription?: string | undefined }, request: PageRequest): Promise<Page<Row<VaultRecord>>>;
  /**
   * Takes a subscription's vaults and assets out of the inventory; answers how many. May be done again after a failure.
   *
   * @throws {Problem} conflict while something else writes one of them.
   */
  forgetSubscription(subscriptionId: string): Promise<{ vaults: number; assets: number }>;
}

export function createInventory(deps: {
  tables: Tables;
  settings: Settings;
  clock: Clock;
  randomness: Randomness;
  ownerTag: string;
  writer: InventoryWriter;
  /** Whether there is a PRO licence: credentials that are no vault's count only with one. */
  licensed: () => Promise<boolean>;
  /** Run for every vault that leaves. */
  vaultLeaves: (vault: VaultRecord) => Promise<RecordChanges>;
}): Inventory {
  const { tables, clock, writer } = deps;
  const assets = createAssetQueries({ tables, ownerTag: deps.ownerTag, licensed: deps.licensed });

  return {
    assets,

    async moment() {
      const { criticalExpiryDays, warningExpiryDays } = await deps.settings.values();
      return { now: clock.now().getTime(), criticalDays: criticalExpiryDays, warningDays: warningExpiryDays };
    },

    async vaults(filter, request) {
      const prefix = filter.subscription ? vaultInSubscriptionKey(filter.subscription, "") : "n!";
      const cursor =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().max(512) }), request.cursor);
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      let total = 0;
      const keys: string[] = [];
      for await (const rows of tables.pages(Vaults, { ...range, select: ["name", "source"] })) {
        const found = rows.filter((row) => sourceOf(row) === "keyVault");
        total += found.length;
        for (const row of found) if (!cursor || row.rowKey > prefix + cursor.after) keys.push(row.rowKey);
      }
      const wanted = keys.slice(request.offset, request.offset + request.limit);
      const items: Row<VaultRecord>[] = [];
      const [first, last] = [wanted[0], wanted.at(-1)];
      if (first !== undefined && last !== undefined) {
        for await (const rows of tables.pages(Vaults, { partitionKey: VAULTS, from: first, before: `${last}!` }))
          items.push(...rows.filter((row) => sourceOf(row) === "keyVault"));
      }
      return {
        items,
        total,
        limit: request.limit,
        offset: request.offset,
        nextCursor:
          last !== undefined && last !== keys.at(-1) ? encodeCursor({ after: last.slice(prefix.length) }) : null,
      };
    },

    async forgetSubscription(subscriptionId) {
      const prefix = vaultInSubscriptionKey(subscriptionId, "");
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      const owner = `removal/${deps.randomness.ulid(clock.now())}`;
      const gone = { vaults: 0, assets: 0 };
      for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) {
        for (const { name } of rows) {
          const assets = await forgetVault(name, subscriptionId, owner).catch(busyIsConflict);
          if (!assets) continue;
          gone.assets += assets.length;
          gone.vaults++;
        }
      }
      return gone;
    },
  };

  /** Undefined when it is not there any more, or was found in another subscription in the meantime. */
  async function forgetVault(name: string, subscriptionId: string, owner: string): Promise<AssetRecord[] | undefined> {
    const known = await writer.known(name);
    if (known.row?.subscriptionId.toLowerCase() !== subscriptionId.toLowerCase()) return undefined;
    const vault = withoutKeys(known.row);
    return await writer.forget(known, owner, () => deps.vaultLeaves(vault));
  }
}

function busyIsConflict(error: unknown): never {
  if (!(error instanceof VaultBusy)) throw error;
  throw new Problem("conflict", `${error.message}. Repeat the request then.`);
}
