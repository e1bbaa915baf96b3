/** Display texts for the API's verification findings. */
import type { Schemas } from "../../api/client.ts";

export const FINDINGS = {
  entryChanged: "Entry changed",
  entryRemoved: "Entry removed",
  entryInserted: "Entry inserted",
  fingerprintsChanged: "Fingerprints changed",
  digestChanged: "Digest changed",
  digestMissing: "Digest missing",
  digestInserted: "Digest inserted",
  digestUnverifiable: "Digest not signed by a trusted key",
  digestReplaced: "Digest replaced",
  chainBroken: "Chain broken",
  digestsCut: "Digests truncated",
  beginningChanged: "Start of the log changed",
  anchorChanged: "Anchor in the key vault changed",
  markChanged: "Seal mark changed",
  indexEntryMissing: "Entry missing in the index",
  indexEntryInserted: "Entry inserted into the index",
  keyRecordChanged: "Key record changed",
  purgeRecordChanged: "Purge record changed",
  purgeRecordMissing: "Purge record missing",
  exportChanged: "Export changed",
} as const satisfies Record<Schemas["AuditFinding"]["kind"], string>;
