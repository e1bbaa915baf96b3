import type { Tables } from "../../platform/storage/tables.ts";
import type { Verification } from "../api.ts";
import { sha256 } from "../canonical.ts";
import type { ChainState } from "../chain/chain-state.ts";
import { type Digest, follows, type Previous, readDigest } from "../chain/digest.ts";
import { compareFingerprints, DETAILS, findingsIn, missingDigests } from "../chain/findings.ts";
import { type Fingerprint, fingerprintOf, readManifests, type Sealed } from "../chain/manifest.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, isIntervalName } from "../interval.ts";
import { readRow, readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { type ByInterval, byInterval, type StoredEntry } from "../stored-entries.ts";
import type { FindingList } from "./finding-list.ts";

/**
 * Verifies the chain of digests of the audit log, and the entries of each interval. Sealing signs a digest for each ten-minute
 * interval, over the fingerprints (id and hash) of its entries. Each digest names the previous one.
 */

/** Maximum number of findings listed for one interval. Further ones are only counted. */
const MAX_FINDINGS_PER_INTERVAL = 100;

/** Result of checking a range of the chain. */
export interface ChainCheck {
  /** End of the last interval that was checked. */
  to: Interval;
  digests: number;
  entries: number;
  /** Number of entries that were sealed without an authentication code, because an earlier version may have written them. */
  withoutCode: number;
  /** True if the limits stopped the check before the end of the range. */
  more: boolean;
  /** The last digest that a trusted key signed; null if there is none. */
  lastDigest: Verification["lastDigest"];
}

/**
 * Checks the digests of `from <= interval <= last` in order, and compares each interval's entries with its sealed fingerprints,
 * in constant memory.
 *
 * @param stored - The entries of that range.
 */
export async function checkChain(
  tables: Tables,
  state: ChainState,
  range: { from: Interval; last: Interval },
  stored: AsyncIterable<StoredEntry[]>,
  findings: FindingList,
  limits: { entries: number; intervals: number },
): Promise<ChainCheck> {
  const { from, last } = range;
  const sides = {
    sealed: byInterval(readManifests(tables, { from, to: Math.max(from, last + INTERVAL_MS) })),
    stored: byInterval(stored),
  };
  let previous = await predecessor(tables, state, from);
  let expectedInterval = from;
  let digests = 0;
  let entries = 0;
  let withoutCode = 0;
  let lastDigest: ChainCheck["lastDigest"] = null;

  for await (const { rowKey, value } of digestRows(tables, range)) {
    if (!isIntervalName(rowKey)) {
      const detail = `The row ${rowKey} among the digests was not written by this service.`;
      findings.add({ kind: "digestInserted", detail });
      continue;
    }
    const interval = intervalFrom(rowKey);
    if (digests >= limits.intervals || entries >= limits.entries)
      return { to: expectedInterval, digests, entries, withoutCode, more: true, lastDigest };
    if (interval > expectedInterval) {
      findings.add(missingDigests(expectedInterval, interval));
      previous = undefined;
    }
    expectedInterval = interval + INTERVAL_MS;
    digests += 1;
    const read = readDigest(rowKey, value?.digest, state.keys);
    if (read.state !== "genuine") {
      findings.add({
        kind: read.state === "unknownKey" ? "digestUnverifiable" : "digestChanged",
        interval: rowKey,
        detail: problemOf(read),
      });
      previous = { hash: read.hash, number: undefined };
      continue;
    }
    const { digest, hash } = read;
    findings.add(...findingsIn(digest));
    if (previous && !follows(digest, previous)) {
      const detail = "The digest does not name the previous digest.";
      findings.add({ kind: "chainBroken", interval: rowKey, digestNumber: digest.number, detail });
    }
    if (digest.beginning && digest.beginning.interval !== state.beginning?.interval) {
      const detail = `By this digest the log starts at ${digest.beginning.interval}, by other digests at ${state.beginning?.interval}.`;
      findings.add({ kind: "chainBroken", interval: rowKey, digestNumber: digest.number, detail });
    }
    previous = { hash, number: digest.number };
    lastDigest = { number: digest.number, interval: rowKey, hash, sealedAt: digest.sealedAt, kid: read.kid };
    entries += await checkEntries(digest, sides, findings);
    withoutCode += digest.withoutCode ?? 0;
  }
  // The last digests of the range may be missing although later ones exist.
  if (expectedInterval <= last) findings.add(missingDigests(expectedInterval, last + INTERVAL_MS));
  const to = Math.max(expectedInterval, last + INTERVAL_MS);
  return { to, digests, entries, withoutCode, more: false, lastDigest };
}

async function* digestRows(tables: Tables, { from, last }: { from: Interval; last: Interval }) {
  if (last < from) return;
  const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: `${intervalName(last)}~` };
  for await (const page of readRows(tables, DigestRow, range)) yield* page;
}

function problemOf(read: Exclude<ReturnType<typeof readDigest>, { state: "genuine" }>): string {
  if (read.state === "unknownKey") {
    return "The digest is signed with an unknown key. Add that key to AUDIT_SIGNING_KEYS.";
  }
  if (read.state === "misplaced") return `The row contains the digest of another interval, ${read.digest.interval}.`;
  return "The digest has no valid signature.";
}

/** Returns the digest that the first digest of a range must name. Undefined if it is not known. */
async function predecessor(tables: Tables, { purges, beginning }: ChainState, from: Interval): Promise<Previous> {
  const purge = purges.records.at(-1)?.record;
  if (purge && intervalFrom(purge.to) === from) return { hash: purge.last.hash, number: purge.last.number };
  if (beginning && intervalFrom(beginning.interval) === from) return { hash: null, number: 0 };
  const row = await readRow(tables, DigestRow, DIGESTS_PARTITION, intervalName(from - INTERVAL_MS));
  return row && { hash: sha256(row.value?.digest ?? ""), number: undefined };
}

/** Compares the entries of one interval with its digest and fingerprints. Returns the number of entries. */
async function checkEntries(
  digest: Digest,
  sides: { sealed: ByInterval<Sealed>; stored: ByInterval<StoredEntry> },
  findings: FindingList,
): Promise<number> {
  const interval = intervalFrom(digest.interval);
  const location = { interval: digest.interval, digestNumber: digest.number };
  const result = await compareFingerprints(
    fingerprints(sides.sealed.itemsOf(interval), ({ fingerprint }) => fingerprint),
    fingerprints(sides.stored.itemsOf(interval), fingerprintOf),
    MAX_FINDINGS_PER_INTERVAL,
  );
  const entriesIntact = result.presentHash === digest.manifest;
  if (result.sealedHash !== digest.manifest) {
    const detail = entriesIntact
      ? "The fingerprints were changed. The entries are unchanged."
      : "The fingerprints were changed together with the entries, so the reported differences may be incomplete.";
    findings.add({ ...location, kind: "fingerprintsChanged", detail });
  }
  if (!entriesIntact) {
    for (const { kind, entryId } of result.differences)
      findings.add({ ...location, kind, entryId, detail: DETAILS[kind] });
    findings.addUnlisted(result.total - result.differences.length);
  }
  return result.entries;
}

async function* fingerprints<T>(
  source: AsyncIterable<T>,
  convert: (item: T) => Fingerprint,
): AsyncGenerator<Fingerprint> {
  for await (const item of source) yield convert(item);
}
