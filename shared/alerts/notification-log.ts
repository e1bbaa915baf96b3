import { decodeTime } from "ulid";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, type Tables } from "../platform/storage/tables.ts";
import { type AssetItem, assetKeyPrefix, automationKey, type Item, notificationKey, thresholdOf } from "./items.ts";

/** A partition per rule, a row per notification. A row is only ever added, so writing one twice does no harm. */
export const NotificationRows = entity("AlertTold", z.object({ deliveryId: z.string() }));

/** Up to this many keys are read individually. For more, a range is read. */
const SINGLE_LOOK_UPS = 10;

/** The notifications of each rule, so that none is sent twice. */
export interface NotificationLog {
  /** Returns the assets without a row for this or a lower threshold, with `since` if there is a row for a higher one. The assets must
   * be of one type and in index order.
   */
  unnotifiedAssets(ruleId: string, items: readonly AssetItem[]): Promise<AssetItem[]>;
  /** Returns the items without a row, without duplicates. Up to ten items: one request each. More: one request per 1,000 rows between the
   * first and the last key.
   */
  unnotified<T extends Item>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** Like `unnotified`, for ids in sort order: one request per 1,000 rows between the first and the last. */
  unnotifiedAutomation<T extends { id: string }>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** Adds the rows of a delivery's items, and writes `beside` in the same partition. */
  add(ruleId: string, deliveryId: string, items: readonly Item[], beside: readonly Operation[]): Promise<void>;
}

/** Creates the log of sent notifications, which prevents that a notification is sent twice. */
export function createNotificationLog(tables: Tables): NotificationLog {
  /** The lowest notified threshold of each asset, and the time of its first notification. */
  type Notified = Map<string, { threshold: number; since: number }>;

  async function thresholdsIn(ruleId: string, from: string, before: string, into: Notified): Promise<void> {
    for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, from, before })) {
      for (const { rowKey, deliveryId } of rows) {
        const asset = rowKey.slice(0, rowKey.lastIndexOf("!") + 1);
        const known = into.get(asset) ?? { threshold: Number.POSITIVE_INFINITY, since: Number.POSITIVE_INFINITY };
        const threshold = Math.min(known.threshold, thresholdOf(rowKey));
        into.set(asset, { threshold, since: Math.min(known.since, decodeTime(deliveryId)) });
      }
    }
  }

  async function keysBetween(ruleId: string, keys: readonly string[]): Promise<Set<string>> {
    const sorted = keys.toSorted();
    const known = new Set<string>();
    const [first, last] = [sorted[0], sorted.at(-1)];
    if (first === undefined || last === undefined) return known;
    const range = { partitionKey: ruleId, from: first, before: keyEnd(last), select: [] as const };
    for await (const rows of tables.pages(NotificationRows, range)) for (const row of rows) known.add(row.rowKey);
    return known;
  }

  async function keysAmong(ruleId: string, keys: readonly string[]): Promise<Set<string>> {
    if (keys.length > SINGLE_LOOK_UPS) return await keysBetween(ruleId, keys);
    const rows = await Promise.all(keys.map((key) => tables.get(NotificationRows, ruleId, key)));
    return new Set(rows.flatMap((row) => (row ? [row.rowKey] : [])));
  }

  return {
    async unnotifiedAssets(ruleId, items) {
      const notified: Notified = new Map();
      const marks = items.map(assetKeyPrefix);
      if (items.length <= SINGLE_LOOK_UPS) {
        await Promise.all(marks.map((mark) => thresholdsIn(ruleId, mark, keyEnd(mark), notified)));
      } else await thresholdsIn(ruleId, marks[0]!, keyEnd(marks.at(-1)!), notified);
      return items.flatMap((one, index) => {
        const known = notified.get(marks[index]!);
        if (!known) return [one];
        return one.threshold < known.threshold ? [{ ...one, since: new Date(known.since).toISOString() }] : [];
      });
    },

    async unnotified(ruleId, items) {
      const each = new Map(items.map((one) => [notificationKey(one), one]));
      const known = await keysAmong(ruleId, [...each.keys()]);
      return [...each].filter(([key]) => !known.has(key)).map(([, one]) => one);
    },

    async unnotifiedAutomation(ruleId, items) {
      const keys = items.map(({ id }) => automationKey(id));
      const known = await keysBetween(ruleId, keys);
      return items.filter((_, index) => !known.has(keys[index]!));
    },

    async add(ruleId, deliveryId, items, beside) {
      const marks = items.map((one) => put(NotificationRows, notificationKey(one), { deliveryId }));
      await tables.write(NotificationRows.table, ruleId, [...marks, ...beside]);
    },
  };
}
