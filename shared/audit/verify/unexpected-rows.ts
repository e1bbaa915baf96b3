import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { newestFirst } from "../../platform/ulid.ts";
import type { ChainState, ReadingDependencies } from "../chain/chain-state.ts";
import { isAuthentic } from "../chain/check-authenticity.ts";
import { Digest, readDigest } from "../chain/digest.ts";
import { type Finding, missingPurges } from "../chain/findings.ts";
import { readStatement } from "../chain/signing.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import { readRows } from "../read-rows.ts";
import {
  bornMark,
  DIGESTS_END,
  DIGESTS_PARTITION,
  DigestRow,
  EntryRow,
  entriesPartition,
  FIRST_PARTITION,
  FirstRow,
  HEAD,
  INDEX_PARTITION,
  IndexRow,
  indexPrefix,
  indexRange,
  instantOf,
  MANIFESTS_PARTITION,
  ManifestRow,
  openMark,
} from "../rows.ts";
import { marksOf } from "../seal/close-intervals.ts";
import { storedEntries } from "../stored-entries.ts";
import { entriesEnd } from "./check-unsealed.ts";

/**
 * Finds rows of the audit log that this service did not write, outside the intervals that verification compares one by one. The
 * log has ten-minute intervals; a digest is the signed hash of an interval, and the anchor is the copy of the newest digest in
 * the key vault.
 */

/**
 * Number of findings of a kind after which the search stops. Further rows are neither reported nor counted: reading any number of
 * inserted rows could take longer than one call may.
 */
const MAX_FINDINGS_PER_KIND = 100;
/** Below the largest time that a `Date` can represent, 8.64e15 milliseconds. */
const MAX_DATE_MS = 8e15;
/** Maximum clock skew of an instance. */
const MAX_CLOCK_SKEW_MS = DAY_MS;

/**
 * Finds changed or inserted rows outside the sealed intervals. These are purge records, key records, the anchor, the row of the
 * first interval, digests and fingerprints outside the chain, and entries and marks before the log's beginning or in the
 * future. Costs about twelve requests, however long the log is.
 */
export async function findUnexpectedRows(deps: ReadingDependencies, state: ChainState): Promise<Finding[]> {
  const { purges, vouchers, beginning } = state;
  const purged = purges.changed.slice(0, MAX_FINDINGS_PER_KIND).map(
    (rowKey): Finding => ({
      kind: "purgeRecordChanged",
      interval: rowKey,
      detail: "No trusted key signed this purge record.",
    }),
  );
  const keys = vouchers.changed.slice(0, MAX_FINDINGS_PER_KIND).map(
    (rowKey): Finding => ({
      kind: "keyRecordChanged",
      detail: `No trusted key signed the record ${rowKey} of an older key.`,
    }),
  );
  const records = purges.records.map(({ record }) => record);
  return [
    ...purged,
    ...missingPurges(beginning?.interval, records),
    ...keys,
    ...anchorFindings(state),
    ...(await beginningFindings(deps, state)),
    ...(await digestFindings(deps, state)),
    ...(await manifestFindings(deps, state)),
    ...(await entryFindings(deps, state)),
    ...(await markFindings(deps)),
  ];
}

function anchorFindings({ anchorState, beginning }: ChainState): Finding[] {
  if (anchorState === "unreadable") {
    return [{ kind: "anchorChanged", detail: "The newest digest stored in the key vault can't be read." }];
  }
  const other = anchorState?.beginning;
  if (!other || !beginning) return [];
  const sameHash = other.hash === null || beginning.hash === null || other.hash === beginning.hash;
  if (other.interval === beginning.interval && sameHash) return [];
  const detail = `By the key vault the log starts at ${other.interval}, by its digests at ${beginning.interval}.`;
  return [{ kind: "beginningChanged", interval: other.interval, detail }];
}

/**
 * Checks the row that names the first interval. It is not used once there is a digest, but a different value is evidence of
 * tampering.
 */
async function beginningFindings({ tables }: ReadingDependencies, { beginning }: ChainState): Promise<Finding[]> {
  if (!beginning) return [];
  const changed = (detail: string): Finding => ({
    kind: "beginningChanged",
    interval: beginning.interval,
    detail: `${detail} By the signed digests, the first interval is ${beginning.interval}.`,
  });
  let exists = false;
  const findings: Finding[] = [];
  for await (const page of readRows(tables, FirstRow, {
    partitionKey: FIRST_PARTITION,
    pageSize: MAX_FINDINGS_PER_KIND,
  })) {
    for (const { rowKey, value } of page) {
      if (rowKey !== FIRST_PARTITION)
        findings.push(changed(`The row ${rowKey} next to the first interval was not written by this service.`));
      else if (value?.interval !== beginning.interval)
        findings.push(changed(`The first interval is ${value?.interval ?? "unreadable"}.`));
      exists ||= rowKey === FIRST_PARTITION;
    }
    if (findings.length >= MAX_FINDINGS_PER_KIND) break;
  }
  return exists ? findings : [changed("The row that names the first interval is missing."), ...findings];
}

/** Finds rows among the digests that are not part of the chain: before its beginning, after its end, or without an interval. */
async function digestFindings(
  { tables }: ReadingDependencies,
  { keys, end, keptFrom }: ChainState,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const ranges =
    end && keptFrom !== undefined
      ? [
          { before: intervalName(keptFrom) },
          { after: intervalName(end.interval), before: DIGESTS_END },
          { from: DIGESTS_END },
        ]
      : [{}];
  for (const range of ranges) {
    let reported = 0;
    for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...range })) {
      for (const { rowKey, value } of page) {
        // An interrupted purge leaves genuine digests before the beginning, and sealing in progress adds them after the end.
        if (readDigest(rowKey, value?.digest, keys).state === "genuine") continue;
        // An earlier version stored the newest digest a second time in this row.
        const isHead = rowKey === HEAD && "payload" in readStatement("audit-digest", Digest, value?.digest ?? "", keys);
        if (isHead || ++reported > MAX_FINDINGS_PER_KIND) continue;
        findings.push({
          kind: "digestInserted",
          ...(isIntervalName(rowKey) && { interval: rowKey }),
          detail: `The row ${rowKey} among the digests was not written by this service.`,
        });
      }
      if (reported >= MAX_FINDINGS_PER_KIND) break;
    }
  }
  return findings;
}

/**
 * Finds fingerprints that belong to no sealed interval: rows before the log's beginning whose key names no interval, and rows
 * that are a day or more after the log's end.
 */
async function manifestFindings({ tables }: ReadingDependencies, { end, keptFrom }: ChainState): Promise<Finding[]> {
  if (!end || keptFrom === undefined) return [];
  const findings: Finding[] = [];
  const ranges = [{ before: intervalName(keptFrom) }, { from: intervalName(end.interval + MAX_CLOCK_SKEW_MS) }];
  for (const range of ranges) {
    const pages = tables.pages(ManifestRow, {
      partitionKey: MANIFESTS_PARTITION,
      ...range,
      pageSize: MAX_FINDINGS_PER_KIND,
      select: [],
    });
    for await (const page of pages) {
      for (const { rowKey } of page) {
        const [name] = rowKey.split("|");
        // An interrupted purge leaves such rows, and sealing in progress writes them.
        if (isIntervalName(name!) && intervalFrom(name!) <= end.interval + MAX_CLOCK_SKEW_MS) continue;
        findings.push({
          kind: "fingerprintsChanged",
          detail: `The fingerprints ${rowKey} belong to no sealed interval.`,
        });
      }
      break; // the first page already has as many rows as are reported
    }
  }
  return findings;
}

/** Finds entries before the log's beginning or in the future, where a list would show them. */
async function entryFindings(deps: ReadingDependencies, state: ChainState): Promise<Finding[]> {
  const { tables, clock } = deps;
  const findings: Finding[] = [];
  const inserted = (interval: Interval, entryId: string, when: string) =>
    findings.push({
      kind: "entryInserted",
      interval: intervalName(interval),
      entryId,
      detail: `The time of the entry is ${when}.`,
    });
  // An interrupted purge leaves entries before the log's start. `keptFrom` is the first interval that is not purged.
  const logStart = (await isPurging(tables, state)) ? undefined : state.keptFrom;
  if (logStart !== undefined) {
    // Only the day of the log's start. The index (below) shows entries of earlier days.
    const day = Math.floor(logStart / DAY_MS) * DAY_MS;
    for await (const page of storedEntries(tables, { from: day, to: logStart })) {
      for (const { interval, id } of page) inserted(interval, id, "before the log starts");
      if (findings.length >= MAX_FINDINGS_PER_KIND) break;
    }
  }
  const futureFrom = entriesEnd(clock.now().getTime(), state.end?.interval);
  const prefix = indexPrefix({});
  const ranges = [
    // Unlike entries, index rows have no code that shows who wrote them. So rows of an instance whose clock is ahead are accepted.
    { ...indexRange(prefix, futureFrom + MAX_CLOCK_SKEW_MS), when: "in the future" },
    ...(logStart === undefined
      ? []
      : [{ ...indexRange(prefix, undefined, Math.floor(logStart / DAY_MS) * DAY_MS), when: "before the log starts" }]),
  ];
  for (const { when, ...range } of ranges) {
    const pages = tables.pages(IndexRow, {
      partitionKey: INDEX_PARTITION,
      ...range,
      pageSize: MAX_FINDINGS_PER_KIND,
      select: [],
    });
    for await (const page of pages) {
      for (const { rowKey } of page) {
        const timeMs = instantOf(rowKey.slice(prefix.length));
        // 0, because other times can't be converted to the name of an interval.
        const interval = Number.isFinite(timeMs) && timeMs < MAX_DATE_MS ? intervalOf(timeMs) : 0;
        inserted(interval, newestFirst(rowKey.slice(prefix.length)), when);
      }
      break; // the first page already has as many rows as are reported
    }
  }
  // A day whose rows the index names is reported already.
  const days = new Set(findings.map(({ interval }) => interval?.slice(0, 10)));
  const inPartitions = await partitionFindings(deps, logStart, futureFrom);
  return [...findings, ...inPartitions.filter(({ partition }) => !days.has(partition)).map(({ finding }) => finding)];
}

/** Finds days with rows before the log's beginning or in the future, and the entries of today that are in the future. */
async function partitionFindings(
  { tables, trust }: ReadingDependencies,
  logStart: Interval | undefined,
  futureFrom: Interval,
): Promise<{ partition: string | undefined; finding: Finding }[]> {
  const findings: { partition: string | undefined; finding: Finding }[] = [];
  const inserted = (partitionKey: string, when: string) => {
    const detail = `The rows of ${partitionKey} were not written by this service: ${when}.`;
    const interval = isDay(partitionKey) ? { interval: `${partitionKey}T00:00Z` } : {};
    findings.push({ partition: partitionKey, finding: { kind: "entryInserted", ...interval, detail } });
  };
  if (logStart !== undefined) {
    for await (const partitionKey of tables.partitions(EntryRow.table)) {
      if (partitionKey >= entriesPartition(logStart) || findings.length >= MAX_FINDINGS_PER_KIND) break;
      inserted(partitionKey, "the log starts later");
    }
  }
  const lastDay = entriesPartition(futureFrom);
  for await (const partitionKey of tables.partitions(EntryRow.table, lastDay)) {
    if (findings.length >= MAX_FINDINGS_PER_KIND) break;
    if (partitionKey > entriesPartition(futureFrom + DAY_MS)) inserted(partitionKey, "it is in the future");
  }
  // An instance whose clock is ahead can write entries of the next hours. They have valid codes.
  for await (const page of storedEntries(tables, { from: futureFrom, to: futureFrom + DAY_MS })) {
    for (const row of page) {
      const { interval, id } = row;
      // 0: an entry without a code is not accepted, at any time.
      if (isAuthentic({ authentication: trust.authentication, authenticatedFrom: 0 }, row)) continue;
      const detail = "The time of the entry is in the future.";
      const finding: Finding = { kind: "entryInserted", interval: intervalName(interval), entryId: id, detail };
      findings.push({ partition: undefined, finding });
    }
    if (findings.length >= MAX_FINDINGS_PER_KIND) break;
  }
  return findings;
}

const isDay = (partitionKey: string): boolean =>
  /^\d{4}-\d\d-\d\d$/.test(partitionKey) && isIntervalName(`${partitionKey}T00:00Z`);

/**
 * Returns true if an interrupted purge will be resumed: a purge removes the entries first and their digests last. Reads one
 * page only. Planted rows that hide such a digest from this page are reported by another check.
 */
async function isPurging(tables: Tables, { keys, keptFrom, purges }: ChainState): Promise<boolean> {
  if (purges.records.length === 0 || keptFrom === undefined) return false;
  const range = { partitionKey: DIGESTS_PARTITION, before: intervalName(keptFrom) };
  for await (const page of readRows(tables, DigestRow, range))
    return page.some(({ rowKey, value }) => readDigest(rowKey, value?.digest, keys).state === "genuine");
  return false;
}

/**
 * Finds future intervals of today and tomorrow that are closed. An interval is closed if it has a born mark (a row that its
 * first entry or its sealing inserts) and no open mark (a row that each entry requires). Entries of a closed interval get a
 * later time.
 */
async function markFindings({ tables, clock }: ReadingDependencies): Promise<Finding[]> {
  const next = intervalOf(clock.now().getTime()) + INTERVAL_MS;
  const findings: Finding[] = [];
  for (const day of new Set([entriesPartition(next), entriesPartition(next + DAY_MS)])) {
    const marks = await marksOf(tables, day);
    for (
      let interval = Math.max(next, Date.parse(`${day}T00:00Z`));
      entriesPartition(interval) === day;
      interval += INTERVAL_MS
    ) {
      if (marks.has(openMark(interval)) || !marks.has(bornMark(interval))) continue;
      const detail = "The interval was closed before it started, so its entries get a later time.";
      findings.push({ kind: "markChanged", interval: intervalName(interval), detail });
    }
  }
  return findings;
}
