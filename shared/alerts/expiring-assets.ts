import {
  ASSET_TYPES,
  type AssetRecord,
  Assets,
  type AssetType,
  assetId,
  type Credential,
  placesOf,
  sourceOf,
} from "../inventory/asset.ts";
import { expiryBounds, nameKey, partitions } from "../inventory/asset-keys.ts";
import type { ExpiryRange } from "../inventory/asset-status.ts";
import { HOLDER_SOURCES, holderSubscription, ownersOf } from "../inventory/holder.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { sum } from "../platform/sum.ts";
import { DAY_MS } from "../platform/time.ts";
import { type AssetItem, byUrgency } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { matchesFilters, type RuleRecord } from "./rule.ts";
import { isSnoozed, type SnoozesOfRule } from "./snoozes.ts";
import { countIn, type VaultSnapshot } from "./vault-changes.ts";

/** Columns of an asset that a notification needs. */
export const COLUMNS = [
  "type",
  "name",
  "vaultName",
  "vaultId",
  "subscriptionId",
  "enabled",
  "expiresOn",
  "tags",
  "source",
  "credential",
] as const satisfies (keyof AssetRecord)[];
type Candidate = Pick<AssetRecord, (typeof COLUMNS)[number]>;

const PAGE_ROWS = 1000;

/** The time span that a rule about expiry is evaluated for. */
export interface Span {
  /** Time of the last evaluation, or of the rule's activation. */
  from: Date;
  to: Date;
  /** The snapshot's revision at the last evaluation. 0 evaluates everything. */
  revision: number;
}

/** A range of rows to read. */
interface Source {
  partitionKey: string;
  type: AssetType;
  range: ExpiryRange;
}

/** Returns assets that a rule must notify about, most urgent first, at most `limit`.
 *
 * Reads only what can be new since the last evaluation: the ranges of the index by expiry that reached a threshold, and, for vaults
 * with changed assets, everything within the highest threshold. Reading too much is harmless, because the notification log removes
 * duplicates; reading too little would lose notifications. Disabled assets are excluded: enabling one is a change of its vault.
 */
export async function expiringItems(
  rule: RuleRecord,
  span: Span,
  snapshot: VaultSnapshot,
  deps: { tables: Tables; notifications: NotificationLog; ownerTag: string } & SnoozesOfRule,
  limit: number,
): Promise<{ items: AssetItem[]; more: boolean }> {
  const { tables, notifications, ownerTag, suppressedSince } = deps;
  const thresholds = thresholdsOf(rule);
  const hidden = new Set(snapshot.hidden);
  const found = new Map<string, AssetItem>();
  let more = false;

  const take = async (candidates: readonly Candidate[]) => {
    const shown = candidates.filter(({ vaultName }) => !hidden.has(vaultName.toLowerCase()));
    const audible = shown.filter((asset) => !isSnoozed(deps, assetId(asset), asset, ownerTag));
    const items = audible.flatMap((asset) => itemsOf(asset, thresholds, span.to, rule, ownerTag));
    if (items.length === 0) return;
    for (const one of await notifications.unnotifiedAssets(rule.ruleId, items)) found.set(one.id, one);
    if (found.size <= 2 * limit) return;
    more = true;
    const least = [...found.values()].sort(byUrgency).slice(limit);
    for (const { id } of least) found.delete(id);
  };

  // A filter snooze expired: evaluate again from its start, because matching assets were suppressed.
  const extended = suppressedSince && { ...span, from: new Date(Math.min(+suppressedSince, +span.from)), revision: 0 };
  for (const { partitionKey, type, range } of sourcesOf(rule, thresholds, extended ?? span, snapshot)) {
    const bounds = expiryBounds(type, range.from, range.before, false);
    for await (const rows of tables.pages(Assets, { partitionKey, ...bounds, select: [...COLUMNS] })) await take(rows);
  }
  // An asset's snooze expired: evaluate that asset.
  for (const id of deps.awake) {
    for (const { type, name, vaultName } of placesOf(id)) {
      const asset = await tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName));
      if (asset) await take([asset]);
    }
  }
  const items = [...found.values()].sort(byUrgency);
  return { items: items.slice(0, limit), more: more || items.length > limit };
}

/** Returns the item of an asset that matches the rule and reached a threshold; otherwise an empty list. */
export function itemsOf(
  asset: Candidate,
  thresholds: readonly number[],
  now: Date,
  rule: RuleRecord,
  ownerTag: string,
): AssetItem[] {
  const { type, name, vaultName, vaultId, subscriptionId, expiresOn, credential } = asset;
  if (!asset.enabled || expiresOn === undefined || !matchesFilters(rule.filters, asset, ownerTag)) return [];
  if (rule.alertType === "credentialExpiry" && !credential) return [];
  const left = expiresOn * 1000 - now.getTime();
  // Thresholds reached together cause one notification, for the lowest.
  const crossed = thresholds.filter((days) => left <= days * DAY_MS);
  if (crossed.length === 0) return [];
  const [owner] = ownersOf(asset, ownerTag);
  return [
    {
      kind: "asset",
      id: assetId(asset),
      type,
      name,
      vaultName,
      vaultId,
      subscriptionId,
      ...(owner === undefined ? {} : { owner }),
      expiresOn,
      threshold: Math.min(...crossed),
      ...(credential === undefined ? {} : { credential: shownCredential(credential) }),
    },
  ];
}

/** Rules about credentials also report expired ones, because an expired credential breaks its application. */
export const thresholdsOf = ({ alertType, thresholds }: Pick<RuleRecord, "alertType" | "thresholds">): number[] => {
  if (alertType === "expired") return [0];
  return alertType === "credentialExpiry" ? [...new Set([...thresholds, 0])] : thresholds;
};

const shownCredential = ({ tenantId, kind, tenantDomain, appId, applicationName, keyId, displayName }: Credential) => ({
  tenantId,
  ...(kind === undefined ? {} : { kind }),
  ...(tenantDomain === undefined ? {} : { tenantDomain }),
  ...(appId === undefined ? {} : { appId }),
  applicationName,
  ...(keyId === undefined ? {} : { keyId }),
  ...(displayName === undefined ? {} : { displayName }),
});

function sourcesOf(rule: RuleRecord, thresholds: readonly number[], span: Span, snapshot: VaultSnapshot): Source[] {
  const { vault, subscription, type } = rule.filters;
  const types = type === undefined ? ASSET_TYPES : [type];
  const sources = rule.alertType === "credentialExpiry" ? HOLDER_SOURCES : rule.filters.source && [rule.filters.source];
  const vaults = snapshot.vaults.filter(
    ({ name, subscriptionId, source: of }) =>
      (sources === undefined || sources.some((source) => sourceOf({ source: of }) === source)) &&
      (vault === undefined || name.toLowerCase() === vault.toLowerCase()) &&
      (subscription === undefined || subscriptionId.toLowerCase() === subscription.toLowerCase()),
  );
  // The partitions with all assets: one, or one per source other than key vaults.
  const holders = sources?.flatMap((source) => (source === "keyVault" ? [] : source));
  const partitionsWithAll =
    vault === undefined && subscription === undefined && holders?.length
      ? holders.map((source) => ({
          partitionKey: partitions.subscription(holderSubscription(source)),
          vaults: vaults.filter(({ source: of }) => of === source),
        }))
      : [{ partitionKey: partitionOf(rule.filters), vaults }];
  // An expiration rule ignores assets that expired before its last evaluation. Rules about `expired` report them.
  const window: ExpiryRange = {
    from: rule.alertType === "expiration" ? secondAfter(span.from, 0) : 0,
    before: secondAfter(span.to, Math.max(...thresholds)),
    unset: false,
  };
  const inWindow = (one: (typeof vaults)[number], of: AssetType) => countIn(one, of, window);

  const changed = vaults
    .filter((one) => snapshot.changedSince(one, span.revision))
    .flatMap((one) => types.filter((of) => inWindow(one, of) > 0).map((of) => ({ vault: one, type: of })));
  const everything = partitionsWithAll.flatMap((part) =>
    types.map((of) => ({
      partitionKey: part.partitionKey,
      type: of,
      count: sum(part.vaults, (one) => inWindow(one, of)),
    })),
  );
  const pages = sum(everything, ({ count }) => Math.ceil(count / PAGE_ROWS));
  // The whole window includes the ranges that reached a threshold.
  if (changed.length > 0 && changed.length >= pages) {
    return everything
      .filter(({ count }) => count > 0)
      .map(({ partitionKey, type: of }) => ({ partitionKey, type: of, range: window }));
  }
  const reached = thresholds.flatMap((days) => {
    const range = { from: secondAfter(span.from, days), before: secondAfter(span.to, days), unset: false };
    return partitionsWithAll.flatMap((part) =>
      types
        .filter((of) => part.vaults.some((one) => countIn(one, of, range) > 0))
        .map((of) => ({ partitionKey: part.partitionKey, type: of, range })),
    );
  });
  return [
    ...changed.map((one) => ({ partitionKey: partitions.vault(one.vault.name), type: one.type, range: window })),
    ...reached,
  ];
}

/** Returns the narrowest partition with all assets that can match the filters. */
export function partitionOf({ vault, subscription }: RuleRecord["filters"]): string {
  if (vault !== undefined) return partitions.vault(vault);
  return subscription === undefined ? partitions.all : partitions.subscription(subscription);
}

/** Returns the first whole second after `instant` plus `days`, unix seconds. */
export const secondAfter = (instant: Date, days: number): number =>
  Math.floor((instant.getTime() + days * DAY_MS) / 1000) + 1;
