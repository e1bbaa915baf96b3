import { decodeTime } from "ulid";
import { canonicalJson, sha256 } from "./canonical.ts";
import { Digest, type DigestName } from "./chain.ts";
import { positionText } from "./export-walk.ts";
import { compare, DETAILS, type Finding } from "./findings.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import { type Fingerprint, manifestHash } from "./manifest.ts";
import { PurgeRecord } from "./purge-record.ts";
import { entryKey } from "./rows.ts";
import { type PublicKeys, readStatement } from "./signing.ts";
import { ExportFile, ExportStatement } from "./statement.ts";
import { isEntryId } from "./stored.ts";
import { withVouched } from "./trust.ts";

/** A refusal's id is the start of its minute: by its id alone an entry is placed to the minute. */
const MINUTE_MS = 60_000;

export interface ExportVerification {
  intact: boolean;
  findings: Finding[];
  entries: number;
  digests: number;
  /** Entries that no digest covers yet; the signature of the export does. */
  unsealed: number;
  purges: PurgeRecord[];
  /** What could not be checked, in words. */
  notes: string[];
}

interface Part {
  file: ExportFile;
  statement: ExportStatement | undefined;
}

/**
 * Checks the parts of a JSON export against public keys that were learned some other way; keys that the export itself
 * brings count only when a trusted one vouches for them.
 */
export async function verifyExport(files: readonly unknown[], trusted: PublicKeys): Promise<ExportVerification> {
  const findings: Finding[] = [];
  const notes: string[] = [];
  const parts = files.flatMap((file, index) => readPart(file, index + 1) ?? []);
  parts.sort((a, b) => compareText(a.statement?.after ?? "", b.statement?.after ?? ""));
  const keys = withVouched(
    trusted,
    parts.flatMap(({ file }) => file.keys),
  );
  const statements = parts.flatMap(({ statement }) => statement ?? []);
  const filtered = statements.some(({ actor, eventType }) => actor !== undefined || eventType !== undefined);
  if (filtered) notes.push("The export was filtered: whether entries are missing from it can't be told.");
  checkSequence();

  const purges = readPurgeRecords();
  const digests = mergeDigests();
  const sealed = checkChain();
  checkEnd();
  const entries = entriesByInterval();
  for (const { digest, fingerprints } of sealed) await checkEntries(digest, fingerprints);

  return {
    intact: findings.length === 0,
    findings,
    entries: [...entries.values()].reduce((sum, inInterval) => sum + inInterval.length, 0),
    digests: digests.length,
    unsealed: countUnsealed(),
    purges,
    notes,
  };

  function readPart(value: unknown, index: number): Part | undefined {
    const exportChanged = (detail: string) =>
      findings.push({ kind: "exportChanged", detail: `File ${index}: ${detail}` });
    const parsed = ExportFile.safeParse(value);
    if (!parsed.success) {
      exportChanged("this is no JSON export of the audit log, or parts of it were removed.");
      return undefined;
    }
    const file = parsed.data;
    if (file.statement === null) {
      exportChanged("it is not signed.");
      return { file, statement: undefined };
    }
    const known = withVouched(trusted, file.keys);
    const read = readStatement("audit-export", ExportStatement, file.statement, known);
    if (!("payload" in read)) {
      exportChanged(
        read.problem === "unknownKey" ? "it is signed with a key that was not given." : "its signature does not hold.",
      );
      return { file, statement: undefined };
    }
    const statement = read.payload;
    const hash = manifestHash();
    for (const entry of file.entries) hash.add([entry.id, sha256(canonicalJson(entry))]);
    const asSigned =
      hash.digest() === statement.fingerprints &&
      file.entries.length === statement.entries &&
      file.start === statement.start &&
      file.end === statement.end;
    if (!asSigned) exportChanged("its entries or its period are not those that were exported.");
    return { file, statement };
  }

  function checkSequence(): void {
    for (const [index, { after, start, end }] of statements.entries()) {
      const before = statements[index - 1];
      if (before && (before.start !== start || before.end !== end)) {
        notes.push("The files are parts of different exports.");
      } else if ((before?.upTo ?? null) !== after) {
        notes.push(`A part before ${after ?? "the first"} is missing: entries in it were not checked.`);
      }
    }
    const last = statements.at(-1);
    if (last && last.upTo !== null)
      notes.push(`The parts after ${last.upTo} are missing: entries in them were not checked.`);
  }

  function readPurgeRecords(): PurgeRecord[] {
    const records = new Map<string, PurgeRecord>();
    for (const statement of new Set(parts.flatMap(({ file }) => file.purges))) {
      const read = readStatement("audit-purge", PurgeRecord, statement, keys);
      if ("payload" in read) records.set(read.payload.to, read.payload);
      else findings.push({ kind: "purgeRecordChanged", detail: "A purge record is not signed with a trusted key." });
    }
    return [...records.values()].sort((a, b) => compareText(a.to, b.to));
  }

  /** Every digest once, in order; an interval that two parts share is in both. */
  function mergeDigests(): ExportFile["digests"] {
    const merged = new Map<string, ExportFile["digests"][number]>();
    for (const digest of parts.flatMap(({ file }) => file.digests)) {
      const known = merged.get(digest.interval);
      if (known && known.digest !== digest.digest) {
        findings.push({
          kind: "digestChanged",
          interval: digest.interval,
          detail: "Two parts hold different digests.",
        });
      }
      merged.set(digest.interval, digest);
    }
    return [...merged.values()].sort((a, b) => compareText(a.interval, b.interval));
  }

  function checkChain(): { digest: Digest; fingerprints: Fingerprint[] }[] {
    const genuine: { digest: Digest; fingerprints: Fingerprint[] }[] = [];
    let previous = predecessor();
    let expected = statements[0] && firstInterval(statements[0]);
    for (const { interval: name, digest: text, fingerprints } of digests) {
      const interval = intervalFrom(name);
      if (expected !== undefined && interval > expected) {
        reportGap(expected, interval);
        previous = undefined;
      }
      expected = interval + INTERVAL_MS;
      const read = readStatement("audit-digest", Digest, text, keys);
      if (!("payload" in read) || read.payload.interval !== name) {
        const unknown = "problem" in read && read.problem === "unknownKey";
        findings.push({
          kind: unknown ? "digestUnverifiable" : "digestChanged",
          interval: name,
          detail: unknown
            ? "It is signed with a key that was not given."
            : "The digest is not what the service signed.",
        });
        previous = { hash: sha256(text), number: undefined };
        continue;
      }
      const digest = read.payload;
      const place = { interval: name, digestNumber: digest.number };
      const rightNumber =
        previous?.number === undefined || digest.lost !== undefined || previous.number + 1 === digest.number;
      if (previous && !(previous.hash === digest.previous && rightNumber)) {
        findings.push({ ...place, kind: "chainBroken", detail: "It does not name the digest before it." });
      }
      if (digest.lost) {
        const detail = `When this was sealed, the digests up to number ${digest.lost.number} (${digest.lost.interval}) had been cut off with their entries.`;
        findings.push({ ...place, kind: "digestsCut", detail });
      }
      previous = { hash: sha256(text), number: digest.number };
      genuine.push({ digest, fingerprints });
    }
    return genuine;
  }

  /** What the first digest must name. */
  function predecessor(): { hash: string | null; number: number | undefined } | undefined {
    const [first] = digests;
    if (!first) return undefined;
    const purge = purges.find(({ to }) => to === first.interval);
    if (purge) return { hash: purge.last.hash, number: purge.last.number };
    if (statements[0]?.sealedFrom === first.interval)
      return purges.length === 0 ? { hash: null, number: 0 } : undefined;
    const text = parts[0]?.file.predecessor;
    return text ? { hash: sha256(text), number: undefined } : undefined;
  }

  /** The interval the first digest must be of. */
  function firstInterval({ after, start, newest }: ExportStatement): Interval | undefined {
    if (newest === null) return undefined;
    return after === null ? intervalOf(Date.parse(start)) : intervalAt(after);
  }

  function reportGap(start: Interval, end: Interval): void {
    const count = (end - start) / INTERVAL_MS;
    const detail = `${count === 1 ? "The digest of this interval is" : `${count} digests, up to ${intervalName(end)}, are`} missing.`;
    findings.push({ kind: "digestMissing", interval: intervalName(start), detail });
  }

  /** Whether the digests go as far as the tables did, and those as far as the key vault remembers. */
  function checkEnd(): void {
    const last = statements.at(-1);
    if (!last) return;
    const newestHere = digests.at(-1);
    const lastAsked = last.upTo === null ? intervalOf(Date.parse(last.end) - 1) : intervalAt(last.upTo);
    const lastSealed = Math.min(lastAsked, last.newest ? intervalFrom(last.newest.interval) : 0);
    const next = newestHere ? intervalFrom(newestHere.interval) + INTERVAL_MS : firstInterval(last);
    if (next !== undefined && next <= lastSealed) reportGap(next, lastSealed + INTERVAL_MS);
    if (last.anchor === null) {
      notes.push("No key vault remembered the newest digest: cutting off the newest digests can't be found.");
    } else checkAnchor(last.anchor, last.newest);
  }

  function checkAnchor(anchor: DigestName, newest: DigestName | null): void {
    const here = digests.find(({ interval }) => interval === anchor.interval);
    const differs = here !== undefined && sha256(here.digest) !== anchor.hash;
    const cut = newest === null || newest.number < anchor.number;
    const replaced = newest?.number === anchor.number && newest.hash !== anchor.hash;
    if (!differs && !cut && !replaced) return;
    findings.push({
      kind: "digestsCut",
      interval: anchor.interval,
      digestNumber: anchor.number,
      detail: cut
        ? `The key vault remembered digest ${anchor.number}; the tables ended with ${newest ? `digest ${newest.number} (${newest.interval})` : "none"}. Every digest and entry between was cut off.`
        : `The key vault remembered another digest ${anchor.number} than the tables held.`,
    });
  }

  function entriesByInterval(): Map<Interval, Fingerprint[]> {
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

  async function checkEntries(digest: Digest, fingerprints: Fingerprint[]): Promise<void> {
    const interval = intervalFrom(digest.interval);
    const result = await compare(fingerprints, entries.get(interval) ?? [], Number.POSITIVE_INFINITY);
    const place = { interval: digest.interval, digestNumber: digest.number };
    if (result.sealedHash !== digest.manifest) {
      findings.push({
        ...place,
        kind: "fingerprintsChanged",
        detail: "The fingerprints are not those that were sealed.",
      });
    }
    for (const { kind, entryId } of result.differences) {
      if (kind === "entryRemoved" && !isExpected(interval, entryId)) continue;
      findings.push({ ...place, kind, entryId, detail: DETAILS[kind] });
    }
  }

  /** Whether one of the parts must hold this entry. */
  function isExpected(interval: Interval, id: string): boolean {
    if (filtered) return false;
    const at = minuteOf(id);
    const position = positionText({ interval, rowKey: entryKey(interval, id) });
    return statements.some(
      ({ start, end, after, upTo }) =>
        at >= Date.parse(start) &&
        at + MINUTE_MS <= Date.parse(end) &&
        (after === null || position > after) &&
        (upTo === null || position <= upTo),
    );
  }

  function countUnsealed(): number {
    const known = new Set(digests.map(({ interval }) => intervalFrom(interval)));
    return [...entries].reduce((sum, [interval, inInterval]) => sum + (known.has(interval) ? 0 : inInterval.length), 0);
  }
}

/** The interval of a position; NaN behind a row that is none of the service's. */
const intervalAt = (position: string): Interval => intervalFrom(`${position.slice(0, 10)}T${position.slice(11, 16)}Z`);

/** NaN for what is no ULID. */
function minuteOf(id: string): number {
  return isEntryId(id) ? Math.floor(decodeTime(id) / MINUTE_MS) * MINUTE_MS : Number.NaN;
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
