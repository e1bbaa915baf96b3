import * as z from "zod";
import { entity, type Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { type Operation, put, remove, type Tables } from "../storage/tables.ts";
import { alertKey, FollowedItem, followedIn, type Item, type RecoveredItem, type RenewedItem } from "./items.ts";

/**
 * An alert of a rule that was told and has not ended, beside the rule's rows of the notification log. What earlier versions
 * told has no such row, so its end is not told.
 */
export const FollowedAlert = z.object({
  /** The delivery that told of it the last time; empty for what an earlier version told. */
  deliveryId: z.string(),
  /** When it was first told, ISO 8601. */
  since: z.string(),
  /** When it was told the last time. */
  toldAt: z.string(),
  /** How often it was told, escalations left out. */
  times: z.int(),
  item: FollowedItem,
});
export type FollowedAlert = z.infer<typeof FollowedAlert>;
export const FollowedRows = entity("AlertTold", FollowedAlert);

const PREFIX = "o!";
export const followedKey = (item: FollowedItem): string => PREFIX + alertKey(item);

/** What a delivery says of an alert's end. */
export type EndItem = RenewedItem | RecoveredItem;

/** What each rule has told and what has not ended since. */
export interface Followed {
  /** Those of a rule, by `alertKey`. One request per 1,000. */
  of(ruleId: string): Promise<Map<string, Row<FollowedAlert>>>;
  /** What to write where a delivery tells of these. */
  operations(deliveryId: string, at: string, items: readonly Item[]): Operation[];
  /** Forgets alerts that have ended; one that began anew meanwhile stays. One request per 1,000 of the rule's, and the removals. */
  close(ruleId: string, ended: readonly Pick<EndItem, "of" | "since">[]): Promise<void>;
}

export function createFollowed(tables: Tables): Followed {
  async function of(ruleId: string): Promise<Map<string, Row<FollowedAlert>>> {
    const found = new Map<string, Row<FollowedAlert>>();
    const range = { partitionKey: ruleId, from: PREFIX, before: keyEnd(PREFIX) };
    for await (const rows of tables.pages(FollowedRows, range))
      for (const row of rows) found.set(row.rowKey.slice(PREFIX.length), row);
    return found;
  }

  return {
    of,

    operations(deliveryId, at, items) {
      return items.flatMap((one): Operation[] => {
        const item = followedIn(one);
        if (!item || one.kind === "escalated" || one.kind === "renewed" || one.kind === "recovered") return [];
        const again = one.kind === "stillFailing";
        const since = again ? one.since : ((item.kind === "asset" ? item.since : undefined) ?? at);
        const row = { deliveryId, since, toldAt: at, times: again ? one.times + 1 : 1, item };
        return [put(FollowedRows, followedKey(item), row)];
      });
    },

    async close(ruleId, ended) {
      if (ended.length === 0) return;
      const known = await of(ruleId);
      const gone = ended.flatMap((one): Operation[] => {
        const row = known.get(alertKey(one.of));
        return row && row.since === one.since ? [remove(FollowedRows, row.rowKey, row.etag)] : [];
      });
      await tables.write(FollowedRows.table, ruleId, gone);
    },
  };
}
