import {
  ASSET_TYPES,
  type AssetRecord,
  type AssetSource,
  Assets,
  type AssetType,
  assetId,
  type Credential,
  idsOf,
  locationsOf,
  sourceOf,
} from "../inventory/asset.ts";
import { expiryBounds, expiryKey, lateBounds, nameKey, partitions } from "../inventory/asset-keys.ts";
import type { ExpiryRange } from "../inventory/asset-status.ts";
import { HOLDER_SOURCES, holderSubscription, ownersOf } from "../inventory/holder.ts";
import { assetWithEntry } from "../inventory/joined-credentials.ts";
import { needsAttention, type PlannedCertificate } from "../inventory/renewal.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { sum } from "../platform/sum.ts";
import { DAY_MS } from "../platform/time.ts";
import { type AssetItem, byUrgency } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { matchesFilters, type RuleRecord } from "./rule.ts";
import { isSnoozed, type SnoozesOfRule } from "./snoozes.ts";
import { countIn, plannedIn, type SummaryVault, type VaultSnapshot } from "./vault-changes.ts";

/** Finds the assets that an alert rule about expiry must notify about. */

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
  "renewal",
] as const satisfies (keyof AssetRecord)[];
type Candidate = Pick<AssetRecord, (typeof COLUMNS)[number]>;

const PAGE_ROWS = 1000;

/** The time span that a rule about expiry is evaluated for. */
export interface Span {
  /** Time of the last evaluation, or of the rule's activation. */
  from: Date;
  to: Date;
  /** The revision of the vaults' snapshot at the last evaluation; it grows when a vault changes. 0 evaluates everything. */
  revision: number;
}

/** A range of rows to read from the index by expiry: the assets of one type in a partition. */
interface IndexRange {
  partitionKey: string;
  type: AssetType;
  range: ExpiryRange;
}

/**
 * Returns assets that a rule must notify about, most urgent first, at most `limit`. `isIncomplete`: rows could not be read.
 *
 * Reads only what can be new since the last evaluation: the ranges of the index by expiry that reached a threshold, and, for
 * vaults with changed assets, everything within the highest threshold. Reading too much is harmless, because the notification
 * log removes duplicates; reading too little would lose notifications. Disabled assets are excluded: enabling one is a change
 * of its vault.
 */
export async function expiringItems(
  rule: RuleRecord,
  span: Span,
  snapshot: VaultSnapshot,
  deps: { tables: Tables; notifications: NotificationLog; ownerTag: string } & SnoozesOfRule,
  limit: number,
): Promise<{ items: AssetItem[]; more: boolean; isIncomplete: boolean }> {
  const { tables, notifications, ownerTag, suppressedSince } = deps;
  const thresholds = thresholdsOf(rule);
  // Lower-cased names of vaults whose assets cause no notifications, such as vaults out of scope.
  const hidden = new Set(snapshot.hidden);
  const itemsById = new Map<string, AssetItem>();
  let more = false;
  // An unreadable row must not stop the notifications about other assets.
  let isIncomplete = false;
  const onCorrupt = () => {
    isIncomplete = true;
  };

  /** Adds the items of a page of assets. Beyond twice the limit, removes the least urgent items, to limit memory. */
  const addItems = async (candidates: readonly Candidate[]) => {
    const monitored = candidates.filter(({ vaultName }) => !hidden.has(vaultName.toLowerCase()));
    const notSnoozed = monitored.filter((asset) => !isSnoozed(deps, idsOf(asset), asset, ownerTag));
    const items = notSnoozed.flatMap((asset) => itemsOf(asset, thresholds, span.to, rule, ownerTag));
    if (items.length === 0) return;
    for (const item of await notifications.unnotifiedAssets(rule.ruleId, items)) itemsById.set(item.id, item);
    if (itemsById.size <= 2 * limit) return;
    more = true;
    const leastUrgent = [...itemsById.values()].sort(byUrgency).slice(limit);
    for (const { id } of leastUrgent) itemsById.delete(id);
  };

  // A snooze with filters ended: evaluate again from its start, because matching assets were suppressed.
  const extendedSpan = suppressedSince && {
    ...span,
    from: new Date(Math.min(+suppressedSince, +span.from)),
    revision: 0,
  };
  const evaluatedSpan = extendedSpan ?? span;
  // A rule about late renewals has no thresholds, so no range by days.
  for (const { partitionKey, type, range } of rule.alertType === "lateRenewal"
    ? []
    : rangesToRead(rule, thresholds, evaluatedSpan, snapshot)) {
    const bounds = expiryBounds(type, range.from, range.before, false);
    for await (const rows of tables.pages(Assets, { partitionKey, ...bounds, select: [...COLUMNS], onCorrupt }))
      await addItems(rows);
  }
  const late = lateBounds(Math.floor(span.to.getTime() / 1000) + 1);
  // Only rules about `expired` report certificates that expired before the last evaluation.
  const oldest = rule.alertType === "expired" ? 0 : secondAfter(evaluatedSpan.from, 0);
  for (const partitionKey of latePartitionsOf(rule, thresholds, evaluatedSpan, snapshot)) {
    for await (const rows of tables.pages(Assets, { partitionKey, ...late, select: [...COLUMNS], onCorrupt })) {
      const unexpired = rows.filter(({ expiresOn }) => expiresOn !== undefined && expiresOn >= oldest);
      // The notification log is read from the first to the last expiry.
      await addItems(unexpired.sort((a, b) => (keyByExpiry(a) < keyByExpiry(b) ? -1 : 1)));
    }
  }
  // The snooze of an asset ended: evaluate the asset.
  for (const id of deps.recentlyEnded) {
    // The id of an application's credential does not contain its type, so `locationsOf` returns a location for each type.
    for (const location of locationsOf(id)) {
      const { type, name, vaultName } = location;
      const asset =
        (await tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName))) ??
        (await assetWithEntry(location, tables));
      if (asset) await addItems([asset]);
    }
  }
  const items = [...itemsById.values()].sort(byUrgency);
  return { items: items.slice(0, limit), more: more || items.length > limit, isIncomplete };
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
  // A certificate that its renewer renews on time causes no notification.
  if (!needsAttention(asset, now.getTime())) return [];
  const { renewedBy, windowEnd } = asset.renewal ?? {};
  const late = renewedBy !== undefined && windowEnd !== undefined ? { renewedBy, windowEnd } : undefined;
  if (rule.alertType === "lateRenewal" && !late) return [];
  const remainingMs = expiresOn * 1000 - now.getTime();
  // Several thresholds reached together cause one notification, for the lowest.
  const reachedThresholds =
    rule.alertType === "lateRenewal" ? [0] : thresholds.filter((days) => remainingMs <= days * DAY_MS);
  if (reachedThresholds.length === 0) return [];
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
      threshold: Math.min(...reachedThresholds),
      ...(late && { late }),
      ...(credential === undefined ? {} : { credential: credentialOfItem(credential) }),
    },
  ];
}

/**
 * Returns the thresholds of a rule in days; 0 stands for expired assets. Rules about credentials also report expired ones,
 * because an expired credential breaks its application.
 */
export const thresholdsOf = ({ alertType, thresholds }: Pick<RuleRecord, "alertType" | "thresholds">): number[] => {
  if (alertType === "expired" || alertType === "lateRenewal") return [0];
  return alertType === "credentialExpiry" ? [...new Set([...thresholds, 0])] : thresholds;
};

const credentialOfItem = ({
  tenantId,
  kind,
  tenantDomain,
  appId,
  applicationName,
  keyId,
  displayName,
}: Credential) => ({
  tenantId,
  ...(kind === undefined ? {} : { kind }),
  ...(tenantDomain === undefined ? {} : { tenantDomain }),
  ...(appId === undefined ? {} : { appId }),
  applicationName,
  ...(keyId === undefined ? {} : { keyId }),
  ...(displayName === undefined ? {} : { displayName }),
});

/**
 * Returns the ranges to read for a rule without late renewals: all assets within the highest threshold of each changed vault, and for
 * all vaults the assets that reached a threshold since the last evaluation.
 *
 * A holder is an internal vault record for credentials that are in no key vault, such as those of Entra applications. All holders of
 * a source are stored like the vaults of one subscription, so they have a partition of their own.
 */
function rangesToRead(
  rule: RuleRecord,
  thresholds: readonly number[],
  span: Span,
  snapshot: VaultSnapshot,
): IndexRange[] {
  const { vault, subscription, type } = rule.filters;
  const types = type === undefined ? ASSET_TYPES : [type];
  const sources = sourcesInScope(rule);
  const vaults = vaultsInScope(rule, snapshot);
  // The partitions with all assets: one, or one per source other than key vaults.
  const holderSources = sources?.flatMap((source) => (source === "keyVault" ? [] : source));
  const partitionsWithAll =
    vault === undefined && subscription === undefined && holderSources?.length
      ? holderSources.map((source) => ({
          partitionKey: partitions.subscription(holderSubscription(source)),
          vaults: vaults.filter(({ source: vaultSource }) => vaultSource === source),
        }))
      : [{ partitionKey: partitionOf(rule.filters), vaults }];
  // An expiration rule ignores assets that expired before its last evaluation. Rules about `expired` report them. `unset`:
  // whether assets without an expiry are included.
  const window: ExpiryRange = {
    from: rule.alertType === "expiration" ? secondAfter(span.from, 0) : 0,
    before: secondAfter(span.to, Math.max(...thresholds)),
    unset: false,
  };
  const countInWindow = (changedVault: (typeof vaults)[number], assetType: AssetType) =>
    countIn(changedVault, assetType, window);

  const changed = vaults
    .filter((candidate) => snapshot.changedSince(candidate, span.revision))
    .flatMap((candidate) =>
      types
        .filter((assetType) => countInWindow(candidate, assetType) > 0)
        .map((assetType) => ({ vault: candidate, type: assetType })),
    );
  const everything = partitionsWithAll.flatMap((part) =>
    types.map((assetType) => ({
      partitionKey: part.partitionKey,
      type: assetType,
      count: sum(part.vaults, (candidate) => countInWindow(candidate, assetType)),
    })),
  );
  const pages = sum(everything, ({ count }) => Math.ceil(count / PAGE_ROWS));
  // If reading the whole window needs no more requests than the changed vaults, read it. It includes the reached thresholds.
  if (changed.length > 0 && changed.length >= pages) {
    return everything
      .filter(({ count }) => count > 0)
      .map(({ partitionKey, type: assetType }) => ({ partitionKey, type: assetType, range: window }));
  }
  const reachedRanges = thresholds.flatMap((days) => {
    const range = { from: secondAfter(span.from, days), before: secondAfter(span.to, days), unset: false };
    return partitionsWithAll.flatMap((part) =>
      types
        .filter((assetType) => part.vaults.some((candidate) => countIn(candidate, assetType, range) > 0))
        .map((assetType) => ({ partitionKey: part.partitionKey, type: assetType, range })),
    );
  });
  return [
    ...changed.map(({ vault: changedVault, type: assetType }) => ({
      partitionKey: partitions.vault(changedVault.name),
      type: assetType,
      range: window,
    })),
    ...reachedRanges,
  ];
}

/** Returns the sources whose assets the rule covers. Undefined: all. */
const sourcesInScope = (rule: RuleRecord): readonly AssetSource[] | undefined =>
  rule.alertType === "credentialExpiry" ? HOLDER_SOURCES : rule.filters.source && [rule.filters.source];

/** Returns the vaults and holders of the snapshot that match the rule's filters. */
function vaultsInScope(rule: RuleRecord, snapshot: VaultSnapshot): SummaryVault[] {
  const { vault, subscription } = rule.filters;
  const sources = sourcesInScope(rule);
  return snapshot.vaults.filter(
    ({ name, subscriptionId, source: vaultSource }) =>
      (sources === undefined || sources.some((source) => sourceOf({ source: vaultSource }) === source)) &&
      (vault === undefined || name.toLowerCase() === vault.toLowerCase()) &&
      (subscription === undefined || subscriptionId.toLowerCase() === subscription.toLowerCase()),
  );
}

const keyByExpiry = ({ type, expiresOn, name, vaultName }: Candidate): string =>
  expiryKey(type, expiresOn, name, vaultName);

/**
 * Returns the partitions to read for certificates with a renewal plan, in the order of when they need attention. None if none of
 * these certificates newly reached a threshold after it needed attention.
 */
function latePartitionsOf(
  rule: RuleRecord,
  thresholds: readonly number[],
  span: Span,
  snapshot: VaultSnapshot,
): string[] {
  const { type } = rule.filters;
  if ((type !== undefined && type !== "certificate") || rule.alertType === "credentialExpiry") return [];
  const [from, to] = [span.from.getTime(), span.to.getTime()];
  const isDue = (certificate: PlannedCertificate, isChanged: boolean): boolean => {
    const { attentionAt, expiresOn, hasWindow } = certificate;
    if (rule.alertType === "lateRenewal" && !hasWindow) return false;
    // A rule about late renewals notifies at once. Others notify when a threshold is also reached.
    const times =
      rule.alertType === "lateRenewal"
        ? [attentionAt * 1000]
        : thresholds.map((days) => Math.max(attentionAt * 1000, expiresOn * 1000 - days * DAY_MS));
    return times.some((time) => time <= to && (time > from || isChanged));
  };
  const vaults = vaultsInScope(rule, snapshot).map((vault) => ({ vault, certificates: plannedIn(vault) }));
  const due = vaults.filter(({ vault, certificates }) => {
    const isChanged = snapshot.changedSince(vault, span.revision);
    return certificates.some((certificate) => isDue(certificate, isChanged));
  });
  const needAttention = sum(
    vaults,
    ({ certificates }) => certificates.filter(({ attentionAt }) => attentionAt * 1000 <= to).length,
  );
  // Reading all of them may need fewer requests than reading each vault.
  if (due.length > Math.ceil(needAttention / PAGE_ROWS)) return [partitionOf(rule.filters)];
  return due.map(({ vault }) => partitions.vault(vault.name));
}

/** Returns the narrowest partition with all assets that can match the filters. */
export function partitionOf({ vault, subscription }: RuleRecord["filters"]): string {
  if (vault !== undefined) return partitions.vault(vault);
  return subscription === undefined ? partitions.all : partitions.subscription(subscription);
}

/** Returns the first whole second after `instant` plus `days`, in Unix seconds. */
export const secondAfter = (instant: Date, days: number): number =>
  Math.floor((instant.getTime() + days * DAY_MS) / 1000) + 1;
