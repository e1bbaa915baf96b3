import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { sha256 } from "./canonical.ts";
import { requiredSince } from "./chain/authenticated-from.ts";
import { chainEnd, digestAt, oldestBeginning, purgedEnd } from "./chain/chain.ts";
import { isAuthentic } from "./chain/check-authenticity.ts";
import { manifestHash, readManifests } from "./chain/manifest.ts";
import { purgedTo, readPurges } from "./chain/purge-record.ts";
import type { PublicKeys } from "./chain/signing.ts";
import type { Trust } from "./chain/trust.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName } from "./interval.ts";
import type { StoredEntry } from "./stored-entries.ts";
import { entriesEnd } from "./verify/check-unsealed.ts";

/** The part of the log that lists show: entries within its time range that this service wrote. */
export interface Span {
  /** Start of the first interval that is not purged. Undefined if nothing is sealed. */
  from: Interval | undefined;
  /** Time before which all entries are. Infinity without keys, because then nothing is verified. */
  to: number;
  /**
   * Returns false for a changed or inserted entry. A sealed entry without a valid code of a configured key is compared with the digest
   * of its interval. This costs two requests for each such interval, and no request for other entries.
   */
  isAuthentic(row: Pick<StoredEntry, "interval" | "rowKey" | "id" | "text" | "link" | "mac">): Promise<boolean>;
}

/** How long a process uses the bounds of the span that it read. */
const CACHE_MS = MINUTE_MS;

/** Creates the reader of the span. Costs four requests a minute, and one more in a log without digests. */
export function createSpan(deps: { tables: Tables; clock: Clock; trust: Trust }): () => Promise<Span> {
  const { tables, clock, trust } = deps;
  /** The last read bounds of the span, and until when this process uses them. */
  let cached: { until: number; bounds: ReturnType<typeof readBounds> } | undefined;

  async function readBounds() {
    const keys = await trust.keys();
    const chainDeps = { tables, clock, keys };
    const purges = await readPurges(tables, keys);
    const end = (await chainEnd(chainDeps)) ?? purgedEnd(purges);
    const beginning = end?.beginning ?? (end && (await oldestBeginning(chainDeps, purges)));
    const from = purgedTo(purges) ?? (beginning && intervalFrom(beginning.interval));
    const authenticatedFrom = await requiredSince(tables, keys, end);
    return { from, authenticatedFrom, newestSealed: end?.interval, keys };
  }

  return async () => {
    const now = clock.now().getTime();
    // The bounds are also read again if the clock was set back.
    if (!cached || now >= cached.until || now < cached.until - CACHE_MS) {
      const bounds = readBounds();
      cached = { until: now + CACHE_MS, bounds };
      bounds.catch(() => {
        cached = undefined;
      });
    }
    const { from, authenticatedFrom, newestSealed, keys } = await cached.bounds;
    const { authentication, signer } = trust;
    /** The fingerprints of the sealed intervals that were needed, so that each is read once. */
    const fingerprintsByInterval = new Map<Interval, Promise<ReadonlySet<string>>>();
    return {
      from,
      to: signer ? entriesEnd(now, newestSealed) : Number.POSITIVE_INFINITY,
      async isAuthentic(row) {
        if (newestSealed === undefined || row.interval > newestSealed)
          return isAuthentic({ authentication, authenticatedFrom }, row);
        // Without a key, no digest can be verified.
        if (!signer) return isAuthentic({ authentication, authenticatedFrom, acceptsUnknownKeys: true }, row);
        // 0: a missing code isn't accepted for any interval, because the digest can prove a sealed entry without a code.
        if (isAuthentic({ authentication, authenticatedFrom: 0 }, row)) return true;
        const fingerprints = fingerprintsByInterval.get(row.interval) ?? sealedFingerprints(tables, row.interval, keys);
        fingerprintsByInterval.set(row.interval, fingerprints);
        return (await fingerprints).has(`${row.id} ${sha256(row.text ?? "")}`);
      },
    };
  };
}

/**
 * Returns the ids and hashes of the entries that an interval was sealed with, without those that the sealing found to be changed or
 * inserted. Empty if the digest or the manifest was changed, or if the sealing found more than the digest names.
 */
async function sealedFingerprints(tables: Tables, interval: Interval, keys: PublicKeys): Promise<ReadonlySet<string>> {
  const reading = await digestAt(tables, intervalName(interval), keys);
  if (reading?.state !== "genuine") return new Set();
  const { manifest, falsified = { total: 0, listed: [] } } = reading.digest;
  if (falsified.total > falsified.listed.length) return new Set();
  const falsifiedIds = new Set(falsified.listed.map(({ entryId }) => entryId));
  const fingerprints = new Set<string>();
  const hash = manifestHash();
  for await (const page of readManifests(tables, { from: interval, to: interval + INTERVAL_MS }))
    for (const { fingerprint } of page) {
      hash.add(fingerprint);
      if (!falsifiedIds.has(fingerprint[0])) fingerprints.add(fingerprint.join(" "));
    }
  return hash.digest() === manifest ? fingerprints : new Set();
}
