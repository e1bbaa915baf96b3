import { decodeTime } from "ulid";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { type AssetItem, assetKeyPrefix, automationKey, type Item, notificationKey, thresholdOf } from "./items.ts";

/**
 * The notification log: for each rule the items it has notified of, so that no notification is sent twice. It has a partition
 * per rule and a row per notification. Evaluation only adds rows, so adding a row twice is harmless.
 */
export const NotificationRows = entity("AlertTold", z.object({ deliveryId: z.string() }));

/** Up to this many keys are read individually. For more, a range is read. */
const MAX_SINGLE_READS = 10;

/** The notifications of each rule, so that none is sent twice. */
export interface NotificationLog {
  /**
   * Returns the assets without a row for this or a lower threshold, with `since` if a row for a higher one can be read. The assets
   * must be of one type and in index order.
   */
  unnotifiedAssets(ruleId: string, items: readonly AssetItem[]): Promise<AssetItem[]>;
  /**
   * Returns the items without a row, without duplicates. Up to ten items: one request each. More: one request per 1,000 rows
   * between the first and the last key.
   */
  unnotified<T extends Item>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** Like `unnotified`, for ids in sort order: one request per 1,000 rows between the first and the last. */
  unnotifiedAutomation<T extends { id: string }>(ruleId: string, items: readonly T[]): Promise<T[]>;
  /** Adds the rows of a delivery's items, together with other operations in the rule's partition. */
  add(ruleId: string, deliveryId: string, items: readonly Item[], otherOperations: readonly Operation[]): Promise<void>;
}

/** Creates the log of sent notifications, which prevents that a notification is sent twice. */
export function createNotificationLog(tables: Tables): NotificationLog {
  /** The lowest notified threshold of each asset, and the time of its first notification. */
  type Notified = Map<string, { threshold: number; since: number }>;

  /** Reads the rows of assets in a range of keys, and adds them to `into` by the key of the asset. */
  async function readThresholds(ruleId: string, from: string, before: string, into: Notified): Promise<void> {
    const add = (rowKey: string, since: number) => {
      const asset = rowKey.slice(0, rowKey.lastIndexOf("!") + 1);
      const previous = into.get(asset) ?? { threshold: Number.POSITIVE_INFINITY, since: Number.POSITIVE_INFINITY };
      const threshold = Math.min(previous.threshold, thresholdOf(rowKey));
      into.set(asset, { threshold, since: Math.min(previous.since, since) });
    };
    // The key of an unreadable row says that the notification was sent, but not when.
    const onCorrupt = ({ rowKey }: StorageCorrupt) => add(rowKey, Number.POSITIVE_INFINITY);
    for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, from, before, onCorrupt })) {
      // A delivery's id is a ULID, which contains the time of the notification.
      for (const { rowKey, deliveryId } of rows) add(rowKey, decodeTime(deliveryId));
    }
  }

  /** Returns all existing keys between the lowest and the highest of the given ones. */
  async function keysBetween(ruleId: string, keys: readonly string[]): Promise<Set<string>> {
    const sorted = keys.toSorted();
    const existing = new Set<string>();
    const [first, last] = [sorted[0], sorted.at(-1)];
    if (first === undefined || last === undefined) return existing;
    const range = { partitionKey: ruleId, from: first, before: keyEnd(last), select: [] as const };
    for await (const rows of tables.pages(NotificationRows, range)) for (const row of rows) existing.add(row.rowKey);
    return existing;
  }

  /** Returns the existing keys, at least those among the given ones. */
  async function existingKeys(ruleId: string, keys: readonly string[]): Promise<Set<string>> {
    if (keys.length > MAX_SINGLE_READS) return await keysBetween(ruleId, keys);
    const rows = await Promise.all(keys.map((key) => tables.get(NotificationRows, ruleId, key)));
    return new Set(rows.flatMap((row) => (row ? [row.rowKey] : [])));
  }

  return {
    async unnotifiedAssets(ruleId, items) {
      const notified: Notified = new Map();
      const prefixes = items.map(assetKeyPrefix);
      if (items.length <= MAX_SINGLE_READS) {
        await Promise.all(prefixes.map((prefix) => readThresholds(ruleId, prefix, keyEnd(prefix), notified)));
      } else await readThresholds(ruleId, prefixes[0]!, keyEnd(prefixes.at(-1)!), notified);
      return items.flatMap((item, index) => {
        const previous = notified.get(prefixes[index]!);
        if (!previous) return [item];
        if (item.threshold >= previous.threshold) return [];
        // Infinite if no row with the time of a notification can be read.
        const since = Number.isFinite(previous.since) ? { since: new Date(previous.since).toISOString() } : {};
        return [{ ...item, ...since }];
      });
    },

    async unnotified(ruleId, items) {
      const byKey = new Map(items.map((item) => [notificationKey(item), item]));
      const existing = await existingKeys(ruleId, [...byKey.keys()]);
      return [...byKey].filter(([key]) => !existing.has(key)).map(([, item]) => item);
    },

    async unnotifiedAutomation(ruleId, items) {
      const keys = items.map(({ id }) => automationKey(id));
      const existing = await keysBetween(ruleId, keys);
      return items.filter((_, index) => !existing.has(keys[index]!));
    },

    async add(ruleId, deliveryId, items, otherOperations) {
      const rows = items.map((item) => put(NotificationRows, notificationKey(item), { deliveryId }));
      await tables.write(NotificationRows.table, ruleId, [...rows, ...otherOperations]);
    },
  };
}
