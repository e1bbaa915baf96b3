import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { requiredSince } from "./chain/authenticated-from.ts";
import { chainEnd, oldestBeginning, purgedEnd } from "./chain/chain.ts";
import { isAuthentic } from "./chain/check-authenticity.ts";
import { purgedTo, readPurges } from "./chain/purge-record.ts";
import type { Trust } from "./chain/trust.ts";
import { type Interval, intervalFrom } from "./interval.ts";
import type { StoredEntry } from "./stored-entries.ts";
import { entriesEnd } from "./verify/check-unsealed.ts";

/** What a list shows of the log: entries within its time range that this service wrote. */
export interface Span {
  /** Start of the first interval that is not purged. Undefined if nothing is sealed. */
  from: Interval | undefined;
  /** Time before which all entries are. Infinity without keys, because then nothing is verified. */
  to: number;
  /**
   * Returns false for a changed or inserted entry. Sealed entries whose key is no longer configured are accepted: verification compares
   * them with their digest.
   */
  isAuthentic(row: Pick<StoredEntry, "interval" | "rowKey" | "text" | "link" | "mac">): boolean;
}

/** How long a process uses the span that it read. */
const KEPT_MS = MINUTE_MS;

/** Creates the reader of the span. Costs four requests a minute, and one more in a log without digests. */
export function createSpan(deps: { tables: Tables; clock: Clock; trust: Trust }): () => Promise<Span> {
  const { tables, clock, trust } = deps;
  /** The last read bounds of the span, and until when this process uses them. */
  let kept: { until: number; bounds: ReturnType<typeof readBounds> } | undefined;

  async function readBounds() {
    const keys = await trust.keys();
    const chainDeps = { tables, clock, keys };
    const purges = await readPurges(tables, keys);
    const end = (await chainEnd(chainDeps)) ?? purgedEnd(purges);
    const beginning = end?.beginning ?? (end && (await oldestBeginning(chainDeps, purges)));
    const from = purgedTo(purges) ?? (beginning && intervalFrom(beginning.interval));
    const authenticatedFrom = await requiredSince(tables, keys, end);
    return { from, authenticatedFrom, newest: end?.interval };
  }

  return async () => {
    const now = clock.now().getTime();
    // Also read again if the clock was set back.
    if (!kept || now >= kept.until || now < kept.until - KEPT_MS) {
      const bounds = readBounds();
      kept = { until: now + KEPT_MS, bounds };
      bounds.catch(() => {
        kept = undefined;
      });
    }
    const { from, authenticatedFrom, newest } = await kept.bounds;
    const { authentication } = trust;
    return {
      from,
      to: trust.signer ? entriesEnd(now, newest) : Number.POSITIVE_INFINITY,
      isAuthentic(row) {
        const acceptsUnknownKeys = newest !== undefined && row.interval <= newest;
        return isAuthentic({ authentication, authenticatedFrom, acceptsUnknownKeys }, row);
      },
    };
  };
}
