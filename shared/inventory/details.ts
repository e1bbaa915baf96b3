import { hash } from "node:crypto";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type AssetRecord, isStale, sourceOf } from "./asset.ts";
import type { ReadSevenths, VaultRecord } from "./vault.ts";

/**
 * Schedules the reading of details of keys and certificates that lists do not contain. Most details change only together with
 * their list entry, but rotation and certificate policies do not. So a scheduled full scan reads a seventh of all details each
 * day.
 */

const WEEK_DAYS = 7;
/** A scan may reach a vault earlier or later than the scan of the day before. */
const TOLERANCE_DAYS = 1 / 24;
/** A seventh that was read some hours ago is not read again on its day of the week. */
const MIN_AGE_DAYS = 0.5;

export const ALL_SEVENTHS: ReadonlySet<number> = new Set(Array.from({ length: WEEK_DAYS }, (_, day) => day));
export const NO_SEVENTHS: ReadonlySet<number> = new Set();

/** Returns the seventh of an asset: the day of the week, from Sunday, on which its details are read. */
export function seventhOf(vaultName: string, name: string): number {
  return hash("sha256", `${vaultName}/${name}`.toLowerCase(), "buffer").readUInt32BE() % WEEK_DAYS;
}

/**
 * Returns the sevenths of the assets that a scheduled full scan reads. The first is the seventh of the day, unless it would
 * still be recent enough on that day of the next week. The others are those that would be too old tomorrow.
 *
 * @param read - When each seventh was last read. Undefined if not all were read yet: then all are due.
 * @param now - Unix milliseconds.
 * @param refreshDays - Maximum age of details in days.
 */
export function dueSevenths(read: ReadSevenths | undefined, now: number, refreshDays: number): ReadonlySet<number> {
  if (!read) return ALL_SEVENTHS;
  const today = new Date(now).getUTCDay();
  // Each seventh has a tuple: when its details were last read (unix seconds), and a hash, which isn't needed here.
  const isDue = ([readAt]: ReadSevenths[number], seventh: number): boolean => {
    const days = (now - readAt * SECOND_MS) / DAY_MS;
    if (days > refreshDays - 1 + TOLERANCE_DAYS) return true;
    return seventh === today && days > refreshDays - WEEK_DAYS + MIN_AGE_DAYS;
  };
  return new Set([...ALL_SEVENTHS].filter((seventh) => isDue(read[seventh]!, seventh)));
}

/**
 * Returns when an asset's details were read, in ISO 8601. This is the time of its seventh, or the asset's first sighting if
 * that is later, because a new asset is read with its details. Undefined if unknown.
 */
export function detailsReadAt(
  asset: AssetRecord,
  vault: Pick<VaultRecord, "listedAt" | "details">,
): string | undefined {
  if (isStale(asset)) return undefined;
  // Lists of secrets and of credentials contain all details.
  if (asset.type === "secret" || sourceOf(asset) !== "keyVault") return vault.listedAt[asset.type];
  const read = vault.details?.[asset.type]?.[seventhOf(asset.vaultName, asset.name)];
  if (!read) return undefined;
  const readAt = new Date(read[0] * SECOND_MS).toISOString();
  return readAt > asset.firstSeenAt ? readAt : asset.firstSeenAt;
}
