import pMap from "p-map";
import { decodeTime } from "ulid";
import { Assets, locationsOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type { History, HistoryFilter } from "./history.ts";
import { assetAlertKey, assetKeyPrefix, ESCALATION_PREFIX, RESOLUTION_PREFIX } from "./items.ts";
import { NotificationRows } from "./notification-log.ts";
import { isAboutExpiry } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { OPEN_PREFIX, TrackedRows } from "./tracked-alerts.ts";

/** Number of concurrent requests. */
const PARALLEL = 16;
/** Maximum number of rules that one request reads, each with about four reads. */
const MAX_RULES = 1000;
/** Maximum number of notifications that one request reads, the newest ones. */
const MAX_NOTIFICATIONS = 1000;

/** The notifications about one asset. */
export interface AssetNotifications {
  /**
   * Returns a page of the newest 1,000 notifications of expiry rules about an asset, newest first: notifications about its
   * current expiry, its open alert, and its resolved and escalated alerts. Needs four requests per rule, and one per
   * notification. With a rule's ID in the filter, reads only that rule and the rules that escalate to it.
   *
   * @param assetId - ID of an asset, which can be deleted. A deleted credential needs three requests per rule and asset type,
   *   because its ID does not contain its type. An unknown asset has no notifications.
   * @throws {Problem} invalidRequest for more than 1,000 rules
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

  /** Returns where a rule's notification log can have rows about the asset: prefixes of row keys, and row keys of open alerts. */
  async function keysOf(assetId: string): Promise<{ prefixes: string[]; openKeys: string[] }> {
    const locations = locationsOf(assetId);
    const onCorrupt = (row: StorageCorrupt) => countLeftOut(row);
    const storedAssets = await Promise.all(
      locations.map(({ vaultName, type, name }) =>
        tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName), { onCorrupt }),
      ),
    );
    const assets = storedAssets.filter((asset) => asset !== undefined);
    // The ID of a credential does not contain its type. The asset has it, unless it was deleted.
    const alerts = (assets.length > 0 ? assets : locations).map(assetAlertKey);
    return {
      prefixes: [
        ...assets.flatMap((asset) =>
          asset.expiresOn === undefined ? [] : [assetKeyPrefix({ ...asset, expiresOn: asset.expiresOn })],
        ),
        ...alerts.flatMap((alert) => [`${RESOLUTION_PREFIX}${alert}!`, `${ESCALATION_PREFIX}${alert}!`]),
      ],
      openKeys: alerts.map((alert) => OPEN_PREFIX + alert),
    };
  }

  /** Returns the IDs of a rule's notifications whose keys begin with the prefix. */
  async function idsIn(ruleId: string, from: string): Promise<string[]> {
    const ids: string[] = [];
    const range = { partitionKey: ruleId, from, before: keyEnd(from), onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(NotificationRows, range))
      ids.push(...rows.map(({ deliveryId }) => deliveryId));
    return ids;
  }

  /** Returns the ID of the last notification about an open alert. */
  async function idOfOpen(ruleId: string, key: string): Promise<string[]> {
    const openAlert = await tables.get(TrackedRows, ruleId, key, { onCorrupt: (row) => countLeftOut(row) });
    return openAlert ? [openAlert.deliveryId] : [];
  }

  /** Returns the IDs of the newest notifications of these rules in a period. */
  async function newestIds(
    assetId: string,
    ruleIds: readonly string[],
    { start, end }: Pick<HistoryFilter, "start" | "end">,
  ): Promise<string[]> {
    const { prefixes, openKeys } = await keysOf(assetId);
    const reads = ruleIds.flatMap((ruleId) => [
      ...prefixes.map((prefix) => () => idsIn(ruleId, prefix)),
      ...openKeys.map((key) => () => idOfOpen(ruleId, key)),
    ]);
    const idsOfReads = await pMap(reads, (read) => read(), { concurrency: PARALLEL });
    // Rows of earlier versions have an empty ID. An ID begins with the time of the notification.
    const isInPeriod = (id: string) =>
      (start === undefined || decodeTime(id) >= start.getTime()) &&
      (end === undefined || decodeTime(id) < end.getTime());
    const ids = [...new Set(idsOfReads.flat())].filter((id) => isUlid(id) && isInPeriod(id));
    return ids.sort().slice(-MAX_NOTIFICATIONS);
  }

  /** Returns the rules whose notifications can match the filter. An escalation is sent as a notification of its target. */
  async function rulesFor(ruleId: string | undefined): Promise<string[]> {
    const all = await deps.rules.all();
    const matching = all.filter(
      (rule) =>
        isAboutExpiry(rule.alertType) &&
        (ruleId === undefined || rule.ruleId === ruleId || rule.escalation?.ruleId === ruleId),
    );
    if (matching.length > MAX_RULES)
      throw new Problem(
        "invalidRequest",
        `${matching.length} rules can have notifications about the asset. One request reads at most ${MAX_RULES} rules. Add rule_id, the ID of one rule.`,
      );
    return matching.map((rule) => rule.ruleId);
  }

  /** Returns a notification. Undefined if its row can't be read: the response then says that it is incomplete. */
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
      const ids = await newestIds(assetId, await rulesFor(ruleId), { start, end });
      const rows = await pMap(ids, find, { concurrency: PARALLEL });
      const matching = rows.flatMap((row) =>
        row && (status === undefined || row.status === status) && (ruleId === undefined || row.ruleId === ruleId)
          ? [row]
          : [],
      );
      return pageOfAll(matching, request, ({ deliveryId }) => newestFirst(deliveryId));
    },
  };
}
