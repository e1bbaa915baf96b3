import { hash } from "node:crypto";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type AssetRecord, isStale, sourceOf } from "./asset.ts";
import type { ReadSevenths, VaultRecord } from "./vault.ts";

/**
 * Details of keys and certificates, which no list entry has: most change only with their entry, but a rotation or
 * certificate policy changes without a sign. So a scheduled full scan reads a seventh of them anew each day.
 */

const WEEK_DAYS = 7;
/** A scan comes to a vault a little earlier or later than the one of the day before did. */
const TOLERANCE_DAYS = 1 / 24;
/** On its day of the week a seventh is not read that was read some hours ago. */
const LEAST_DAYS = 0.5;

export const ALL_SEVENTHS: ReadonlySet<number> = new Set(Array.from({ length: WEEK_DAYS }, (_, day) => day));
export const NO_SEVENTHS: ReadonlySet<number> = new Set();

/** Which seventh an asset belongs to: the day of the week, from Sunday on, on which it is read anew. */
export function seventhOf(vaultName: string, name: string): number {
  return hash("sha256", `${vaultName}/${name}`.toLowerCase(), "buffer").readUInt32BE() % WEEK_DAYS;
}

/**
 * The sevenths that a scheduled full scan reads: that of the day, unless it would be young enough on the same day of the
 * next week too; each that would be too old tomorrow; and each of which nothing is known.
 *
 * @param now - Unix milliseconds.
 * @param refreshDays - How old details may become.
 */
export function dueSevenths(read: ReadSevenths | undefined, now: number, refreshDays: number): ReadonlySet<number> {
  if (!read) return ALL_SEVENTHS;
  const today = new Date(now).getUTCDay();
  const isDue = ([readAt]: ReadSevenths[number], seventh: number): boolean => {
    const days = (now - readAt * SECOND_MS) / DAY_MS;
    if (days > refreshDays - 1 + TOLERANCE_DAYS) return true;
    return seventh === today && days > refreshDays - WEEK_DAYS + LEAST_DAYS;
  };
  return new Set([...ALL_SEVENTHS].filter((seventh) => isDue(read[seventh]!, seventh)));
}

/** When an asset's details were read, or later where its list entry changed; ISO 8601. Undefined where that is not known. */
export function detailsReadAt(
  asset: AssetRecord,
  vault: Pick<VaultRecord, "listedAt" | "details">,
): string | undefined {
  if (isStale(asset)) return undefined;
  // All there is to know of these stands in their list.
  if (asset.type === "secret" || sourceOf(asset) !== "keyVault") return vault.listedAt[asset.type];
  const read = vault.details?.[asset.type]?.[seventhOf(asset.vaultName, asset.name)];
  if (!read) return undefined;
  const readAt = new Date(read[0] * SECOND_MS).toISOString();
  return readAt > asset.firstSeenAt ? readAt : asset.firstSeenAt;
}
