import { randomUUID } from "node:crypto";
import type { Clock, Logger } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { insert, type Operation, replace, type Tables } from "../../platform/storage/tables.ts";
import { sha256 } from "../canonical.ts";
import type { Anchor, AnchorState } from "../chain/anchor.ts";
import { beginningByNumber, type ChainEnd, chainEnd, oldestBeginning, purgedEnd } from "../chain/chain.ts";
import { type Beginning, type Digest, DigestName, readDigest } from "../chain/digest.ts";
import { type Fingerprint, fingerprintOf, writeManifest } from "../chain/manifest.ts";
import { readPurges } from "../chain/purge-record.ts";
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
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { byInterval, entryOfRow, type StoredEntry, storedEntries } from "../stored-entries.ts";
import { closeIntervals } from "./close-intervals.ts";
import { firstInterval } from "./first-interval.ts";
import { repairIndex } from "./repair-index.ts";

/** Digests per transaction: half a day. */
const BATCH = 72;
/** Maximum number of intervals per call: sixty days. The next call seals the rest. */
const MAX_INTERVALS = 8_640;
/** Entries whose index rows are checked together. */
const REPAIR_BATCH = 1_000;

/** Result of one call of the sealer. */
export interface Sealing {
  /** False if `AUDIT_SIGNING_KEYS` is not set. Then nothing can be sealed. */
  configured: boolean;
  /** Number of digests that this call wrote. */
  sealed: number;
  /** True if more intervals are due. */
  more: boolean;
  /** The newest digest in the key vault, if it is missing from the tables. */
  lost?: DigestName;
}

export interface SealDependencies {
  tables: Tables;
  clock: Clock;
  log: Logger;
  trust: Trust;
  anchor: Anchor | undefined;
  /** Records an event of the sealing itself. */
  enter(event: AuditEvent): Promise<void>;
}

/**
 * Creates the function that seals every completed interval: it closes the interval for writers, stores the fingerprints of its
 * entries, writes index rows that a crashed writer left out, and adds a digest to the chain. It can run twice at once and can
 * crash at any point: closing and fingerprints are idempotent, and a digest is inserted once.
 *
 * Foreign rows among the digests don't stop it. A row in a digest's place is replaced, and the digest records that.
 */
export function createSealer(deps: SealDependencies): () => Promise<Sealing> {
  const { tables, clock, log, trust, anchor } = deps;

  return async () => {
    const { signer } = trust;
    if (!signer) return { configured: false, sealed: 0, more: false };
    await trust.vouch();
    const keys = await trust.keys();
    const start = await findContinuation(deps, keys);
    const { end, remembered, beginning, lost } = start;
    if (lost) log.error("The audit log's newest digest is gone from the tables", { digest: lost.number });
    if (start.anchorChanged) log.error("The audit log's anchor in the service's own key vault was changed");

    const found = lost ? { lost } : {};
    const first = end ? end.interval + INTERVAL_MS : await firstInterval(tables, clock);
    const limit = clock.now().getTime() - INTERVAL_MS - SEAL_DELAY_MS;
    if (first === undefined || first > limit) {
      if (end && !lost) await remember(end, start.adopted ? undefined : beginning, remembered);
      return { configured: true, sealed: 0, more: false, ...found };
    }
    const due = Math.floor((limit - first) / INTERVAL_MS) + 1;
    if (start.adopted) await recordAdoption(deps, start.adopted);
    let chain: Chain = start;
    let sealed = 0;
    for (const batch of intervalsByDay(first, first + Math.min(due, MAX_INTERVALS) * INTERVAL_MS, BATCH)) {
      const operations: Operation[] = [];
      const occupied = await foreignRows(tables, keys, batch);
      if (occupied === "genuine") return { configured: true, sealed, more: true, ...found };
      const born = await closeIntervals(tables, batch, signer);
      const range = { from: batch[0]!, to: batch.at(-1)! + INTERVAL_MS };
      const entries = byInterval(born ? storedEntries(tables, range) : nothing());
      for (const interval of batch) {
        const manifest = await writeManifest(tables, interval, fingerprints(tables, entries.of(interval)));
        const inPlace = occupied.get(intervalName(interval));
        const link = appendDigest(chain, { interval, manifest, replaced: inPlace?.hash }, signer, clock);
        operations.push(digestOperation(link.statement, intervalName(interval), inPlace?.etag));
        chain = link.chain;
      }
      try {
        await tables.transaction(DigestRow.table, DIGESTS_PARTITION, operations);
      } catch (error) {
        // Another sealer was faster. It continues with the remaining intervals and stores its own newest digest.
        if (isConflict(error)) return { configured: true, sealed, more: true, ...found };
        throw error;
      }
      sealed += batch.length;
    }
    await remember(chain.end!, chain.beginning, remembered);
    return { configured: true, sealed, more: due > sealed, ...found };
  };

  async function remember(
    end: ChainEnd,
    beginning: Beginning | undefined,
    known: AnchorState | undefined,
  ): Promise<void> {
    if (!anchor || (known?.number === end.number && (known.beginning || !beginning))) return;
    await anchor.write({ number: end.number, interval: intervalName(end.interval), hash: end.hash, beginning });
  }
}

/** The chain so far, with the problems that the next digest must record. */
interface Chain {
  end: ChainEnd | undefined;
  beginning: Beginning | undefined;
  lost: DigestName | undefined;
  anchorChanged: boolean;
}

/** Finds where sealing continues, based on signatures and the anchor only. */
async function findContinuation(deps: SealDependencies, keys: PublicKeys) {
  const { tables, clock, anchor } = deps;
  const read = await anchor?.read();
  const remembered = read === "unreadable" ? undefined : read;
  const needed = { tables, clock, keys };
  let end = await chainEnd(needed, remembered);
  let beginning = end?.beginning ?? remembered?.beginning;
  let adopted: Adopted | undefined;
  if (end?.number === 1 && beginning) beginning = { ...beginning, hash: end.hash };
  if (!end || !beginning) {
    const purges = await readPurges(tables, keys);
    end ??= purgedEnd(purges);
    beginning ??= await oldestBeginning(needed, purges);
    beginning ??= end && beginningByNumber({ number: end.number, interval: intervalName(end.interval) });
    if (end && beginning && !remembered?.beginning) adopted = { end, beginning, remembered };
  }
  const anchorChanged = read === "unreadable" || beginsElsewhere(remembered?.beginning, end?.beginning);
  const lost = remembered && isLost(remembered, end) ? DigestName.parse(remembered) : undefined;
  return { end, beginning, adopted, remembered, lost, anchorChanged };
}

/** The beginning of a chain of an earlier version, whose digests don't contain it. */
interface Adopted {
  end: ChainEnd;
  beginning: Beginning;
  remembered: AnchorState | undefined;
}

async function recordAdoption({ enter }: SealDependencies, { end, beginning, remembered }: Adopted): Promise<void> {
  const { number, interval, hash } = end;
  await enter({
    type: "audit.beginningAdopted",
    caller: { actor: "system", requestId: randomUUID() },
    outcome: "success",
    target: { type: "audit", id: beginning.interval },
    details: {
      beginning,
      newestDigest: { number, interval: intervalName(interval), hash },
      anchor: !remembered ? "empty" : isLost(remembered, end) ? "differs" : "matches",
    },
  });
}

const beginsElsewhere = (remembered: Beginning | undefined, signed: Beginning | undefined): boolean =>
  remembered !== undefined && signed !== undefined && remembered.interval !== signed.interval;

/** Returns true if the tables end before the stored digest, or contain a different digest in its place. */
const isLost = (remembered: DigestName, end: ChainEnd | undefined): boolean =>
  end === undefined ||
  remembered.number > end.number ||
  (remembered.number === end.number && remembered.hash !== end.hash);

/**
 * Returns the rows in the places of a batch's digests that no trusted key signed, by row key. Returns `genuine` if another
 * sealer has already written digests there.
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

/** Returns the next digest, and the chain with it. */
function appendDigest(
  { end, beginning, lost, anchorChanged }: Chain,
  sealed: { interval: Interval; manifest: { entries: number; hash: string }; replaced: string | undefined },
  signer: SigningKey,
  clock: Clock,
): { statement: string; chain: Chain } {
  const { interval, manifest, replaced } = sealed;
  const chainBeginning: Beginning = beginning ?? { interval: intervalName(interval), hash: null };
  const digest: Digest = {
    number: Math.max(end?.number ?? 0, lost?.number ?? 0) + 1,
    interval: intervalName(interval),
    minutes: INTERVAL_MINUTES,
    entries: manifest.entries,
    total: (end?.total ?? 0) + manifest.entries,
    manifest: manifest.hash,
    previous: end?.hash ?? null,
    sealedAt: clock.now().toISOString(),
    beginning: chainBeginning,
    ...(lost && { lost }),
    ...(replaced !== undefined && { replaced }),
    ...(end &&
      !end.verified && { unverified: { number: end.number, interval: intervalName(end.interval), hash: end.hash } }),
    ...(anchorChanged && { anchorChanged }),
  };
  const statement = signStatement("audit-digest", digest, signer);
  const hash = sha256(statement);
  const next: ChainEnd = {
    interval,
    number: digest.number,
    total: digest.total,
    hash,
    beginning: chainBeginning,
    verified: true,
  };
  const known = digest.number === 1 ? { ...chainBeginning, hash } : chainBeginning;
  return { statement, chain: { end: next, beginning: known, lost: undefined, anchorChanged: false } };
}

async function* fingerprints(tables: Tables, rows: AsyncIterable<StoredEntry>): AsyncGenerator<Fingerprint> {
  let pending: AuditEntry[] = [];
  for await (const row of rows) {
    const entry = entryOfRow(row);
    if (!entry) continue; // not written by this service: verification reports it
    yield fingerprintOf(row);
    if (pending.push(entry) < REPAIR_BATCH) continue;
    await repairIndex(tables, pending);
    pending = [];
  }
  await repairIndex(tables, pending);
}

async function* nothing(): AsyncGenerator<StoredEntry[]> {}
