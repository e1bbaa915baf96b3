import * as z from "zod";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import type { Moment } from "./health.ts";
import { createAssetQueries } from "./query.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey } from "./vault.ts";
import { type AssetChange, type InventoryWriter, VaultBusy } from "./write.ts";

/** The inventory's questions, and leaving it. Writing is the scans' (write.ts). */
export function createInventory(deps: {
  tables: Tables;
  settings: Settings;
  clock: Clock;
  ownerTag: string;
  writer: InventoryWriter;
  /** Told of every vault that leaves, before its rows do; may be told twice. */
  vaultLeaves: (vault: VaultRecord, assets: AssetChange[]) => Promise<void>;
}) {
  const { tables, clock, writer } = deps;
  const assets = createAssetQueries({ tables, ownerTag: deps.ownerTag });

  return {
    assets,

    /** Now, and the thresholds in force. */
    async moment(): Promise<Moment> {
      const { criticalExpiryDays, warningExpiryDays } = await deps.settings.values();
      return { now: clock.now().getTime(), criticalDays: criticalExpiryDays, warningDays: warningExpiryDays };
    },

    /** Vaults by name, of all or of one subscription. A request per 1,000 vaults, which are all counted. */
    async vaults(filter: { subscription?: string | undefined }, request: PageRequest): Promise<Page<Row<VaultRecord>>> {
      const prefix = filter.subscription ? vaultInSubscriptionKey(filter.subscription, "") : "n!";
      const cursor =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().max(512) }), request.cursor);
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      let total = 0;
      const keys: string[] = [];
      for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) {
        total += rows.length;
        for (const row of rows) if (!cursor || row.rowKey > prefix + cursor.after) keys.push(row.rowKey);
      }
      const wanted = keys.slice(request.offset, request.offset + request.limit);
      const items: Row<VaultRecord>[] = [];
      const [first, last] = [wanted[0], wanted.at(-1)];
      if (first !== undefined && last !== undefined) {
        for await (const rows of tables.pages(Vaults, { partitionKey: VAULTS, from: first, before: `${last}!` }))
          items.push(...rows);
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

    /**
     * Takes a subscription's vaults and assets out of the inventory. May be done again after a failure.
     * @throws {Problem} conflict while something else writes one of them.
     */
    async forgetSubscription(subscriptionId: string): Promise<{ vaults: number; assets: number }> {
      const prefix = vaultInSubscriptionKey(subscriptionId, "");
      const gone = { vaults: 0, assets: 0 };
      for await (const rows of tables.pages(Vaults, {
        partitionKey: VAULTS,
        from: prefix,
        before: keyEnd(prefix),
        select: ["name"],
      })) {
        for (const { name } of rows) {
          const { row } = await writer.known(name);
          if (!row) continue;
          const { partitionKey: _p, rowKey: _r, etag: _e, ...vault } = row;
          const left = writer.forget(row, (assetsGone) => deps.vaultLeaves(vault, assetsGone));
          gone.assets += (await left.catch(busyIsConflict)).length;
          gone.vaults++;
        }
      }
      return gone;
    },
  };
}

export type Inventory = ReturnType<typeof createInventory>;

function busyIsConflict(error: unknown): never {
  if (!(error instanceof VaultBusy)) throw error;
  throw new Problem("conflict", `${error.message}. Repeat the request then.`);
}
