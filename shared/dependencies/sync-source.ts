import { HOUR_MS, SECOND_MS } from "../platform/time.ts";
import { type SyncRecord, targetOf } from "../sync/record.ts";
import type { EdgeSource, ReadingItem } from "./edge-source.ts";

/** IDs start with their system. */
export const syncResourceId = (recordId: string): string => `${PREFIX}${recordId}`;
export const recordIdOf = (resourceId: string): string => resourceId.slice(PREFIX.length);
const PREFIX = "sync/";

/**
 * Source of dependencies from sync records: the target of a record uses the record's source. A paused record keeps its last
 * copy.
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
        refresh: enabled
          ? { how: "action", slowestSeconds: (scheduleHours * HOUR_MS) / SECOND_MS }
          : { how: "willBreak" },
      },
    ],
  };
}
