import { ASSET_TYPES, Assets, assetId } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/layout.ts";
import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../time.ts";
import { nextDigest } from "./due.ts";
import type { Evaluation, Forecast } from "./evaluate.ts";
import { COLUMNS, itemsOf, partitionOf, secondAfter, thresholdsOf } from "./expiring.ts";
import type { AssetItem } from "./items.ts";
import { isAboutExpiry, type RuleRecord } from "./rule.ts";
import { isAsleep, type Snoozes } from "./snoozes.ts";

/** How often the rules are evaluated that tell at once. */
export const EVALUATION_MS = 15 * MINUTE_MS;
/** Rows of one page, and pages, that are read to find what crosses a threshold next. */
const PAGE_ROWS = 200;
const MAX_PAGES = 5;

/** What a rule would tell, now and next. */
export interface Preview extends Forecast {
  /** When it is evaluated next; undefined while it is disabled. */
  evaluatedAt: string | undefined;
  /** The asset that is the next to cross one of the thresholds, and when; undefined where none was found. */
  next: { item: AssetItem; at: string } | undefined;
}

/** Answers what a rule would tell. Sends and writes nothing. */
export function createPreview(deps: {
  tables: Tables;
  evaluation: Pick<Evaluation, "forecast">;
  snoozes: Snoozes;
  ownerTag: string;
  clock: Clock;
}) {
  const { tables, clock } = deps;

  /** @param rule - As it is stored, or as it would be. */
  return async function preview(rule: RuleRecord): Promise<Preview> {
    const now = clock.now();
    const forecast = await deps.evaluation.forecast(rule);
    const next = await nextAsset(rule, now, new Set(forecast.hidden));
    return { ...forecast, evaluatedAt: evaluatedAt(rule, now), next };
  };

  async function nextAsset(rule: RuleRecord, now: Date, hidden: ReadonlySet<string>): Promise<Preview["next"]> {
    if (!isAboutExpiry(rule.alertType)) return undefined;
    const snoozed = deps.snoozes.split(await deps.snoozes.all(), rule.ruleId, now, now);
    const types = rule.filters.type === undefined ? ASSET_TYPES : [rule.filters.type];
    const found = await Promise.all(
      thresholdsOf(rule).flatMap((days) => types.map((type) => firstAfter(rule, type, days, now, snoozed, hidden))),
    );
    return found.flat().sort((a, b) => (a.at < b.at ? -1 : 1))[0];
  }

  /** Of one type the first that crosses a threshold after now, as far as it is looked for: at most 1,000 rows. */
  async function firstAfter(
    rule: RuleRecord,
    type: AssetItem["type"],
    days: number,
    now: Date,
    snoozed: ReturnType<Snoozes["split"]>,
    hidden: ReadonlySet<string>,
  ): Promise<NonNullable<Preview["next"]>[]> {
    const bounds = expiryBounds(type, secondAfter(now, days), Number.MAX_SAFE_INTEGER, false);
    // A rule about credentials finds them in no vault; they are among all others.
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
        if (asset.expiresOn === undefined || isAsleep(snoozed, assetId(asset), asset, deps.ownerTag)) continue;
        const at = new Date(asset.expiresOn * 1000 - days * DAY_MS);
        const [item] = itemsOf(asset, [days], at, rule, deps.ownerTag);
        if (item) return [{ item, at: at.toISOString() }];
      }
      if (++pages === MAX_PAGES) break;
    }
    return [];
  }
}

function evaluatedAt(rule: RuleRecord, now: Date): string | undefined {
  if (!rule.enabled) return undefined;
  if (rule.deliveryMode === "digest") return nextDigest(rule.digestFrequency, now).toISOString();
  return new Date((Math.floor(now.getTime() / EVALUATION_MS) + 1) * EVALUATION_MS).toISOString();
}
