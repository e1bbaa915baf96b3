import { ASSET_TYPES, Assets } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/asset-keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_SECONDS } from "../platform/time.ts";
import type { LinesRecord } from "./compliance-rows.ts";
import { assetKey } from "./packed-results.ts";

/** A time and the policy that together determine the expiry thresholds. */
export interface LinesMoment {
  /** Milliseconds since 1970. */
  now: number;
  criticalDays: number;
  warningDays: number;
}

export const momentOf = ({ at, criticalDays, warningDays }: LinesRecord): LinesMoment => ({
  now: Date.parse(at),
  criticalDays,
  warningDays,
});

/** Unix seconds: from <= expiresOn < before. */
interface Interval {
  from: number;
  before: number;
}

/**
 * Returns the expiries that each threshold (expired, critical, warning) passed between the two times, with touching intervals
 * merged.
 */
export function sweptIntervals(moments: readonly LinesMoment[]): Interval[] {
  const lines = [() => 0, (moment: LinesMoment) => moment.criticalDays, (moment: LinesMoment) => moment.warningDays];
  const swept = lines.map((days): Interval => {
    const instants = moments.map((moment) => Math.floor(moment.now / 1000) + days(moment) * DAY_SECONDS);
    return { from: Math.min(...instants), before: Math.max(...instants) + 1 };
  });
  swept.sort((a, b) => a.from - b.from);
  const merged: Interval[] = [];
  for (const interval of swept) {
    const last = merged.at(-1);
    if (last && interval.from <= last.before) last.before = Math.max(last.before, interval.before);
    else merged.push({ ...interval });
  }
  return merged;
}

/**
 * Returns the assets whose expiry is in the intervals, as `<type>.<name>` by vault. Reads at most nine ranges of the index by
 * expiry.
 */
export async function assetsExpiringIn(tables: Tables, intervals: readonly Interval[]): Promise<Map<string, string[]>> {
  const byVault = new Map<string, string[]>();
  await Promise.all(
    intervals.flatMap(({ from, before }) =>
      ASSET_TYPES.map(async (type) => {
        const range = { partitionKey: partitions.all, ...expiryBounds(type, from, before, false) };
        const select = ["name", "vaultName"] as const;
        for await (const rows of tables.pages(Assets, { ...range, select })) {
          for (const { name, vaultName } of rows) {
            const key = vaultName.toLowerCase();
            const keys = byVault.get(key);
            if (keys) keys.push(assetKey(type, name));
            else byVault.set(key, [assetKey(type, name)]);
          }
        }
      }),
    ),
  );
  return byVault;
}
