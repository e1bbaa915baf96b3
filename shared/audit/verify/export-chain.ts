import { sha256 } from "../canonical.ts";
import { type Beginning, type Digest, type DigestName, readDigest } from "../chain/digest.ts";
import { findingsIn, missingDigests } from "../chain/findings.ts";
import type { Fingerprint } from "../chain/manifest.ts";
import type { PurgeRecord } from "../chain/purge-record.ts";
import type { PublicKeys } from "../chain/signing.ts";
import type { ExportFile, ExportStatement } from "../export/statement.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalOf, isIntervalName } from "../interval.ts";
import { compareText, type Findings, type Part } from "./export-parts.ts";

/** A verified digest of an export with the fingerprints that it sealed. */
export interface ExportedDigest {
  digest: Digest;
  fingerprints: Fingerprint[];
}

/** The digest that the next one must name; only its number is known in some cases. */
type Previous = { hash: string | null; number: number | undefined } | undefined;

/** Returns the digests of all parts in order. The digest of an interval that two parts share occurs once. */
export function mergedDigests(parts: readonly Part[], findings: Findings): ExportFile["digests"] {
  const merged = new Map<string, ExportFile["digests"][number]>();
  for (const digest of parts.flatMap(({ file }) => file.digests)) {
    const known = merged.get(digest.interval);
    if (!isIntervalName(digest.interval)) {
      const detail = `The row ${digest.interval} among the digests was not written by the service.`;
      findings.add({ kind: "digestInserted", detail });
      continue;
    }
    if (known && known.digest !== digest.digest) {
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
  let expected = first && firstInterval(first);
  for (const { interval: name, digest: text, fingerprints } of digests) {
    const interval = intervalFrom(name);
    if (expected !== undefined && interval > expected) {
      findings.add(missingDigests(expected, interval));
      previous = undefined;
    }
    expected = interval + INTERVAL_MS;
    const read = readDigest(name, text, keys);
    if (read.state !== "genuine") {
      const unknown = read.state === "unknownKey";
      findings.add({
        kind: unknown ? "digestUnverifiable" : "digestChanged",
        interval: name,
        detail: unknown ? "It is signed with a key that was not given." : "The digest is not what the service signed.",
      });
      previous = { hash: read.hash, number: undefined };
      continue;
    }
    const { digest, hash } = read;
    findings.add(...findingsIn(digest));
    if (previous && !follows(digest, previous)) broken(digest, "The digest does not name the previous digest.");
    if (beginsElsewhere(digest, beginning)) {
      broken(
        digest,
        `It says that the log began at ${digest.beginning!.interval}, other digests ${beginning!.interval}.`,
      );
    }
    previous = { hash, number: digest.number };
    genuine.push({ digest, fingerprints });
  }
  return genuine;

  function broken({ interval, number }: Digest, detail: string): void {
    findings.add({ kind: "chainBroken", interval, digestNumber: number, detail });
  }
}

/** After a lost digest the numbers continue after it. */
function follows(digest: Digest, previous: NonNullable<Previous>): boolean {
  if (previous.hash !== digest.previous) return false;
  return previous.number === undefined || digest.lost !== undefined || previous.number + 1 === digest.number;
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
  if (statement?.sealedFrom === interval) return purges.length === 0 ? { hash: null, number: 0 } : undefined;
  return predecessor === null ? undefined : { hash: sha256(predecessor), number: undefined };
}

/** Returns the interval of the first expected digest. Undefined if nothing was sealed. */
function firstInterval({ after, start, newest }: ExportStatement): Interval | undefined {
  if (newest === null) return undefined;
  return after === null ? intervalOf(Date.parse(start)) : intervalAt(after);
}

/** Checks that the exported digests reach the newest one in the tables, and that this is the newest one in the key vault. */
export function checkEnd(
  digests: ExportFile["digests"],
  statements: readonly ExportStatement[],
  findings: Findings,
): void {
  const last = statements.at(-1);
  if (!last) return;
  const newestHere = digests.at(-1);
  const lastAsked = last.upTo === null ? intervalOf(Date.parse(last.end) - 1) : intervalAt(last.upTo);
  const lastSealed = Math.min(lastAsked, last.newest ? intervalFrom(last.newest.interval) : 0);
  const next = newestHere ? intervalFrom(newestHere.interval) + INTERVAL_MS : firstInterval(last);
  if (next !== undefined && next <= lastSealed) findings.add(missingDigests(next, lastSealed + INTERVAL_MS));
  if (last.anchor !== null) checkAnchor(digests, last.anchor, last.newest, findings);
}

function checkAnchor(
  digests: ExportFile["digests"],
  anchor: DigestName,
  newest: DigestName | null,
  findings: Findings,
): void {
  const here = digests.find(({ interval }) => interval === anchor.interval);
  const differs = here !== undefined && sha256(here.digest) !== anchor.hash;
  const cut = newest === null || newest.number < anchor.number;
  const replaced = newest?.number === anchor.number && newest.hash !== anchor.hash;
  if (!differs && !cut && !replaced) return;
  findings.add({
    kind: "digestsCut",
    interval: anchor.interval,
    digestNumber: anchor.number,
    detail: cut
      ? `The key vault remembered digest ${anchor.number}; the tables ended with ${newest ? `digest ${newest.number} (${newest.interval})` : "none"}. Every digest and entry between was cut off.`
      : `The key vault remembered another digest ${anchor.number} than the tables held.`,
  });
}

/** The interval of a position. NaN if the service did not write the row. */
export const intervalAt = (position: string): Interval =>
  intervalFrom(`${position.slice(0, 10)}T${position.slice(11, 16)}Z`);
