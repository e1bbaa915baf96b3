import pMap from "p-map";
import { Assets, placesOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type { History, HistoryFilter } from "./history.ts";
import { assetAlertKey, assetKeyPrefix, ESCALATION_PREFIX, RESOLUTION_PREFIX } from "./items.ts";
import { NotificationRows } from "./notification-log.ts";
import { isAboutExpiry } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { OPEN_PREFIX, TrackedRows } from "./tracked-alerts.ts";

/** Number of rules, and of deliveries, that are read in parallel. */
const PARALLEL = 8;

/** The notifications about one asset. */
export interface AssetNotifications {
  /**
   * Returns a page of the notifications of expiry rules about an asset, newest first: those about its current expiry, about open
   * alerts, and about resolved and escalated ones. Needs up to five requests per rule and asset type, and one per notification.
   *
   * @param assetId - Also of a deleted asset. An unknown asset has no notifications.
   */
  list(assetId: string, filter: HistoryFilter, request: PageRequest): Promise<Page<DeliveryRecord>>;
}

/** Creates the reader of the notifications about one asset, which finds them in the notification log by the keys of the asset. */
export function createAssetNotifications(deps: {
  tables: Tables;
  rules: Pick<AlertRules, "all">;
  history: Pick<History, "get">;
}): AssetNotifications {
  const { tables } = deps;

  /** Returns the prefixes of the asset's keys in the log of each rule. */
  async function prefixesOf(assetId: string): Promise<string[]> {
    const places = placesOf(assetId);
    const assets = await Promise.all(
      places.map(({ vaultName, type, name }) =>
        tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
      ),
    );
    const ofCurrentExpiry = assets.flatMap((asset) =>
      asset?.expiresOn === undefined ? [] : [assetKeyPrefix({ ...asset, expiresOn: asset.expiresOn })],
    );
    const alerts = places.map(assetAlertKey);
    return [
      ...ofCurrentExpiry,
      ...alerts.flatMap((alert) => [`${RESOLUTION_PREFIX}${alert}!`, `${ESCALATION_PREFIX}${alert}!`]),
    ];
  }

  /** Returns the IDs of a rule's notifications. */
  async function idsOf(ruleId: string, prefixes: readonly string[], openKeys: readonly string[]): Promise<string[]> {
    const ids: string[] = [];
    for (const from of prefixes) {
      const range = { partitionKey: ruleId, from, before: keyEnd(from), onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(NotificationRows, range))
        ids.push(...rows.map(({ deliveryId }) => deliveryId));
    }
    for (const key of openKeys) {
      const open = await tables.get(TrackedRows, ruleId, key);
      if (open) ids.push(open.deliveryId);
    }
    return ids;
  }

  /** Returns a notification. An unreadable one is named in the answer as left out. */
  async function find(id: string): Promise<DeliveryRecord | undefined> {
    try {
      return await deps.history.get(id);
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      countLeftOut(error, id);
      return undefined;
    }
  }

  return {
    async list(assetId, { start, end, status, ruleId }, request) {
      const [all, prefixes] = await Promise.all([deps.rules.all(), prefixesOf(assetId)]);
      const openKeys = placesOf(assetId).map((place) => OPEN_PREFIX + assetAlertKey(place));
      const rules = all.filter((rule) => isAboutExpiry(rule.alertType));
      const read = await pMap(rules, (rule) => idsOf(rule.ruleId, prefixes, openKeys), { concurrency: PARALLEL });
      const ids = [...new Set(read.flat())].filter(Boolean);
      const rows = await pMap(ids, find, { concurrency: PARALLEL });
      const matching = rows.flatMap((row) =>
        row &&
        (status === undefined || row.status === status) &&
        (ruleId === undefined || row.ruleId === ruleId) &&
        (start === undefined || row.createdAt >= start.toISOString()) &&
        (end === undefined || row.createdAt < end.toISOString())
          ? [row]
          : [],
      );
      return pageOfAll(matching, request, ({ deliveryId }) => newestFirst(deliveryId));
    },
  };
}
