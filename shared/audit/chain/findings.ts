import * as z from "zod";
import { INTERVAL_MS, type Interval, intervalName } from "../interval.ts";
import type { Digest } from "./digest.ts";
import { type Fingerprint, manifestHash } from "./manifest.ts";
import type { PurgeRecord } from "./purge-record.ts";

/**
 * Kinds of problems that a verification of the audit log can find. For each ten-minute interval, sealing stores the fingerprint
 * (id and hash) of every entry and signs a digest, the hash of these fingerprints. Each digest names the previous one, so the
 * digests form a chain.
 */
export const FindingKind = z.enum([
  "entryChanged",
  "entryRemoved",
  "entryInserted",
  // The stored fingerprints of an interval differ from its digest, or belong to no sealed interval.
  "fingerprintsChanged",
  "digestChanged",
  "digestMissing",
  "digestInserted",
  // The key that signed the digest is neither configured nor one for which a configured key vouches, directly or through others.
  "digestUnverifiable",
  // Sealing replaced a row without a trusted signature by the digest.
  "digestReplaced",
  // A digest does not name the previous one, or names another beginning of the log than the other digests.
  "chainBroken",
  // The newest digests are missing: the copy of the newest one in the key vault (the anchor) differs from the tables.
  "digestsCut",
  "beginningChanged",
  "anchorChanged",
  // The rows that say whether entries can be added to an interval don't match the interval's state.
  "markChanged",
  // The row that names the last entry of a sequence (entries that one process wrote one after the other) was changed or removed.
  "lastEntryChanged",
  // An index row, by which lists find entries, is missing or names no entry.
  "indexEntryMissing",
  "indexEntryInserted",
  // No trusted key signed the record of an older key.
  "keyRecordChanged",
  "purgeRecordChanged",
  "purgeRecordMissing",
  // An exported file is not as it was signed.
  "exportChanged",
]);

/** Descriptions of the differences between a sealed interval and its present entries. */
export const DETAILS = {
  entryChanged: "The entry differs from the sealed one.",
  entryRemoved: "The sealed entry is missing.",
  entryInserted: "The entry was added after the interval was sealed.",
} as const;

export const Finding = z
  .object({
    kind: FindingKind.meta({ description: "Kind of the problem." }),
    interval: z.string().optional().meta({ description: "Start of the ten-minute interval of the finding." }),
    digestNumber: z.int().optional().meta({ description: "Number of the digest concerned." }),
    entryId: z.string().optional(),
    detail: z.string().meta({ description: "Description of the finding.", example: DETAILS.entryChanged }),
  })
  .meta({ id: "AuditFinding" });
export type Finding = z.infer<typeof Finding>;

/** Returns the problems that sealing found and recorded in the digest that it signed. */
export function findingsIn(digest: Digest): Finding[] {
  const location = { interval: digest.interval, digestNumber: digest.number };
  const { lost, replaced, unverified, anchorChanged, falsified } = digest;
  const findings: Finding[] = [];
  if (lost) {
    const detail = `When this was sealed, the digests up to number ${lost.number} (${lost.interval}) were missing with their entries.`;
    findings.push({ ...location, kind: "digestsCut", detail });
  }
  if (replaced !== undefined) {
    const detail = `When this was sealed, a row without a trusted signature was in its place (SHA-256 ${replaced}).`;
    findings.push({ ...location, kind: "digestReplaced", detail });
  }
  if (unverified) {
    const detail = `When this was sealed, the previous digest had no trusted signature: number ${unverified.number} (${unverified.interval}).`;
    findings.push({ ...location, kind: "digestUnverifiable", detail });
  }
  if (anchorChanged) {
    const detail = "When this was sealed, the anchor in the key vault had not been written by this service.";
    findings.push({ ...location, kind: "anchorChanged", detail });
  }
  if (falsified) {
    for (const { detail, ...finding } of falsified.listed)
      findings.push({ ...location, ...finding, detail: `Before this was sealed: ${detail}` });
    const unlisted = falsified.total - falsified.listed.length;
    if (unlisted > 0) {
      const detail = `Before this was sealed, ${unlisted} more entries were changed, removed or inserted.`;
      findings.push({ ...location, kind: "entryChanged", detail });
    }
  }
  return findings;
}

/** Returns a finding for the missing digests from `start` up to `end`. */
export function missingDigests(start: Interval, end: Interval): Finding {
  const count = (end - start) / INTERVAL_MS;
  const which = count === 1 ? "The digest of this interval is" : `${count} digests, up to ${intervalName(end)}, are`;
  return { kind: "digestMissing", interval: intervalName(start), detail: `${which} missing.` };
}

/**
 * Returns findings for missing purge records. The first purge starts at the original beginning of the log, and each later one
 * where the purge before it ended. After the last purge, the log itself must continue: the check of the digests reports a gap
 * there.
 *
 * @param originalBeginning - Name of the first interval that was ever sealed. If it is undefined, a missing first record isn't
 * found.
 * @param records - The stored records, oldest first.
 */
export function missingPurges(originalBeginning: string | undefined, records: readonly PurgeRecord[]): Finding[] {
  const findings: Finding[] = [];
  let expectedStart = originalBeginning;
  for (const { from, to } of records) {
    if (expectedStart !== undefined && from !== expectedStart) {
      const detail = `The purge record from ${expectedStart} to ${from} is missing.`;
      findings.push({ kind: "purgeRecordMissing", interval: expectedStart, detail });
    }
    expectedStart = to;
  }
  return findings;
}

/** Differences between the sealed fingerprints of an interval and its present entries. */
export interface Comparison {
  differences: { kind: "entryChanged" | "entryRemoved" | "entryInserted"; entryId: string }[];
  /** Number of all differences, including those that are not listed. */
  total: number;
  /**
   * Hashes of the sealed fingerprints and of the fingerprints of the present entries. Each must be equal to the hash in the
   * digest.
   */
  sealedHash: string;
  presentHash: string;
  /** Number of present entries. */
  entries: number;
}

type Fingerprints = Iterable<Fingerprint> | AsyncIterable<Fingerprint>;

/**
 * Compares sealed fingerprints with those of the present entries in one pass, like a merge of two sorted lists. Both must be in the
 * order of their ids. Lists at most `limit` differences.
 */
export async function compareFingerprints(
  sealed: Fingerprints,
  present: Fingerprints,
  limit: number,
): Promise<Comparison> {
  const [sealedHash, presentHash] = [manifestHash(), manifestHash()];
  const sealedIterator = iterate(sealed);
  const presentIterator = iterate(present);
  const differences: Comparison["differences"] = [];
  let [total, entries] = [0, 0];
  const differs = (kind: Comparison["differences"][number]["kind"], entryId: string) => {
    total += 1;
    if (differences.length < limit) differences.push({ kind, entryId });
  };

  let nextSealed = await sealedIterator.next();
  let nextPresent = await presentIterator.next();
  while (!nextSealed.done || !nextPresent.done) {
    const [sealedId, sealedEntryHash] = nextSealed.value;
    const [presentId, presentEntryHash] = nextPresent.value;
    // Less than 0: only the sealed side has the id. Greater than 0: only the present side has it.
    const order = nextSealed.done ? 1 : nextPresent.done || sealedId < presentId ? -1 : sealedId > presentId ? 1 : 0;
    if (order < 0) differs("entryRemoved", sealedId);
    else if (order > 0) differs("entryInserted", presentId);
    else if (sealedEntryHash !== presentEntryHash) differs("entryChanged", sealedId);
    if (order <= 0) {
      sealedHash.add(nextSealed.value);
      nextSealed = await sealedIterator.next();
    }
    if (order >= 0) {
      presentHash.add(nextPresent.value);
      entries += 1;
      nextPresent = await presentIterator.next();
    }
  }
  return { differences, total, sealedHash: sealedHash.digest(), presentHash: presentHash.digest(), entries };
}

/** Yields fingerprints. The last value is empty and never compared, because it is `done`; it saves a check for undefined. */
async function* iterate(fingerprints: Fingerprints): AsyncGenerator<Fingerprint, Fingerprint> {
  yield* fingerprints;
  return ["", ""];
}
