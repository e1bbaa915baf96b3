import { decodeTime } from "ulid";
import { MINUTE_MS } from "../../platform/time.ts";
import { isUlid } from "../../platform/ulid.ts";
import { canonicalJson, sha256 } from "../canonical.ts";
import { compareFingerprints, DETAILS, type Finding } from "../chain/findings.ts";
import type { Fingerprint } from "../chain/manifest.ts";
import { positionText } from "../export/entry-pages.ts";
import type { ExportStatement } from "../export/statement.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalOf } from "../interval.ts";
import { entryKey } from "../rows.ts";
import type { ExportedDigest } from "./export-chain.ts";
import { compareText, type Findings, isFiltered, type Part } from "./export-parts.ts";

/** Verifies the entries of an export offline, against the fingerprints (ids and hashes) that were sealed. */

/** Returns the fingerprints of the entries of all parts, by interval. */
export function entriesByInterval(parts: readonly Part[]): Map<Interval, Fingerprint[]> {
  const byInterval = new Map<Interval, Fingerprint[]>();
  for (const { file } of parts) {
    for (const entry of file.entries) {
      const interval = intervalOf(Date.parse(entry.occurredAt));
      const inInterval = byInterval.get(interval) ?? [];
      byInterval.set(interval, inInterval);
      inInterval.push([entry.id, sha256(canonicalJson(entry))]);
    }
  }
  for (const inInterval of byInterval.values()) inInterval.sort(([a], [b]) => compareText(a, b));
  return byInterval;
}

/** Rows with the key of an entry that the service could not read, by interval and id. An export does not contain them. */
export type Unreadable = Map<string, Finding>;

/** Returns the key of an `Unreadable` map. */
export const unreadableKey = (interval: string | undefined, entryId: string | undefined): string =>
  `${interval}|${entryId}`;

/**
 * Compares an interval's entries with the fingerprints that its digest sealed. Removes sealed entries that could not be read
 * from `unreadable`.
 */
export async function checkEntries(
  { digest, fingerprints }: ExportedDigest,
  entries: readonly Fingerprint[],
  statements: readonly ExportStatement[],
  unreadable: Unreadable,
  findings: Findings,
): Promise<void> {
  const interval = intervalFrom(digest.interval);
  const result = await compareFingerprints(fingerprints, entries, Number.POSITIVE_INFINITY);
  const location = { interval: digest.interval, digestNumber: digest.number };
  if (result.sealedHash !== digest.manifest) {
    const detail = "The fingerprints differ from the sealed ones.";
    findings.add({ ...location, kind: "fingerprintsChanged", detail });
  }
  if (result.presentHash === digest.manifest) return;
  for (const { kind, entryId } of result.differences) {
    if (kind === "entryRemoved" && !isExpected(statements, interval, entryId)) continue;
    const isUnreadable = unreadable.delete(unreadableKey(digest.interval, entryId));
    const reportedKind = kind === "entryRemoved" && isUnreadable ? "entryChanged" : kind;
    findings.add({ ...location, kind: reportedKind, entryId, detail: DETAILS[reportedKind] });
  }
}

/** Returns true if one of the parts must contain this entry. */
function isExpected(statements: readonly ExportStatement[], interval: Interval, id: string): boolean {
  if (statements.some(isFiltered) || !isUlid(id)) return false;
  const earliest = decodeTime(id);
  const latest = latestTimeOf(earliest, interval);
  const position = positionText({ interval, rowKey: entryKey(interval, id) });
  return statements.some(
    ({ start, end, after, upTo }) =>
      earliest >= Date.parse(start) &&
      latest < Date.parse(end) &&
      (after === null || position > after) &&
      (upTo === null || position <= upTo),
  );
}

/**
 * Returns the latest possible time of an entry, in milliseconds, from the time of its id. Usually both times are equal. An
 * entry that counts several events has the id of the start of its window. The window is a minute for rejected requests. For
 * readings it is 15 minutes, cut at the ten-minute intervals, so it starts at a whole multiple of five minutes.
 */
function latestTimeOf(idTimeMs: number, interval: Interval): number {
  // Perhaps the start of a window of readings, which ends with the interval at the latest.
  if (idTimeMs % (5 * MINUTE_MS) === 0) return interval + INTERVAL_MS - 1;
  return idTimeMs % MINUTE_MS === 0 ? idTimeMs + MINUTE_MS - 1 : idTimeMs;
}
