import * as z from "zod";
import { SCAN_LIST, type ScanStatus, Scans } from "../discovery/scan.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../platform/time.ts";
import type { RuleRecord } from "./rule.ts";
import type { StateRecord } from "./rule-state.ts";

/**
 * Marks a store that was restored from a copy. The store does not know the alerts that the service sent after the copy, so the
 * service would send them again. Alerts that may have been sent are held (`inDoubt`) until a person sends or drops them.
 *
 * Held alerts reach nobody, so a stranger must not be able to write the marker: it is signed. A copy of an earlier marker has a
 * valid signature, so a marker has no effect after `MAX_HOLD_MS`.
 */
const RestoreMarker = z.object({
  copiedAt: z.iso.datetime(),
  /** Time of the table service. */
  restoredAt: z.iso.datetime(),
  /** End of the first full scan that started after the restore. The inventory then contains what changed since the copy. */
  caughtUpAt: z.iso.datetime().optional(),
});
export type RestoreMarker = z.infer<typeof RestoreMarker>;
/** `withKeyVault`: signed and verified only if the service has its own key vault. */
export const RestoreMarkers = entity("AlertStates", RestoreMarker, { signed: "withKeyVault" });
/** The marker without a check of its signature. Its time shows whether the marker is too old to matter. */
const RestoreTimes = entity("AlertStates", RestoreMarker.pick({ restoredAt: true }));
const RESTORE = "restore";

/** Returns whether a row of a table is the marker of a restored store. */
export const isRestoreMarker = (table: string, row: { partitionKey: string; rowKey: string }): boolean =>
  table === RestoreMarkers.table && row.partitionKey === RESTORE && row.rowKey === RESTORE;

/**
 * Maximum time that alerts are held. By default, full scans run daily, and a rule with a weekly digest is evaluated within a week
 * after the scan.
 */
const MAX_HOLD_MS = 14 * DAY_MS;
/**
 * A time that is further in the future cannot be right: instances use the table service's clock. In a service without a key
 * vault, a stranger may have written it to hold all alerts.
 */
const MAX_AHEAD_MS = HOUR_MS;
const latestPossible = (now: Date): string => new Date(now.getTime() + MAX_AHEAD_MS).toISOString();

/**
 * Writes the marker of a restored store.
 *
 * @param copy - Time of the copy, and the creation time of its newest scan, so that no scan of the copy counts as a scan after
 * the restore.
 * @param now - Time of the table service.
 * @returns the time of the restore, ISO 8601.
 */
export async function markRestored(
  tables: Tables,
  { copiedAt, newestScanAt }: { copiedAt: string; newestScanAt?: string | undefined },
  now: Date,
): Promise<string> {
  // The newest of these times, because clocks may differ. ISO times sort as text.
  const newest = [now.toISOString(), copiedAt, newestScanAt ?? ""].sort().at(-1)!;
  const latest = latestPossible(now);
  const restoredAt = newest < latest ? newest : latest;
  await tables.put(RestoreMarkers, RESTORE, RESTORE, { copiedAt, restoredAt });
  return restoredAt;
}

/**
 * Returns the marker of a restored store. Costs one request, one more in a store that was restored in the last 14 days, and
 * one more until a full scan has ended. A marker that can't be read, has no valid signature or is from the future is reported
 * as unreadable and has no effect: alerts that are sent twice are better than alerts that nobody gets.
 *
 * @param now - Time of the table service.
 * @returns undefined if the store was not restored, or long ago.
 */
export async function readRestoreMarker(tables: Tables, now: Date): Promise<RestoreMarker | undefined> {
  // `tables` reports each unreadable row by itself.
  const times = await tables.get(RestoreTimes, RESTORE, RESTORE, { onCorrupt: () => {} });
  if (times === undefined || Date.parse(times.restoredAt) + MAX_HOLD_MS < now.getTime()) return undefined;
  const marker = await tables.get(RestoreMarkers, RESTORE, RESTORE, { onCorrupt: () => {} });
  if (marker === undefined) return undefined;
  const latest = latestPossible(now);
  if (marker.restoredAt > latest) {
    await tables.leaveOut(new StorageCorrupt(RestoreMarkers.table, marker, "restoredAt is in the future"));
    return undefined;
  }
  if (marker.caughtUpAt !== undefined && marker.caughtUpAt <= latest) return marker;
  const { caughtUpAt: _, ...notCaughtUp } = marker;
  const end = await endOfFullScan(tables, marker.restoredAt);
  if (end === undefined) return notCaughtUp;
  const time = now.toISOString();
  const caughtUpAt = end < time ? end : time;
  return await tables.put(RestoreMarkers, RESTORE, RESTORE, { ...withoutKeys(notCaughtUp), caughtUpAt });
}

/** Statuses of full scans that have read what they could. A vault that such a scan did not read is as old as before. */
const FULL_SCAN_ENDS: readonly ScanStatus[] = ["completed", "partial", "timedOut"];

/** Returns the end of the first full scan of all subscriptions that started after a time. Undefined if none has ended. */
async function endOfFullScan(tables: Tables, startedAfter: string): Promise<string | undefined> {
  let end: string | undefined;
  const select = ["mode", "subscriptions", "status", "createdAt", "finishedAt"] as const;
  // The list of scans is newest first. A scan that can't be read is skipped, so alerts may be held longer.
  for await (const rows of tables.pages(Scans, { partitionKey: SCAN_LIST, select, onCorrupt: () => {} })) {
    for (const { mode, subscriptions, status, createdAt, finishedAt } of rows) {
      if (createdAt <= startedAfter) return end;
      const isFullScan = mode !== "delta" && subscriptions === undefined;
      if (isFullScan && FULL_SCAN_ENDS.includes(status)) end = finishedAt ?? end;
    }
  }
  return end;
}

/**
 * Returns whether alerts that an evaluation finds now may have been sent between the copy and the restore: until the rule's first
 * evaluation after the full scan, inclusive.
 *
 * @param state - The progress of the rule before the evaluation.
 */
export const mayHaveBeenSent = (
  rule: Pick<RuleRecord, "createdAt">,
  state: Pick<Row<StateRecord>, "at"> | undefined,
  marker: RestoreMarker | undefined,
): boolean =>
  marker !== undefined &&
  rule.createdAt <= marker.restoredAt &&
  (marker.caughtUpAt === undefined || state === undefined || state.at <= marker.caughtUpAt);
