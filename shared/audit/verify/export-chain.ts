import { sha256 } from "../canonical.ts";
import { type Beginning, type Digest, type DigestName, follows, type Previous, readDigest } from "../chain/digest.ts";
import { findingsIn, missingDigests } from "../chain/findings.ts";
import type { Fingerprint } from "../chain/manifest.ts";
import type { PurgeRecord } from "../chain/purge-record.ts";
import type { PublicKeys } from "../chain/signing.ts";
import type { ExportFile, ExportStatement } from "../export/statement.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalOf, isIntervalName } from "../interval.ts";
import { compareText, type Findings, type Part } from "./export-parts.ts";

/**
 * Verifies the chain of digests in an export offline. A digest is the signed hash of a ten-minute interval of the audit log.
 * Each digest names the previous one.
 */

/** A verified digest of an export with the fingerprints (ids and hashes) of its entries. */
export interface ExportedDigest {
  digest: Digest;
  fingerprints: Fingerprint[];
}

/** Returns the digests of all parts in order. The digest of an interval that two parts share occurs once. */
export function mergedDigests(parts: readonly Part[], findings: Findings): ExportFile["digests"] {
  const merged = new Map<string, ExportFile["digests"][number]>();
  for (const digest of parts.flatMap(({ file }) => file.digests)) {
    const existing = merged.get(digest.interval);
    if (!isIntervalName(digest.interval)) {
      const detail = `The row ${digest.interval} among the digests was not written by the service.`;
      findings.add({ kind: "digestInserted", detail });
      continue;
    }
    if (existing && existing.digest !== digest.digest) {
      findings.add({
        kind: "digestChanged",
        interval: digest.interval,
        detail: "Two parts contain different digests.",
      });
    }
    merged.set(digest.interval, digest);
  }
  return [...merged.values()].sort((a, b) => compareText(a.interval, b.interval));
}

/** Returns the digests that a trusted key signed, and checks that they follow one another without a gap. */
export function checkDigests(
  digests: ExportFile["digests"],
  about: {
    statements: readonly ExportStatement[];
    purges: readonly PurgeRecord[];
    predecessor: string | null;
    keys: PublicKeys;
  },
  findings: Findings,
): ExportedDigest[] {
  const { statements, purges, keys } = about;
  const [first] = statements;
  const beginning = first?.beginning ?? undefined;
  const genuine: ExportedDigest[] = [];
  let previous: Previous = digests[0] && predecessorOf(digests[0].interval, first, purges, about.predecessor);
  let expectedInterval = first && firstInterval(first);
  for (const { interval: name, digest: text, fingerprints } of digests) {
    const interval = intervalFrom(name);
    if (expectedInterval !== undefined && interval > expectedInterval) {
      findings.add(missingDigests(expectedInterval, interval));
      previous = undefined;
    }
    expectedInterval = interval + INTERVAL_MS;
    const read = readDigest(name, text, keys);
    if (read.state !== "genuine") {
      const isUnknownKey = read.state === "unknownKey";
      findings.add({
        kind: isUnknownKey ? "digestUnverifiable" : "digestChanged",
        interval: name,
        detail: isUnknownKey
          ? "The digest is signed with a key that was not given."
          : "The digest has no valid signature.",
      });
      previous = { hash: read.hash, number: undefined };
      continue;
    }
    const { digest, hash } = read;
    findings.add(...findingsIn(digest));
    if (previous && !follows(digest, previous)) addBroken(digest, "The digest does not name the previous digest.");
    if (beginsElsewhere(digest, beginning)) {
      addBroken(
        digest,
        `By this digest the log starts at ${digest.beginning!.interval}, by other digests at ${beginning!.interval}.`,
      );
    }
    previous = { hash, number: digest.number };
    genuine.push({ digest, fingerprints });
  }
  return genuine;

  function addBroken({ interval, number }: Digest, detail: string): void {
    findings.add({ kind: "chainBroken", interval, digestNumber: number, detail });
  }
}

const beginsElsewhere = (digest: Digest, beginning: Beginning | undefined): boolean =>
  beginning !== undefined && digest.beginning !== undefined && digest.beginning.interval !== beginning.interval;

/** Returns the digest that the first digest must name. Undefined if it is not known. */
function predecessorOf(
  interval: string,
  statement: ExportStatement | undefined,
  purges: readonly PurgeRecord[],
  predecessor: string | null,
): Previous {
  const purge = purges.find(({ to }) => to === interval);
  if (purge) return { hash: purge.last.hash, number: purge.last.number };
  // The first interval of the log has no previous digest. But after purges the log starts later, and the record of the last purge,
  // which names the previous digest, is missing here.
  if (statement?.sealedFrom === interval) return purges.length === 0 ? { hash: null, number: 0 } : undefined;
  return predecessor === null ? undefined : { hash: sha256(predecessor), number: undefined };
}

/** Returns the interval of the first expected digest. Undefined if nothing was sealed. */
function firstInterval({ after, start, newest }: ExportStatement): Interval | undefined {
  if (newest === null) return undefined;
  return after === null ? intervalOf(Date.parse(start)) : intervalAt(after);
}

/**
 * Checks that the exported digests reach the end of the export or the newest digest, and that the digest in the key vault is
 * one of the chain.
 */
export function checkEnd(
  digests: ExportFile["digests"],
  statements: readonly ExportStatement[],
  findings: Findings,
): void {
  const lastStatement = statements.at(-1);
  if (!lastStatement) return;
  const newestExported = digests.at(-1);
  const lastRequested =
    lastStatement.upTo === null ? intervalOf(Date.parse(lastStatement.end) - 1) : intervalAt(lastStatement.upTo);
  const lastSealed = Math.min(lastRequested, lastStatement.newest ? intervalFrom(lastStatement.newest.interval) : 0);
  const next = newestExported ? intervalFrom(newestExported.interval) + INTERVAL_MS : firstInterval(lastStatement);
  if (next !== undefined && next <= lastSealed) findings.add(missingDigests(next, lastSealed + INTERVAL_MS));
  if (lastStatement.anchor !== null) checkAnchor(digests, lastStatement.anchor, lastStatement.newest, findings);
}

function checkAnchor(
  digests: ExportFile["digests"],
  anchor: DigestName,
  newest: DigestName | null,
  findings: Findings,
): void {
  const exported = digests.find(({ interval }) => interval === anchor.interval);
  const differs = exported !== undefined && sha256(exported.digest) !== anchor.hash;
  const cut = newest === null || newest.number < anchor.number;
  const replaced = newest?.number === anchor.number && newest.hash !== anchor.hash;
  if (!differs && !cut && !replaced) return;
  findings.add({
    kind: "digestsCut",
    interval: anchor.interval,
    digestNumber: anchor.number,
    detail: cut
      ? `The key vault named digest ${anchor.number} as the newest, but the tables ended with ${newest ? `digest ${newest.number} (${newest.interval})` : "no digest"}. The later digests and their entries were removed.`
      : `The key vault named a different digest ${anchor.number} than the tables contained.`,
  });
}

/** Returns the interval of a position (`2026-11-21|10:40|01J…`). NaN if the service did not write the row. */
export const intervalAt = (position: string): Interval =>
  intervalFrom(`${position.slice(0, 10)}T${position.slice(11, 16)}Z`);
