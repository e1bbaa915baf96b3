import { ASSET_TYPES, Assets, idsOf } from "../inventory/asset.ts";
import { type ExpiryIndex, expiryBounds, lateBounds, partitions, RENEWED } from "../inventory/asset-keys.ts";
import { END_OF_TIME } from "../inventory/asset-status.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { nextDigest } from "./digest-schedule.ts";
import type { Evaluation, Forecast } from "./evaluate.ts";
import { COLUMNS, itemsOf, partitionOf, secondAfter, thresholdsOf } from "./expiring-assets.ts";
import type { AssetItem } from "./items.ts";
import { isAboutExpiry, type RuleRecord } from "./rule.ts";
import { isSnoozed, type Snoozes } from "./snoozes.ts";

/** Previews an alert rule: the notifications that it would send now, and the next one. */

/** Evaluation interval of rules without a digest. */
export const EVALUATION_MS = 15 * MINUTE_MS;
/** Page size and number of pages that are read to find the next asset to reach a threshold. */
const PAGE_ROWS = 200;
const MAX_PAGES = 5;

/** The items that a rule would send now, and the next one. */
export interface Preview extends Forecast {
  /** Time of the next evaluation. Undefined while the rule is disabled. */
  evaluatedAt: string | undefined;
  /** The next asset to reach a threshold, and the time. Undefined if none was found. */
  next: { item: AssetItem; at: string } | undefined;
}

/** Creates a function that previews a rule. It sends and writes nothing. */
export function createPreview(deps: {
  tables: Tables;
  evaluation: Pick<Evaluation, "forecast">;
  snoozes: Snoozes;
  ownerTag: string;
  clock: Clock;
}) {
  const { tables, clock } = deps;

  /** Returns the preview of a stored or planned rule. */
  return async function preview(rule: RuleRecord): Promise<Preview> {
    const now = clock.now();
    const forecast = await deps.evaluation.forecast(rule);
    const next = await nextAsset(rule, now, new Set(forecast.hidden));
    return { ...forecast, evaluatedAt: evaluatedAt(rule, now), next };
  };

  /** Returns the next asset to reach a threshold. Undefined if the rule is not about expiry or none was found. */
  async function nextAsset(rule: RuleRecord, now: Date, hidden: ReadonlySet<string>): Promise<Preview["next"]> {
    if (!isAboutExpiry(rule.alertType)) return undefined;
    const snoozed = deps.snoozes.split(await deps.snoozes.all(), rule.ruleId, now, now);
    const types = rule.filters.type === undefined ? ASSET_TYPES : [rule.filters.type];
    // A certificate with a renewal plan reaches a threshold after its renewal is late, or becomes late after the threshold.
    const indexes: readonly ExpiryIndex[] = types.includes("certificate") ? [...types, RENEWED] : types;
    const firstByThreshold = thresholdsOf(rule).flatMap((days) =>
      indexes.map((index) => firstAfter(rule, index, days, now, snoozed, hidden)),
    );
    const candidates = await Promise.all([
      ...(rule.alertType === "lateRenewal" ? [] : firstByThreshold),
      ...(types.includes("certificate") ? [firstLateAfter(rule, now, snoozed, hidden)] : []),
    ]);
    return candidates.flat().sort((a, b) => (a.at < b.at ? -1 : 1))[0];
  }

  /** Returns the first asset of an index to reach a threshold after now, searched in at most 1,000 rows. */
  async function firstAfter(
    rule: RuleRecord,
    index: ExpiryIndex,
    days: number,
    now: Date,
    snoozed: ReturnType<Snoozes["split"]>,
    hidden: ReadonlySet<string>,
  ): Promise<NonNullable<Preview["next"]>[]> {
    const bounds = expiryBounds(index, secondAfter(now, days), Number.MAX_SAFE_INTEGER, false);
    // Credentials are in no vault, so a rule about them reads the partition with all assets.
    const partitionKey = rule.alertType === "credentialExpiry" ? partitions.all : partitionOf(rule.filters);
    let pages = 0;
    for await (const rows of tables.pages(Assets, {
      partitionKey,
      ...bounds,
      pageSize: PAGE_ROWS,
      select: [...COLUMNS],
    })) {
      for (const asset of rows) {
        if (hidden.has(asset.vaultName.toLowerCase())) continue;
        if (asset.expiresOn === undefined || isSnoozed(snoozed, idsOf(asset), asset, deps.ownerTag)) continue;
        const reachedAt = new Date(asset.expiresOn * 1000 - days * DAY_MS);
        const [item] = itemsOf(asset, [days], reachedAt, rule, deps.ownerTag);
        if (item) return [{ item, at: reachedAt.toISOString() }];
      }
      if (++pages === MAX_PAGES) break;
    }
    return [];
  }

  /**
   * Returns the first certificate whose renewal becomes late after now, if the rule then notifies about it. Searched in the next
   * 200 certificates.
   */
  async function firstLateAfter(
    rule: RuleRecord,
    now: Date,
    snoozed: ReturnType<Snoozes["split"]>,
    hidden: ReadonlySet<string>,
  ): Promise<NonNullable<Preview["next"]>[]> {
    if (rule.alertType === "credentialExpiry") return [];
    const { before: from } = lateBounds(Math.floor(now.getTime() / 1000) + 1);
    const range = { partitionKey: partitionOf(rule.filters), from, before: lateBounds(END_OF_TIME).before };
    for await (const rows of tables.pages(Assets, { ...range, pageSize: PAGE_ROWS, select: [...COLUMNS] })) {
      for (const asset of rows) {
        if (hidden.has(asset.vaultName.toLowerCase()) || isSnoozed(snoozed, idsOf(asset), asset, deps.ownerTag))
          continue;
        const lateAt = new Date(asset.renewal!.attentionAt * 1000);
        const [item] = itemsOf(asset, thresholdsOf(rule), lateAt, rule, deps.ownerTag);
        if (item) return [{ item, at: lateAt.toISOString() }];
      }
      break;
    }
    return [];
  }
}

function evaluatedAt(rule: RuleRecord, now: Date): string | undefined {
  if (!rule.enabled) return undefined;
  if (rule.deliveryMode === "digest") return nextDigest(rule.digestFrequency, now).toISOString();
  return new Date((Math.floor(now.getTime() / EVALUATION_MS) + 1) * EVALUATION_MS).toISOString();
}
