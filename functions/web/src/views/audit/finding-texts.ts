/**
 * Display texts for the API's verification findings. For every 10 minutes (an interval), the service signs a digest of the
 * entries and of the previous digest. The marks of an interval say whether entries can still be added to it.
 * Fingerprints are the ids and hashes of its entries.
 */
import type { Schemas } from "../../api/client.ts";

export const FINDINGS = {
  entryChanged: "Entry changed",
  entryRemoved: "Entry removed",
  entryInserted: "Entry inserted",
  fingerprintsChanged: "Fingerprints of entries changed",
  digestChanged: "Signed digest changed",
  digestMissing: "Signed digest missing",
  digestInserted: "Digest inserted",
  digestUnverifiable: "Digest not signed by a trusted key",
  digestReplaced: "Signed digest replaced",
  chainBroken: "Chain of digests broken",
  digestsCut: "Newest digests deleted",
  beginningChanged: "Start of the log changed",
  anchorChanged: "Copy of the newest digest in the key vault changed",
  markChanged: "Mark of a signed interval changed",
  lastEntryChanged: "Row of a writer's last entry changed",
  indexEntryMissing: "Entry missing in the index",
  indexEntryInserted: "Entry inserted into the index",
  keyRecordChanged: "Key record changed",
  purgeRecordChanged: "Purge record changed",
  purgeRecordMissing: "Purge record missing",
  exportChanged: "Export changed",
} as const satisfies Record<Schemas["AuditFinding"]["kind"], string>;
