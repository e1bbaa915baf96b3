import * as z from "zod";
import { INTERVAL_MS, type Interval, intervalName } from "../interval.ts";
import type { Digest } from "./digest.ts";
import { type Fingerprint, manifestHash } from "./manifest.ts";
import type { PurgeRecord } from "./purge-record.ts";

/**
 * Kinds of problems that a verification of the audit log can find. They concern entries, the stored fingerprints (ids and
 * hashes) of sealed entries, and digests, the signed hashes of ten-minute intervals. Others concern the chain of digests, its
 * beginning, the anchor (copy of the newest digest in the key vault), marks (rows that close an interval for writers), the
 * index that lists use, and signed records of keys and purges. `digestsCut`: the newest digests are missing. `digestReplaced`:
 * sealing replaced a row without a trusted signature. `lastEntryChanged`: the row that names the last entry of a process, before the
 * interval is sealed. `exportChanged`: an exported file is not as it was signed.
 */
export const FindingKind = z.enum([
  "entryChanged",
  "entryRemoved",
  "entryInserted",
  "fingerprintsChanged",
  "digestChanged",
  "digestMissing",
  "digestInserted",
  "digestUnverifiable",
  "digestReplaced",
  "chainBroken",
  "digestsCut",
  "beginningChanged",
  "anchorChanged",
  "markChanged",
  "lastEntryChanged",
  "indexEntryMissing",
  "indexEntryInserted",
  "keyRecordChanged",
  "purgeRecordChanged",
  "purgeRecordMissing",
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
  const place = { interval: digest.interval, digestNumber: digest.number };
  const { lost, replaced, unverified, anchorChanged, falsified } = digest;
  const findings: Finding[] = [];
  if (lost) {
    const detail = `When this was sealed, the digests up to number ${lost.number} (${lost.interval}) were missing with their entries.`;
    findings.push({ ...place, kind: "digestsCut", detail });
  }
  if (replaced !== undefined) {
    const detail = `When this was sealed, a row without a trusted signature was in its place (SHA-256 ${replaced}).`;
    findings.push({ ...place, kind: "digestReplaced", detail });
  }
  if (unverified) {
    const detail = `When this was sealed, the previous digest had no trusted signature: number ${unverified.number} (${unverified.interval}).`;
    findings.push({ ...place, kind: "digestUnverifiable", detail });
  }
  if (anchorChanged) {
    const detail = "When this was sealed, the anchor in the key vault had not been written by this service.";
    findings.push({ ...place, kind: "anchorChanged", detail });
  }
  if (falsified) {
    for (const { detail, ...finding } of falsified.listed)
      findings.push({ ...place, ...finding, detail: `Before this was sealed: ${detail}` });
    const unlisted = falsified.total - falsified.listed.length;
    if (unlisted > 0) {
      const detail = `Before this was sealed, ${unlisted} more entries were changed, removed or inserted.`;
      findings.push({ ...place, kind: "entryChanged", detail });
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
 * Returns findings for missing purge records. Together the records must reach from the original beginning of the log to its
 * present beginning.
 */
export function missingPurges(beginning: string | undefined, records: readonly PurgeRecord[]): Finding[] {
  const findings: Finding[] = [];
  let expected = beginning;
  for (const { from, to } of records) {
    if (expected !== undefined && from !== expected) {
      const detail = `The purge record from ${expected} to ${from} is missing.`;
      findings.push({ kind: "purgeRecordMissing", interval: expected, detail });
    }
    expected = to;
  }
  return findings;
}

/** Differences between the sealed fingerprints of an interval and its present entries. */
export interface Comparison {
  differences: { kind: "entryChanged" | "entryRemoved" | "entryInserted"; entryId: string }[];
  /** Number of all differences, including those that are not listed. */
  total: number;
  /** Hashes of the sealed fingerprints and of the present entries. Each must be equal to the hash in the digest. */
  sealedHash: string;
  foundHash: string;
  /** Number of present entries. */
  entries: number;
}

type Fingerprints = Iterable<Fingerprint> | AsyncIterable<Fingerprint>;

/**
 * Compares sealed fingerprints with those of the present entries in one pass. Both must be in the order of their ids. Lists at
 * most `limit` differences.
 */
export async function compare(sealed: Fingerprints, present: Fingerprints, limit: number): Promise<Comparison> {
  const [sealedHash, foundHash] = [manifestHash(), manifestHash()];
  const sealedIterator = iterate(sealed);
  const presentIterator = iterate(present);
  const differences: Comparison["differences"] = [];
  let [total, entries] = [0, 0];
  const differs = (kind: Comparison["differences"][number]["kind"], entryId: string) => {
    total += 1;
    if (differences.length < limit) differences.push({ kind, entryId });
  };

  let [a, b] = [await sealedIterator.next(), await presentIterator.next()];
  while (!a.done || !b.done) {
    const order = a.done ? 1 : b.done ? -1 : a.value[0] < b.value[0] ? -1 : a.value[0] > b.value[0] ? 1 : 0;
    if (order < 0) differs("entryRemoved", a.value[0]);
    else if (order > 0) differs("entryInserted", b.value[0]);
    else if (a.value[1] !== b.value[1]) differs("entryChanged", a.value[0]);
    if (order <= 0) {
      sealedHash.add(a.value);
      a = await sealedIterator.next();
    }
    if (order >= 0) {
      foundHash.add(b.value);
      entries += 1;
      b = await presentIterator.next();
    }
  }
  return { differences, total, sealedHash: sealedHash.digest(), foundHash: foundHash.digest(), entries };
}

async function* iterate(fingerprints: Fingerprints): AsyncGenerator<Fingerprint, Fingerprint> {
  yield* fingerprints;
  return ["", ""]; // unused: `done` marks the end
}
