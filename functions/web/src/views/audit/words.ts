/** What the API's words mean. */
import type { Schemas } from "../../api/client.ts";

/** What verifying the log finds. */
export const FINDINGS = {
  entryChanged: "Entry changed",
  entryRemoved: "Entry removed",
  entryInserted: "Entry inserted",
  fingerprintsChanged: "Fingerprints changed",
  digestChanged: "Digest changed",
  digestMissing: "Digest missing",
  digestInserted: "Digest inserted",
  digestUnverifiable: "Digest signed by no trusted key",
  digestReplaced: "Digest replaced",
  chainBroken: "Chain broken",
  digestsCut: "Digests cut off",
  beginningChanged: "Beginning of the log changed",
  anchorChanged: "Anchor in the key vault changed",
  markChanged: "Mark changed",
  indexEntryMissing: "Entry missing in the index",
  indexEntryInserted: "Entry inserted into the index",
  keyRecordChanged: "Record of the keys changed",
  purgeRecordChanged: "Record of a removal changed",
  purgeRecordMissing: "Record of a removal missing",
  exportChanged: "Export changed",
} as const satisfies Record<Schemas["AuditFinding"]["kind"], string>;
