import { randomUUID } from "node:crypto";
import type { Clock, Logger } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { insert, type Operation, replace, type Tables } from "../../platform/storage/tables.ts";
import { sha256 } from "../canonical.ts";
import type { Anchor, AnchorState } from "../chain/anchor.ts";
import { requiredAfterUpgrade, requiredSince } from "../chain/authenticated-from.ts";
import { beginningByNumber, type ChainEnd, chainEnd, endOf, oldestBeginning, purgedEnd } from "../chain/chain.ts";
import {
  createIntervalCheck,
  type Falsification,
  type IntervalCheck,
  readLastRows,
} from "../chain/check-authenticity.ts";
import { type Beginning, type Digest, DigestName, readDigest } from "../chain/digest.ts";
import { type Fingerprint, fingerprintOf, writeManifest } from "../chain/manifest.ts";
import { purgedTo, readPurges } from "../chain/purge-record.ts";
import { type PublicKeys, type SigningKey, signStatement } from "../chain/signing.ts";
import type { Trust } from "../chain/trust.ts";
import type { AuditEntry } from "../entry.ts";
import type { AuditEvent } from "../event.ts";
import {
  INTERVAL_MINUTES,
  INTERVAL_MS,
  type Interval,
  intervalName,
  intervalsByDay,
  SEAL_DELAY_MS,
} from "../interval.ts";
import { etagOf, readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow, entriesPartition } from "../rows.ts";
import { byInterval, entryOfRow, type StoredEntry, storedEntries } from "../stored-entries.ts";
import { closeIntervals } from "./close-intervals.ts";
import { firstInterval } from "./first-interval.ts";
import { repairIndex } from "./repair-index.ts";

/**
 * Seals the audit log. A timer runs it every few minutes. For each ten-minute interval that is over, sealing closes the
 * interval for writers, stores the fingerprint (id and hash) of each entry, and signs a digest of the fingerprints. Each digest
 * names the previous one, so the digests form a chain. The anchor is the copy of the newest digest in the service's own key
 * vault. Entries that were changed, removed or inserted before are sealed as they are, but the digest says so for good.
 */

/** Digests per transaction, which has at most 100 operations: half a day. */
const BATCH = 72;
/** Maximum number of intervals per call: sixty days. Later calls seal the others. */
const MAX_INTERVALS = 8_640;
/** Entries whose index rows are checked together. */
const REPAIR_BATCH = 1_000;
/** Maximum number of falsified entries that a digest names. It counts all. */
const MAX_FALSIFIED = 50;

/** Result of one call of the sealer. */
export interface Sealing {
  /** False if `AUDIT_SIGNING_KEYS` is not set. Then nothing can be sealed. */
  configured: boolean;
  /** Number of digests that this call wrote. */
  sealed: number;
  /** True if more intervals are due. */
  more: boolean;
  /** The digest that the anchor names, if it is missing from the tables. */
  lost?: DigestName;
  /** Number of entries that were changed, removed or inserted before this call sealed them. Absent if there are none. */
  falsified?: number;
}

/** The services that sealing needs. */
export interface SealDependencies {
  tables: Tables;
  clock: Clock;
  log: Logger;
  trust: Trust;
  anchor: Anchor | undefined;
  /** Records an event of the sealing itself in the audit log. */
  recordEvent(event: AuditEvent): Promise<void>;
}

/**
 * Creates the function that seals the intervals that are over. Its steps: find the digest after which the chain continues;
 * then, for each batch of intervals, close them for writers, check their entries, store the fingerprints, and insert the
 * digests in one transaction; at the end, write the newest digest to the anchor. It also writes index rows that a crashed
 * writer left out. Two calls can run at once and can crash at any point: closing an interval and storing fingerprints are
 * idempotent, and each digest is inserted once.
 *
 * Rows among the digests that this service did not write don't stop the sealing. If such a row has the key of the next digest,
 * the digest replaces it and records its hash.
 */
export function createSealer(deps: SealDependencies): () => Promise<Sealing> {
  const { tables, clock, log, trust, anchor } = deps;

  return async () => {
    const { signer } = trust;
    if (!signer) return { configured: false, sealed: 0, more: false };
    await trust.vouch();
    const keys = await trust.keys();
    const continuation = await findContinuation(deps, keys);
    const { end, anchored, beginning, adopted, lost } = continuation;
    if (lost) log.error("The audit log's newest digest is missing from the tables", { digest: lost.number });
    if (continuation.anchorChanged) log.error("The audit log's anchor in the service's own key vault was changed");

    const loss = lost ? { lost } : {};
    const first = end ? end.interval + INTERVAL_MS : await firstInterval(tables, clock);
    const latestStart = clock.now().getTime() - INTERVAL_MS - SEAL_DELAY_MS;
    if (first === undefined || first > latestStart) {
      // An adopted (derived) beginning is not stored before the audit log records its adoption, which happens with the next
      // sealing. If the newest digest is lost, the anchor is the only evidence until the next digest records the loss.
      if (end && !lost) await writeAnchor(end, adopted ? undefined : beginning, anchored);
      return { configured: true, sealed: 0, more: false, ...loss };
    }
    const due = Math.floor((latestStart - first) / INTERVAL_MS) + 1;
    if (adopted) await recordAdoption(deps, adopted);
    let chain: Chain = continuation;
    let sealed = 0;
    let falsifiedTotal = 0;
    const keptFrom = purgedTo(await readPurges(tables, keys));
    const { authentication } = trust;
    const checkDeps = { tables, authentication, authenticatedFrom: continuation.authenticatedFrom, keptFrom };
    for (const batch of intervalsByDay(first, first + Math.min(due, MAX_INTERVALS) * INTERVAL_MS, BATCH)) {
      const operations: Operation[] = [];
      // Rows under the keys of these digests that this service did not sign. The digests replace them.
      const foreign = await foreignRows(tables, keys, batch);
      if (foreign === "genuine") return { configured: true, sealed, more: true, ...loss };
      const mayHaveEntries = await closeIntervals(tables, batch, signer);
      const range = { from: batch[0]!, to: batch.at(-1)! + INTERVAL_MS };
      const entries = byInterval(mayHaveEntries ? storedEntries(tables, range) : noEntries());
      // Read after the intervals were closed, so that these rows name all entries of the intervals. `entries` is read later still,
      // by the loop below, so that it contains every entry that these rows name.
      const lastRows = await readLastRows(tables, authentication, entriesPartition(batch[0]!));
      for (const interval of batch) {
        const check = createIntervalCheck(checkDeps, interval);
        const manifest = await writeManifest(tables, interval, fingerprints(tables, entries.itemsOf(interval), check));
        // A forged row belongs to no interval. It is reported once, with the last interval of the batch.
        const checked = await check.finish(lastRows.filter(({ isForged }) => !isForged || interval === batch.at(-1)));
        falsifiedTotal += checked.total;
        if (checked.total > 0)
          log.error("Audit entries were changed before they were sealed", {
            interval: intervalName(interval),
            entries: checked.total,
          });
        const foreignRow = foreign.get(intervalName(interval));
        const next = appendDigest(chain, { interval, manifest, replaced: foreignRow?.hash, checked }, signer, clock);
        operations.push(digestOperation(next.statement, intervalName(interval), foreignRow?.etag));
        chain = next.chain;
      }
      try {
        await tables.transaction(DigestRow.table, DIGESTS_PARTITION, operations);
      } catch (error) {
        // Another sealer was faster. It continues with the remaining intervals and stores its own newest digest.
        if (isConflict(error)) return { configured: true, sealed, more: true, ...loss };
        throw error;
      }
      sealed += batch.length;
    }
    await writeAnchor(chain.end!, chain.beginning, anchored);
    const falsified = falsifiedTotal > 0 ? { falsified: falsifiedTotal } : {};
    return { configured: true, sealed, more: due > sealed, ...loss, ...falsified };
  };

  /** Writes the newest digest and the beginning to the anchor, unless it already contains them. */
  async function writeAnchor(
    end: ChainEnd,
    beginning: Beginning | undefined,
    stored: AnchorState | undefined,
  ): Promise<void> {
    if (!anchor || (stored?.number === end.number && (stored.beginning || !beginning))) return;
    await anchor.write({ number: end.number, interval: intervalName(end.interval), hash: end.hash, beginning });
  }
}

/** The chain so far, with the problems that the next digest must record. */
interface Chain {
  end: ChainEnd | undefined;
  beginning: Beginning | undefined;
  authenticatedFrom: Interval;
  lost: DigestName | undefined;
  anchorChanged: boolean;
}

/** Finds the digest after which sealing continues, based on signatures and the anchor only. */
async function findContinuation(deps: SealDependencies, keys: PublicKeys) {
  const { tables, clock, anchor } = deps;
  const anchorState = await anchor?.read();
  const anchored = anchorState === "unreadable" ? undefined : anchorState;
  const chainDeps = { tables, clock, keys };
  let end = await chainEnd(chainDeps, anchored);
  let beginning = end?.beginning ?? anchored?.beginning;
  /** Set if neither the newest digest nor the anchor contains the beginning, so that it was derived. */
  let adopted: Adopted | undefined;
  // The first digest can't contain its own hash.
  if (end?.number === 1 && beginning) beginning = { ...beginning, hash: end.hash };
  if (!end || !beginning) {
    const purges = await readPurges(tables, keys);
    end ??= purgedEnd(purges);
    beginning ??= await oldestBeginning(chainDeps, purges);
    beginning ??= end && beginningByNumber({ number: end.number, interval: intervalName(end.interval) });
    if (end && beginning && !anchored?.beginning) adopted = { end, beginning, anchored };
  }
  const anchorChanged = anchorState === "unreadable" || beginsElsewhere(anchored?.beginning, end?.beginning);
  const lost = anchored && isLost(anchored, end) ? DigestName.parse(anchored) : undefined;
  const authenticatedFrom = (await requiredSince(tables, keys, end)) ?? requiredAfterUpgrade(clock.now().getTime());
  return { end, beginning, authenticatedFrom, adopted, anchored, lost, anchorChanged };
}

/** The derived beginning of a chain whose digests don't contain it, because an earlier version signed them. */
interface Adopted {
  end: ChainEnd;
  beginning: Beginning;
  anchored: AnchorState | undefined;
}

async function recordAdoption({ recordEvent }: SealDependencies, { end, beginning, anchored }: Adopted): Promise<void> {
  const { number, interval, hash } = end;
  await recordEvent({
    type: "audit.beginningAdopted",
    caller: { actor: "system", requestId: randomUUID() },
    outcome: "success",
    target: { type: "audit", id: beginning.interval },
    details: {
      beginning,
      newestDigest: { number, interval: intervalName(interval), hash },
      anchor: !anchored ? "empty" : isLost(anchored, end) ? "differs" : "matches",
    },
  });
}

const beginsElsewhere = (anchored: Beginning | undefined, signed: Beginning | undefined): boolean =>
  anchored !== undefined && signed !== undefined && anchored.interval !== signed.interval;

/** Returns true if the tables end before the digest that the anchor names, or end with a different digest of that number. */
const isLost = (anchored: DigestName, end: ChainEnd | undefined): boolean =>
  end === undefined || anchored.number > end.number || (anchored.number === end.number && anchored.hash !== end.hash);

/**
 * Returns the rows without a trusted signature that have the keys of a batch's digests, by row key. Returns `genuine` if
 * another sealer has already written one of the digests.
 */
async function foreignRows(tables: Tables, keys: PublicKeys, batch: Interval[]) {
  const rows = new Map<string, { hash: string; etag: string | undefined }>();
  const names = new Set(batch.map(intervalName));
  const range = { from: intervalName(batch[0]!), before: intervalName(batch.at(-1)! + INTERVAL_MS) };
  for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...range })) {
    for (const { rowKey, value } of page) {
      if (!names.has(rowKey)) continue;
      const { state, hash } = readDigest(rowKey, value?.digest, keys);
      if (state === "genuine") return "genuine";
      rows.set(rowKey, { hash, etag: value?.etag ?? (await etagOf(tables, DigestRow, DIGESTS_PARTITION, rowKey)) });
    }
  }
  return rows;
}

function digestOperation(statement: string, rowKey: string, etag: string | undefined): Operation {
  const value = { digest: statement };
  return etag === undefined ? insert(DigestRow, rowKey, value) : replace(DigestRow, rowKey, value, etag);
}

/** Returns the signed digest of an interval, and the chain that ends with it. */
function appendDigest(
  { end, beginning, authenticatedFrom, lost, anchorChanged }: Chain,
  sealed: {
    interval: Interval;
    manifest: { entries: number; hash: string };
    replaced: string | undefined;
    checked: { listed: Falsification[]; total: number; withoutCode: number };
  },
  signer: SigningKey,
  clock: Clock,
): { statement: string; chain: Chain } {
  const { interval, manifest, replaced, checked } = sealed;
  const { withoutCode, ...falsified } = checked;
  const chainBeginning: Beginning = beginning ?? { interval: intervalName(interval), hash: null };
  const digest: Digest = {
    // After lost digests, the numbers continue behind them, although `previous` and `total` continue from `end`.
    number: Math.max(end?.number ?? 0, lost?.number ?? 0) + 1,
    interval: intervalName(interval),
    minutes: INTERVAL_MINUTES,
    entries: manifest.entries,
    total: (end?.total ?? 0) + manifest.entries,
    manifest: manifest.hash,
    previous: end?.hash ?? null,
    sealedAt: clock.now().toISOString(),
    beginning: chainBeginning,
    authenticatedFrom: intervalName(authenticatedFrom),
    ...(withoutCode > 0 && { withoutCode }),
    ...(falsified.total > 0 && {
      falsified: { total: falsified.total, listed: falsified.listed.slice(0, MAX_FALSIFIED) },
    }),
    ...(lost && { lost }),
    ...(replaced !== undefined && { replaced }),
    ...(end &&
      !end.verified && { unverified: { number: end.number, interval: intervalName(end.interval), hash: end.hash } }),
    ...(anchorChanged && { anchorChanged }),
  };
  const statement = signStatement("audit-digest", digest, signer);
  const hash = sha256(statement);
  const next = endOf(digest, hash, true);
  const completeBeginning = digest.number === 1 ? { ...chainBeginning, hash } : chainBeginning;
  const nextChain = {
    end: next,
    beginning: completeBeginning,
    authenticatedFrom,
    lost: undefined,
    anchorChanged: false,
  };
  return { statement, chain: nextChain };
}

/** Yields the fingerprints of the entries of an interval, checks them, and writes their missing index rows. */
async function* fingerprints(
  tables: Tables,
  rows: AsyncIterable<StoredEntry>,
  check: IntervalCheck,
): AsyncGenerator<Fingerprint> {
  let pending: AuditEntry[] = [];
  for await (const row of rows) {
    const entry = entryOfRow(row);
    check.add(row, entry);
    if (!entry) continue; // not written by this service: verification reports it
    yield fingerprintOf(row);
    if (pending.push(entry) < REPAIR_BATCH) continue;
    await repairIndex(tables, pending);
    pending = [];
  }
  await repairIndex(tables, pending);
}

async function* noEntries(): AsyncGenerator<StoredEntry[]> {}
