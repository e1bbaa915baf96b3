import pMap from "p-map";
import { type AssetLocation, type AssetRecord, Assets, locationsOf } from "../inventory/asset.ts";
import { nameKey, namePrefix, partitions } from "../inventory/asset-keys.ts";
import { assetWithEntry } from "../inventory/joined-credentials.ts";
import { needsAttention } from "../inventory/renewal.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { thresholdsOf } from "./expiring-assets.ts";
import type { AssetItem, RecoveredItem, TrackedItem, ViolationItem } from "./items.ts";
import { matchesFilters, type RuleRecord } from "./rule.ts";
import type { ResolvedItem, TrackedAlert } from "./tracked-alerts.ts";
import type { VaultSnapshot } from "./vault-changes.ts";
import type { ViolationReading } from "./violation-items.ts";

/** Finds open alerts whose cause no longer exists: the asset was renewed, the violation was fixed, or their resource was removed. */

/** An open alert about one kind of item. */
type AlertOf<T> = Omit<TrackedAlert, "item"> & { item: T };

/** Splits alerts into those of one kind and the others, which are left from before the rule's type was changed. */
export function ofKind<K extends TrackedAlert["item"]["kind"]>(alerts: Iterable<TrackedAlert>, kind: K) {
  const ofType: AlertOf<Extract<TrackedAlert["item"], { kind: K }>>[] = [];
  const others: Pick<ResolvedItem, "of" | "since">[] = [];
  for (const alert of alerts) {
    if (alert.item.kind === kind) ofType.push(alert as (typeof ofType)[number]);
    else others.push({ of: alert.item, since: alert.since });
  }
  return { ofType, others };
}

/** Up to this many assets of one vault and type are read individually. For more, all assets of the vault are read. */
const MAX_SINGLE_READS = 20;
/** Number of concurrent reads. */
const PARALLEL = 8;
/** Maximum delay from the time of a compliance evaluation until its rows are written. */
const LATE_MS = 10 * MINUTE_MS;

/** Alerts whose cause no longer exists. */
interface EndedAlerts {
  /** Alerts to notify about. */
  resolved: ResolvedItem[];
  /**
   * Alerts about former assets that became entries of another asset, a token-signing certificate. The alert about that asset
   * continues, so nothing was resolved for a person, but each alert's incident must be closed.
   */
  joined: ResolvedItem[];
}

/** Separates alerts about credentials that became entries of another asset from those about removed ones. */
async function withoutJoined(ended: readonly ResolvedItem[], tables: Tables): Promise<EndedAlerts> {
  const result: EndedAlerts = { resolved: [], joined: [] };
  for (const item of ended) {
    const isRemoved = item.kind === "recovered" && item.reason === "removed";
    const place = isRemoved ? assetLocationOf(item.of) : undefined;
    if (item.kind === "recovered" && place && (await assetWithEntry(place, tables)))
      result.joined.push({ ...item, reason: "mended" });
    else result.resolved.push(item);
  }
  return result;
}

/** Returns the vault, type and name of the asset that an alert is about. Undefined for an alert about something else. */
export const assetLocationOf = (item: TrackedItem): AssetLocation | undefined =>
  item.kind === "asset"
    ? item
    : item.kind === "violation"
      ? locationsOf(item.resourceId).find(({ type }) => type === item.resourceType)
      : undefined;

/**
 * Returns resolved alerts about assets in vaults that changed since the revision: the asset was renewed beyond the rule's
 * thresholds, disabled or deleted, or its vault is no longer monitored.
 */
export async function endedAssets(
  rule: RuleRecord,
  alerts: readonly AlertOf<AssetItem>[],
  span: { to: Date; revision: number },
  snapshot: VaultSnapshot,
  deps: { tables: Tables; ownerTag: string },
): Promise<EndedAlerts> {
  const vaults = new Map(snapshot.vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  const hidden = new Set(snapshot.hidden);
  const candidates = alerts.filter(({ item }) => {
    const name = item.vaultName.toLowerCase();
    const vault = vaults.get(name);
    // Without a license, alerts about application credentials stay unchanged.
    const isUnlicensed = item.credential !== undefined && hidden.has(name);
    return !isUnlicensed && (vault === undefined || snapshot.changedSince(vault, span.revision));
  });
  const groups = Map.groupBy(candidates, ({ item }) => `${item.vaultName.toLowerCase()}!${item.type}`);
  const resolved = await pMap(
    groups.values(),
    async (group): Promise<ResolvedItem[]> => {
      const assets = await assetsOf(group, deps.tables);
      const name = group[0]!.item.vaultName.toLowerCase();
      return group.flatMap(({ item: of, since }): ResolvedItem[] => {
        const asset = assets.get(of.name.toLowerCase());
        // First, because the assets of a vault out of scope stay in the inventory for a while, and a deleted one is gone.
        if (!asset) return [{ kind: "recovered", id: of.id, of, since, reason: "removed" }];
        if (hidden.has(name)) return [{ kind: "recovered", id: of.id, of, since, reason: "outOfScope" }];
        // The vault's row does not exist (yet): the vault is being removed or added.
        if (!vaults.has(name)) return [];
        if (!asset.enabled) return [{ kind: "recovered", id: of.id, of, since, reason: "disabled" }];
        const { expiresOn, version } = asset;
        const isOnTime = !needsAttention(asset, span.to.getTime());
        if (expiresOn === of.expiresOn)
          // The renewal is no longer late: its window changed, or no renewer is known any more.
          return rule.alertType === "lateRenewal" && (isOnTime || asset.renewal?.windowEnd === undefined)
            ? [{ kind: "recovered", id: of.id, of, since, reason: "mended" }]
            : [];
        const remainingMs = expiresOn === undefined ? Number.POSITIVE_INFINITY : expiresOn * 1000 - span.to.getTime();
        // Still within a threshold: a new alert for the same asset replaces this one, if the asset still matches the rule.
        if (
          !isOnTime &&
          remainingMs <= Math.max(...thresholdsOf(rule)) * DAY_MS &&
          matchesFilters(rule.filters, asset, deps.ownerTag)
        )
          return [];
        return [
          {
            kind: "renewed",
            id: of.id,
            of,
            since,
            ...(expiresOn === undefined ? {} : { expiresOn }),
            ...(version === undefined ? {} : { version }),
          },
        ];
      });
    },
    { concurrency: PARALLEL },
  );
  return await withoutJoined(resolved.flat(), deps.tables);
}

/** Returns the assets of alerts of one vault and type, by name in lower case. */
async function assetsOf(group: readonly AlertOf<AssetItem>[], tables: Tables): Promise<Map<string, AssetRecord>> {
  const { vaultName, type } = group[0]!.item;
  const assets = new Map<string, AssetRecord>();
  const partitionKey = partitions.vault(vaultName);
  if (group.length > MAX_SINGLE_READS) {
    const range = { partitionKey, from: namePrefix(type), before: keyEnd(namePrefix(type)) };
    for await (const rows of tables.pages(Assets, range))
      for (const row of rows) assets.set(row.name.toLowerCase(), row);
    return assets;
  }
  const rows = await Promise.all(
    group.map(({ item }) => tables.get(Assets, partitionKey, nameKey(type, item.name, vaultName))),
  );
  for (const row of rows) if (row) assets.set(row.name.toLowerCase(), row);
  return assets;
}

/** Returns resolved alerts about violations in vaults whose results changed since a time or were removed. */
export async function endedViolations(
  alerts: readonly AlertOf<ViolationItem>[],
  since: Date,
  reading: ViolationReading,
  tables: Tables,
): Promise<EndedAlerts> {
  const changedSince = new Date(since.getTime() - LATE_MS).toISOString();
  const candidates = alerts.filter(({ item }) => reading.changedSince(item.vaultName, changedSince));
  const unresolved = await reading.findExisting(candidates.map(({ item }) => item));
  const resolved = await pMap(
    candidates.filter(({ item }) => !unresolved.has(item.id)),
    async ({ item: of, since: alertedSince }): Promise<ResolvedItem> => {
      const reason = await endReasonOf(of, reading, tables);
      return { kind: "recovered", id: of.id, of, since: alertedSince, reason };
    },
    { concurrency: PARALLEL },
  );
  return await withoutJoined(resolved, tables);
}

/** Returns why a violation no longer exists, by what the inventory now says about its resource. */
async function endReasonOf(
  of: ViolationItem,
  reading: ViolationReading,
  tables: Tables,
): Promise<RecoveredItem["reason"]> {
  const place = assetLocationOf(of);
  const asset =
    place &&
    (await tables.get(Assets, partitions.vault(place.vaultName), nameKey(place.type, place.name, place.vaultName)));
  const exists = place ? asset !== undefined : (await tables.get(Vaults, VAULTS, vaultKey(of.vaultName))) !== undefined;
  if (!exists) return "removed";
  if (!reading.has(of.vaultName)) return "outOfScope";
  // No check evaluates disabled assets, so the violation ended when the asset was disabled.
  return asset?.enabled === false ? "disabled" : "mended";
}

/** Returns whether violations may have been resolved since an evaluation with this number of vaults. */
export const mayHaveEnded = (reading: ViolationReading, since: Date, vaults: number | undefined): boolean =>
  vaults !== reading.vaults || reading.changedAt > new Date(since.getTime() - LATE_MS).toISOString();
