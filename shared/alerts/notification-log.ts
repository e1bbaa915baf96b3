import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { put, type Tables } from "../storage/tables.ts";
import { type AssetItem, assetKeyPrefix, automationKey, type Item, notificationKey, thresholdOf } from "./items.ts";

/** A partition per rule, a row per notification. A row is only ever added, so writing one twice does no harm. */
export const NotificationRows = entity("AlertTold", z.object({ deliveryId: z.string() }));

/** Up to here marks are looked up one by one, beyond it a range of them is read. */
const SINGLE_LOOK_UPS = 10;

/** What each rule has notified of, so that it does so once. */
export interface NotificationLog {
  /** Of these assets, all of one type and in the order of the index, those without a row for this or a lower threshold. */
  unnotifiedAssets(ruleId: string, items: readonly AssetItem[]): Promise<AssetItem[]>;
  /** Those without a row. One request each: for the few scans and violations of a run. */
  unnotified<T extends Item>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** As `unnotified`, of ids that sort as their items do: one request for those between the first and the last. */
  unnotifiedAutomation<T extends { id: string }>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** Notes that a delivery notifies of these. */
  add(ruleId: string, deliveryId: string, items: readonly Item[]): Promise<void>;
}

export function createNotificationLog(tables: Tables): NotificationLog {
  async function thresholdsIn(ruleId: string, from: string, before: string, into: Map<string, number>): Promise<void> {
    const range = { partitionKey: ruleId, from, before, select: [] as const };
    for await (const rows of tables.pages(NotificationRows, range)) {
      for (const { rowKey } of rows) {
        const asset = rowKey.slice(0, rowKey.lastIndexOf("!") + 1);
        const threshold = thresholdOf(rowKey);
        into.set(asset, Math.min(threshold, into.get(asset) ?? threshold));
      }
    }
  }

  return {
    async unnotifiedAssets(ruleId, items) {
      const lowest = new Map<string, number>();
      const marks = items.map(assetKeyPrefix);
      if (items.length <= SINGLE_LOOK_UPS) {
        await Promise.all(marks.map((mark) => thresholdsIn(ruleId, mark, keyEnd(mark), lowest)));
      } else await thresholdsIn(ruleId, marks[0]!, keyEnd(marks.at(-1)!), lowest);
      return items.filter((one, index) => one.threshold < (lowest.get(marks[index]!) ?? Number.POSITIVE_INFINITY));
    },

    async unnotified(ruleId, items) {
      const known = new Set<string>();
      for (let start = 0; start < items.length; start += SINGLE_LOOK_UPS) {
        await Promise.all(
          items.slice(start, start + SINGLE_LOOK_UPS).map(async (one) => {
            if (await tables.get(NotificationRows, ruleId, notificationKey(one))) known.add(notificationKey(one));
          }),
        );
      }
      return items.filter((one) => !known.has(notificationKey(one)));
    },

    async unnotifiedAutomation(ruleId, items) {
      const keys = items.map(({ id }) => automationKey(id));
      const sorted = keys.toSorted();
      const [first, last] = [sorted[0], sorted.at(-1)];
      if (first === undefined || last === undefined) return [];
      const known = new Set<string>();
      const range = { partitionKey: ruleId, from: first, before: keyEnd(last), select: [] as const };
      for await (const rows of tables.pages(NotificationRows, range)) for (const row of rows) known.add(row.rowKey);
      return items.filter((_, index) => !known.has(keys[index]!));
    },

    async add(ruleId, deliveryId, items) {
      await tables.write(
        NotificationRows.table,
        ruleId,
        items.map((one) => put(NotificationRows, notificationKey(one), { deliveryId })),
      );
    },
  };
}
