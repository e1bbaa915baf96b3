import * as z from "zod";
import { SCAN_LIST, Scans } from "../discovery/scan.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { RuleRecord } from "./rule.ts";
import type { StateRecord } from "./rule-state.ts";

/**
 * Marks a store that was restored from a copy. The store does not know the alerts that the service sent after the copy, so the
 * service would send them again. Alerts that may have been sent are held (`inDoubt`) until a person sends or drops them.
 */
const RestoreMarker = z.object({
  copiedAt: z.string(),
  restoredAt: z.string(),
  /** End of the first full scan that started after the restore. The inventory then contains what changed since the copy. */
  caughtUpAt: z.string().optional(),
});
export type RestoreMarker = z.infer<typeof RestoreMarker>;
const RestoreMarkers = entity("AlertStates", RestoreMarker);
const RESTORE = "restore";

/** Returns whether a row of a table is the marker of a restored store. */
export const isRestoreMarker = (table: string, row: { partitionKey: string; rowKey: string }): boolean =>
  table === RestoreMarkers.table && row.partitionKey === RESTORE && row.rowKey === RESTORE;

/** Writes the marker of a restored store. */
export async function markRestored(tables: Tables, marker: RestoreMarker): Promise<void> {
  await tables.put(RestoreMarkers, RESTORE, RESTORE, marker);
}

/**
 * Returns the marker of a restored store. Costs one request, and one more in a restored store until a full scan has ended.
 *
 * @returns undefined if the store was not restored.
 */
export async function readRestoreMarker(tables: Tables): Promise<RestoreMarker | undefined> {
  const marker = await tables.get(RestoreMarkers, RESTORE, RESTORE);
  if (marker === undefined || marker.caughtUpAt !== undefined) return marker;
  const caughtUpAt = await endOfFullScan(tables, marker.restoredAt);
  return caughtUpAt === undefined
    ? marker
    : await tables.put(RestoreMarkers, RESTORE, RESTORE, { ...withoutKeys(marker), caughtUpAt });
}

/** Returns the end of the first full scan of all subscriptions that started after a time. Undefined if none has ended. */
async function endOfFullScan(tables: Tables, startedAfter: string): Promise<string | undefined> {
  let end: string | undefined;
  const select = ["mode", "subscriptions", "status", "createdAt", "finishedAt"] as const;
  // The list of scans is newest first.
  for await (const rows of tables.pages(Scans, { partitionKey: SCAN_LIST, select })) {
    for (const { mode, subscriptions, status, createdAt, finishedAt } of rows) {
      if (createdAt <= startedAfter) return end;
      const isFullScan = mode !== "delta" && subscriptions === undefined;
      if (isFullScan && (status === "completed" || status === "partial")) end = finishedAt ?? end;
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
export const mayBeSentBefore = (
  rule: Pick<RuleRecord, "createdAt">,
  state: Pick<Row<StateRecord>, "at"> | undefined,
  marker: RestoreMarker | undefined,
): boolean =>
  marker !== undefined &&
  rule.createdAt <= marker.restoredAt &&
  (marker.caughtUpAt === undefined || state === undefined || state.at <= marker.caughtUpAt);
