/**
 * Finds assets that passed an expiry threshold between two times, or between an old and a new policy. Their results may have
 * changed although the assets did not.
 */
import { ASSET_TYPES, Assets } from "../inventory/asset.ts";
import { expiryBounds, lateBounds, partitions } from "../inventory/asset-keys.ts";
import { statusOfAsset } from "../inventory/renewal.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_SECONDS } from "../platform/time.ts";
import type { ThresholdsRecord } from "./compliance-rows.ts";
import { assetKey } from "./packed-results.ts";

/** A time and the policy that together determine the expiry thresholds. */
export interface ThresholdMoment {
  /** Milliseconds since 1970. */
  now: number;
  criticalDays: number;
  warningDays: number;
}

export const thresholdMomentOf = ({ at, criticalDays, warningDays }: ThresholdsRecord): ThresholdMoment => ({
  now: Date.parse(at),
  criticalDays,
  warningDays,
});

/** Expiry dates in Unix seconds: from <= expiresOn < before. */
interface ExpiryRange {
  from: number;
  before: number;
}

/**
 * Returns the ranges of expiry dates that a threshold (expired, critical, warning) passed between the earliest and the latest
 * of these moments. Overlapping ranges are merged.
 */
function passedRanges(moments: readonly ThresholdMoment[]): ExpiryRange[] {
  const thresholds = [
    () => 0, // The expiry itself.
    (moment: ThresholdMoment) => moment.criticalDays,
    (moment: ThresholdMoment) => moment.warningDays,
  ];
  const ranges = thresholds.map((days): ExpiryRange => {
    const instants = moments.map((moment) => Math.floor(moment.now / 1000) + days(moment) * DAY_SECONDS);
    return { from: Math.min(...instants), before: Math.max(...instants) + 1 };
  });
  ranges.sort((a, b) => a.from - b.from);
  const merged: ExpiryRange[] = [];
  for (const range of ranges) {
    const previous = merged.at(-1);
    if (previous && range.from <= previous.before) previous.before = Math.max(previous.before, range.before);
    else merged.push({ ...range });
  }
  return merged;
}

/**
 * Returns the assets that passed a threshold between these moments, as `<type>.<name>`, by their vault's lower-case name. Reads
 * at most nine ranges of the inventory's index by expiry. Certificates with a renewal plan are not in that index. Before they
 * need attention they are healthy at every moment, so only the others are read: one request per 1,000.
 */
export async function readAssetsThatPassed(
  tables: Tables,
  moments: readonly ThresholdMoment[],
): Promise<Map<string, string[]>> {
  const byVault = new Map<string, string[]>();
  const add = (vaultName: string, key: string) => {
    const keys = byVault.get(vaultName.toLowerCase());
    if (keys) keys.push(key);
    else byVault.set(vaultName.toLowerCase(), [key]);
  };
  const readCertificatesNeedingAttention = async () => {
    const latest = Math.max(...moments.map(({ now }) => now));
    const range = { partitionKey: partitions.all, ...lateBounds(Math.floor(latest / 1000) + 1) };
    const select = ["type", "name", "vaultName", "expiresOn", "renewal"] as const;
    for await (const rows of tables.pages(Assets, { ...range, select })) {
      for (const row of rows) {
        const statuses = new Set(moments.map((moment) => statusOfAsset(row, moment)));
        if (statuses.size > 1) add(row.vaultName, assetKey(row.type, row.name));
      }
    }
  };
  await Promise.all([
    readCertificatesNeedingAttention(),
    ...passedRanges(moments).flatMap(({ from, before }) =>
      ASSET_TYPES.map(async (type) => {
        // The last argument, false, leaves out assets that have no expiry.
        const range = { partitionKey: partitions.all, ...expiryBounds(type, from, before, false) };
        const select = ["name", "vaultName"] as const;
        for await (const rows of tables.pages(Assets, { ...range, select })) {
          for (const { name, vaultName } of rows) add(vaultName, assetKey(type, name));
        }
      }),
    ),
  ]);
  return byVault;
}
