import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import { alertKey, type Item, type RecoveredItem, type RenewedItem, TrackedItem, trackedItemOf } from "./items.ts";

/**
 * A tracked alert: an open alert of a rule about an item that will be resolved, such as an expiring asset. It is stored in the
 * table of the notification log. Alerts of versions without such rows have none, so their resolution is not sent.
 */
export const TrackedAlert = z.object({
  /** The delivery of the last notification. Can be empty in rows of earlier versions. */
  deliveryId: z.string(),
  /** Time of the first notification, ISO 8601. */
  since: z.string(),
  /** Time of the last notification. */
  toldAt: z.string(),
  /** Number of notifications since the last threshold of an asset: 1, and 1 more for each reminder. Escalations don't count. */
  times: z.int(),
  item: TrackedItem,
});
export type TrackedAlert = z.infer<typeof TrackedAlert>;
export const TrackedRows = entity("AlertTold", TrackedAlert);

/** Prefix of the row keys of tracked (open) alerts, which no row of a notification has. */
export const OPEN_PREFIX = "o!";
export const trackedKey = (item: TrackedItem): string => OPEN_PREFIX + alertKey(item);

/** The item of a resolved alert. */
export type ResolvedItem = RenewedItem | RecoveredItem;

/** The open alerts of each rule. */
export interface TrackedAlerts {
  /** Returns the open alerts of a rule by `alertKey`. One request per 1,000. */
  ofRule(ruleId: string): Promise<Map<string, Row<TrackedAlert>>>;
  /** Returns the writes that track the alerts of a delivery. */
  operations(deliveryId: string, notifiedAt: string, items: readonly Item[]): Operation[];
  /**
   * Removes resolved alerts, except those that were opened again. One request per 1,000 of the rule's alerts, and the removals.
   */
  close(ruleId: string, resolved: readonly Pick<ResolvedItem, "of" | "since">[]): Promise<void>;
}

/** Creates the store of open alerts. */
export function createTrackedAlerts(tables: Tables): TrackedAlerts {
  async function ofRule(ruleId: string): Promise<Map<string, Row<TrackedAlert>>> {
    const alerts = new Map<string, Row<TrackedAlert>>();
    const range = { partitionKey: ruleId, from: OPEN_PREFIX, before: keyEnd(OPEN_PREFIX) };
    for await (const rows of tables.pages(TrackedRows, range))
      for (const row of rows) alerts.set(row.rowKey.slice(OPEN_PREFIX.length), row);
    return alerts;
  }

  return {
    ofRule,

    operations(deliveryId, notifiedAt, items) {
      return items.flatMap((sent): Operation[] => {
        const item = trackedItemOf(sent);
        if (!item || sent.kind === "escalated" || sent.kind === "renewed" || sent.kind === "recovered") return [];
        const isReminder = sent.kind === "stillFailing";
        // An asset's item has `since` if the rule already notified about this expiry, by a higher threshold.
        const since = isReminder ? sent.since : ((item.kind === "asset" ? item.since : undefined) ?? notifiedAt);
        const row = { deliveryId, since, toldAt: notifiedAt, times: isReminder ? sent.times + 1 : 1, item };
        return [put(TrackedRows, trackedKey(item), row)];
      });
    },

    async close(ruleId, resolved) {
      if (resolved.length === 0) return;
      const alerts = await ofRule(ruleId);
      const removals = resolved.flatMap((item): Operation[] => {
        const row = alerts.get(alertKey(item.of));
        return row && row.since === item.since ? [remove(TrackedRows, row.rowKey, row.etag)] : [];
      });
      await tables.write(TrackedRows.table, ruleId, removals);
    },
  };
}
