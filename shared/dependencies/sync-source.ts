import { HOUR_MS, SECOND_MS } from "../platform/time.ts";
import { type SyncRecord, targetOf } from "../sync/record.ts";
import type { EdgeSource, ReadingItem } from "./edge-source.ts";

/** Returns the resource ID of a sync record. IDs of resources outside Azure start with their system. */
export const syncResourceId = (recordId: string): string => `${PREFIX}${recordId}`;
/** Returns the sync record's ID from its resource ID. */
export const recordIdOf = (resourceId: string): string => resourceId.slice(PREFIX.length);
const PREFIX = "sync/";

/**
 * Source of dependencies from sync records: each record copies a secret, its source, to a target. So the target uses the
 * source. The target of a paused record keeps the old value.
 */
export function createSyncSource(sync: { everyRecord(): AsyncIterable<SyncRecord> }): EdgeSource {
  return {
    name: "sync",
    whole: true,
    units: async () => ["records"],
    async *read() {
      for await (const record of sync.everyRecord()) yield itemOf(record);
    },
  };
}

function itemOf(record: SyncRecord): ReadingItem {
  const { recordId, sourceVault, sourceSecret, scheduleHours, enabled } = record;
  const resource = { id: syncResourceId(recordId), kind: "syncRecord", name: targetOf(record) } as const;
  return {
    resource,
    edges: [
      {
        vaultName: sourceVault,
        type: "secret",
        name: sourceSecret,
        resource,
        strength: "references",
        evidence: "sourceSecret",
        // A refresh by a rotation runs the record at once. Otherwise the record's schedule copies the new value.
        refresh: enabled
          ? { how: "action", slowestSeconds: (scheduleHours * HOUR_MS) / SECOND_MS }
          : { how: "willBreak" },
      },
    ],
  };
}
