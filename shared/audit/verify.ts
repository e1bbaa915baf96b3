import * as z from "zod";
import { decodeCursor, encodeCursor } from "../http/paging.ts";
import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import type { Anchor } from "./anchor.ts";
import { sha256 } from "./canonical.ts";
import { chainEnd, Digest, type DigestName } from "./chain.ts";
import { compare, DETAILS, Finding } from "./findings.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "./interval.ts";
import { type Fingerprint, readManifests } from "./manifest.ts";
import { PurgeRecord, purgedTo, readPurges } from "./purge-record.ts";
import { DIGESTS_PARTITION, DigestRow, FIRST_PARTITION, FirstRow } from "./rows.ts";
import { publicKeyText, readStatement } from "./signing.ts";
import { byInterval, fingerprintOf, storedEntries } from "./stored.ts";
import type { Trust } from "./trust.ts";

/** One answer reads at most this much, so that it comes well within the platform's 230 seconds. */
export const VERIFY_LIMITS = { entries: 200_000, intervals: 20_000 };
const MAX_FINDINGS = 1000;
/** Findings listed for one interval; the rest is told as a number. */
const MAX_FINDINGS_PER_INTERVAL = 100;

const text = z.string();

export const Verification = z
  .object({
    intact: z.boolean().meta({ description: "Nothing sealed in what was checked was changed, removed or inserted." }),
    sealing: z.enum(["configured", "notConfigured"]).meta({
      description: "notConfigured: AUDIT_SIGNING_KEYS is not set, nothing is sealed, nothing can be verified.",
    }),
    checkedFrom: text.nullable().meta({ description: "The start of the first interval that was checked." }),
    checkedTo: text.nullable().meta({ description: "The end of the last interval that was checked." }),
    digests: z.int().meta({ description: "Digests that were checked." }),
    entries: z.int().meta({ description: "Entries that were compared with their sealed fingerprints." }),
    findings: z.array(Finding).meta({ description: `At most ${MAX_FINDINGS}; findingsTotal counts all.` }),
    findingsTotal: z.int(),
    unsealedFrom: text.nullable().meta({ description: "From here on nothing is sealed yet: not checked." }),
    purges: z.array(PurgeRecord).meta({ description: "What was removed by retention, with who did it." }),
    anchor: z
      .object({
        state: z.enum(["matches", "differs", "empty", "notConfigured"]).meta({
          description:
            "The newest digest as the service's own key vault remembers it; notConfigured: SERVICE_KEY_VAULT_URL is not set, so that cutting off the newest digests with their entries can't be found.",
        }),
        number: z.int().optional(),
        interval: text.optional(),
        hash: text.optional(),
      })
      .meta({ id: "AuditAnchor" }),
    publicKeys: z
      .array(z.object({ kid: text, publicKey: text.meta({ description: "Ed25519, 32 bytes in base64." }) }))
      .meta({ description: "Keep them apart from this service, for the offline command." }),
    nextCursor: text
      .nullable()
      .meta({ description: "There is more to check than one answer does: send it as cursor." }),
  })
  .meta({ id: "AuditVerification" });
export type Verification = z.infer<typeof Verification>;

const Cursor = z.object({ from: text.refine(isIntervalName), end: z.int().nullable() });

/** Which sealed intervals to check: every one that overlaps `start <= instant < end`. */
export interface VerifyRequest {
  start?: Date | undefined;
  end?: Date | undefined;
  cursor?: string | undefined;
}

/**
 * Checks the chain of digests and compares every entry with the fingerprint it was sealed with, one interval after the
 * other in flat memory. Reads only the primary rows and what seals them.
 */
export async function verifySealed(
  deps: { tables: Tables; clock: Clock; trust: Trust; anchor: Anchor | undefined },
  request: VerifyRequest,
  limits: { entries: number; intervals: number } = VERIFY_LIMITS,
): Promise<Verification> {
  const { tables, clock, trust, anchor } = deps;
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  const keys = await trust.keys();
  const purges = await readPurges(tables, keys);
  const first = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const end = await chainEnd(tables, keys, clock);
  const findings = createFindings();

  const begin = Math.max(purgedTo(purges) ?? 0, first ? intervalFrom(first.interval) : await earliestDigest());
  const asked = cursor ? intervalFrom(cursor.from) : request.start ? intervalOf(request.start.getTime()) : begin;
  const from = Math.max(begin, asked);
  const until = (cursor ? cursor.end : request.end?.getTime()) ?? Number.POSITIVE_INFINITY;
  const last = Math.min(
    end ? end.interval : 0,
    Number.isFinite(until) ? intervalOf(until - 1) : Number.POSITIVE_INFINITY,
  );

  for (const rowKey of purges.changed) {
    findings.add({ kind: "purgeRecordChanged", interval: rowKey, detail: "No trusted key signed this purge record." });
  }
  const anchored = await checkAnchor();
  const checked = end ? await checkChain() : { to: undefined, digests: 0, entries: 0, more: false };

  return {
    intact: findings.total === 0,
    sealing: trust.signer ? "configured" : "notConfigured",
    checkedFrom: checked.to === undefined || checked.to === from ? null : new Date(from).toISOString(),
    checkedTo: checked.to === undefined || checked.to === from ? null : new Date(checked.to).toISOString(),
    digests: checked.digests,
    entries: checked.entries,
    findings: findings.listed,
    findingsTotal: findings.total,
    unsealedFrom: end ? new Date(end.interval + INTERVAL_MS).toISOString() : (first?.interval ?? null),
    purges: purges.records
      .map(({ record }) => record)
      .filter((record) => intervalFrom(record.to) > asked || asked === begin)
      .filter((record) => intervalFrom(record.from) < until),
    anchor: anchored,
    publicKeys: [...keys].map(([kid, key]) => ({ kid, publicKey: publicKeyText(key) })),
    nextCursor: checked.more
      ? encodeCursor({ from: intervalName(checked.to!), end: Number.isFinite(until) ? until : null })
      : null,
  };

  /** Where checking begins when nothing says where sealing began. */
  async function earliestDigest(): Promise<Interval> {
    const digests = tables.pages(DigestRow, { partitionKey: DIGESTS_PARTITION, before: "~", pageSize: 1 });
    const earliest = (await digests.next()).value?.[0]?.rowKey;
    if (earliest === undefined || !isIntervalName(earliest)) return 0;
    findings.add({ kind: "chainBroken", interval: earliest, detail: "The row that says where sealing began is gone." });
    return intervalFrom(earliest);
  }

  /** Whole tables may have been set back together; what lies in the key vault was not. */
  async function checkAnchor(): Promise<Verification["anchor"]> {
    if (!anchor) return { state: "notConfigured" };
    const remembered = await anchor.read();
    if (!remembered) return { state: "empty" };
    if (intervalFrom(remembered.interval) < (purgedTo(purges) ?? 0)) return { state: "matches", ...remembered };
    const row = await tables.get(DigestRow, DIGESTS_PARTITION, remembered.interval);
    if (row && sha256(row.digest) === remembered.hash) return { state: "matches", ...remembered };
    findings.add({
      kind: "digestsCut",
      interval: remembered.interval,
      digestNumber: remembered.number,
      detail: row
        ? `The key vault remembers another digest ${remembered.number} than the tables hold.`
        : `The key vault remembers digest ${remembered.number}; the tables end with ${end ? `digest ${end.number}` : "none"}. Every digest and entry between was cut off.`,
    });
    return { state: "differs", ...remembered };
  }

  async function checkChain() {
    let previous = await predecessor();
    let expected: Interval = from;
    let digests = 0;
    let entries = 0;

    async function* rows() {
      const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: `${intervalName(last)}~` };
      if (last >= from) for await (const page of tables.pages(DigestRow, range)) yield* page;
    }
    const range = { from, to: Math.max(from, last + INTERVAL_MS) };
    const sealed = byInterval(readManifests(tables, range));
    const stored = byInterval(storedEntries(tables, range));

    for await (const { rowKey, digest: statement } of rows()) {
      if (!isIntervalName(rowKey)) {
        findings.add({
          kind: "digestInserted",
          detail: `The row ${rowKey} among the digests is none of this service's.`,
        });
        continue;
      }
      const interval = intervalFrom(rowKey);
      if (digests >= limits.intervals || entries >= limits.entries) {
        return { to: expected, digests, entries, more: true };
      }
      if (interval > expected) {
        reportGap(expected, interval);
        previous = undefined;
      }
      expected = interval + INTERVAL_MS;
      digests += 1;
      const place = { interval: rowKey };
      const read = readStatement("audit-digest", Digest, statement, keys);
      if (!("payload" in read)) {
        findings.add(
          read.problem === "unknownKey"
            ? {
                ...place,
                kind: "digestUnverifiable",
                detail: "It is signed with a key that is not known any more. Add that key to AUDIT_SIGNING_KEYS.",
              }
            : { ...place, kind: "digestChanged", detail: "The digest is not what this service signed." },
        );
        previous = { hash: sha256(statement), number: undefined };
        continue;
      }
      const digest = read.payload;
      const numbered = { ...place, digestNumber: digest.number };
      if (digest.interval !== rowKey) {
        findings.add({
          ...numbered,
          kind: "digestChanged",
          detail: `It is the digest of ${digest.interval}, moved here.`,
        });
      }
      if (digest.lost) reportLoss(digest.lost, numbered);
      const followsOn = previous && previous.hash === digest.previous;
      const rightNumber =
        previous?.number === undefined || digest.lost !== undefined || previous.number + 1 === digest.number;
      if (previous && !(followsOn && rightNumber)) {
        findings.add({ ...numbered, kind: "chainBroken", detail: "It does not name the digest before it." });
      }
      previous = { hash: sha256(statement), number: digest.number };

      const result = await compare(
        fingerprints(sealed.of(interval), ({ fingerprint }) => fingerprint),
        fingerprints(stored.of(interval), fingerprintOf),
        MAX_FINDINGS_PER_INTERVAL,
      );
      entries += result.entries;
      const entriesIntact = result.foundHash === digest.manifest;
      if (result.sealedHash !== digest.manifest) {
        const detail = entriesIntact
          ? "The fingerprints were changed; the entries are as they were sealed."
          : "The fingerprints were changed as well as the entries: which entries differ may not be told right.";
        findings.add({ ...numbered, kind: "fingerprintsChanged", detail });
      }
      if (!entriesIntact) {
        for (const { kind, entryId } of result.differences) {
          findings.add({ ...numbered, kind, entryId, detail: DETAILS[kind] });
        }
        findings.total += result.total - result.differences.length;
      }
    }
    // The range may end with digests that are gone while later ones are there.
    if (expected <= last) reportGap(expected, last + INTERVAL_MS);
    return { to: Math.max(expected, from), digests, entries, more: false };
  }

  /** What the first digest of the range must name; undefined when that can't be known. */
  async function predecessor(): Promise<{ hash: string | null; number: number | undefined } | undefined> {
    const purge = purges.records.at(-1)?.record;
    if (purge && intervalFrom(purge.to) === from) return { hash: purge.last.hash, number: purge.last.number };
    if (first && intervalFrom(first.interval) === from) return { hash: null, number: 0 };
    const row = await tables.get(DigestRow, DIGESTS_PARTITION, intervalName(from - INTERVAL_MS));
    return row && { hash: sha256(row.digest), number: undefined };
  }

  function reportGap(start: Interval, end: Interval): void {
    const count = (end - start) / INTERVAL_MS;
    findings.add({
      kind: "digestMissing",
      interval: intervalName(start),
      detail: `${count === 1 ? "The digest of this interval is" : `${count} digests, up to ${intervalName(end)}, are`} missing.`,
    });
  }

  function reportLoss(lost: DigestName, place: { interval: string; digestNumber: number }): void {
    findings.add({
      ...place,
      kind: "digestsCut",
      detail: `When this was sealed, the digests up to number ${lost.number} (${lost.interval}) had been cut off with their entries.`,
    });
  }
}

async function* fingerprints<T>(source: AsyncIterable<T>, of: (item: T) => Fingerprint): AsyncGenerator<Fingerprint> {
  for await (const item of source) yield of(item);
}

function createFindings() {
  return {
    listed: [] as Finding[],
    total: 0,
    add(finding: Finding): void {
      this.total += 1;
      if (this.listed.length < MAX_FINDINGS) this.listed.push(finding);
    },
  };
}
