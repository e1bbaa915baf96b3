import * as z from "zod";
import { canonicalJson, sha256 } from "../canonical.ts";
import { type Digest, follows, readDigest } from "../chain/digest.ts";
import { type Finding, findingsIn, missingDigests } from "../chain/findings.ts";
import { type Fingerprint, manifestHash } from "../chain/manifest.ts";
import type { PublicKeys } from "../chain/signing.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalOf } from "../interval.ts";
import type { ExportVerification } from "./verify-export.ts";

/** A received event of an audit stream: a CloudEvent, or an object with its `id`, `type` and `data`. */
const ReceivedEvent = z.looseObject({ id: z.string(), type: z.string(), data: z.unknown() });
const EntryData = z.looseObject({ id: z.string(), occurredAt: z.string() });
const DigestData = z.looseObject({ interval: z.string(), statement: z.string() });

/**
 * Verifies the received events of an audit stream offline, for the command `verify-audit`. Each digest covers the entries of ten
 * minutes and names the previous digest, so a removed, changed or inserted entry shows. Events can be in any order, and
 * duplicates are expected. Only the period between the first and the last digest is verified.
 *
 * @param trusted - Public keys from a trusted source.
 * @throws z.ZodError if something is no event of an audit stream.
 */
export function verifyStream(events: readonly unknown[], trusted: PublicKeys): ExportVerification {
  const findings: Finding[] = [];
  const entries = new Map<string, { interval: Interval; fingerprint: Fingerprint }>();
  const digests = new Map<string, string>();
  for (const event of events) {
    const { type, data } = ReceivedEvent.parse(event);
    if (type === "lifecycle.audit.entry") {
      const entry = EntryData.parse(data);
      const fingerprint: Fingerprint = [entry.id, sha256(canonicalJson(entry))];
      const known = entries.get(entry.id);
      if (known && known.fingerprint[1] !== fingerprint[1])
        findings.push({ kind: "entryChanged", entryId: entry.id, detail: "Two events contain different entries." });
      entries.set(entry.id, { interval: intervalOf(Date.parse(entry.occurredAt)), fingerprint });
    } else if (type === "lifecycle.audit.digest") {
      const { interval, statement } = DigestData.parse(data);
      const known = digests.get(interval);
      if (known !== undefined && known !== statement)
        findings.push({ kind: "digestChanged", interval, detail: "Two events contain different digests." });
      digests.set(interval, statement);
    }
  }

  const byInterval = Map.groupBy(entries.values(), ({ interval }) => interval);
  const verified: Digest[] = [];
  let previous: { hash: string; number: number | undefined; interval: Interval } | undefined;
  for (const [name, statement] of [...digests].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const interval = intervalFrom(name);
    const expected = previous && previous.interval + INTERVAL_MS;
    if (expected !== undefined && interval > expected) {
      findings.push(missingDigests(expected, interval));
      previous = undefined;
    }
    const read = readDigest(name, statement, trusted);
    if (read.state !== "genuine") {
      const isUnknownKey = read.state === "unknownKey";
      const detail = isUnknownKey
        ? "The digest is signed with a key that was not given."
        : "The digest has no valid signature.";
      findings.push({ kind: isUnknownKey ? "digestUnverifiable" : "digestChanged", interval: name, detail });
      previous = { hash: read.hash, number: undefined, interval };
      continue;
    }
    const { digest, hash } = read;
    findings.push(...findingsIn(digest));
    if (previous && !follows(digest, previous)) {
      const detail = "The digest does not name the previous digest.";
      findings.push({ kind: "chainBroken", interval: name, digestNumber: digest.number, detail });
    }
    previous = { hash, number: digest.number, interval };
    verified.push(digest);
    const received = (byInterval.get(interval) ?? []).map(({ fingerprint }) => fingerprint);
    findings.push(...differenceIn(digest, received));
  }

  const covered = new Set(verified.map(({ interval }) => intervalFrom(interval)));
  const unsealed = [...entries.values()].filter(({ interval }) => !covered.has(interval)).length;
  const verdict = findings.length > 0 ? "notIntact" : verified.length === 0 ? "nothingSealed" : "intact";
  return {
    verdict,
    intact: verdict === "intact",
    findings,
    entries: entries.size,
    digests: verified.length,
    sealedFrom: verified[0]?.interval ?? null,
    sealedUpTo: verified.at(-1)?.interval ?? null,
    unsealed,
    purges: [],
    notes: [],
  };
}

/** Returns the finding for an interval whose received entries are not the sealed ones. */
function differenceIn({ interval, number, entries, manifest }: Digest, received: readonly Fingerprint[]): Finding[] {
  const hash = manifestHash();
  for (const fingerprint of received.toSorted(([a], [b]) => (a < b ? -1 : 1))) hash.add(fingerprint);
  if (hash.digest() === manifest) return [];
  const difference = received.length - entries;
  const kind = difference < 0 ? "entryRemoved" : difference > 0 ? "entryInserted" : "entryChanged";
  const detail = `The digest covers ${entries} entries. ${received.length} entries were received${difference === 0 ? ", but they differ" : ""}.`;
  return [{ kind, interval, digestNumber: number, detail }];
}
