import * as z from "zod";
import { decodeCursor, encodeCursor } from "../../platform/http/paging.ts";
import type { Verification } from "../api.ts";
import { digestAt } from "../chain/chain.ts";
import { type ChainState, chainState, type ReadingDependencies } from "../chain/chain-state.ts";
import { keyFingerprint, publicKeyText } from "../chain/signing.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import { storedEntries } from "../stored-entries.ts";
import { checkChain } from "./check-chain.ts";
import { createIndexCheck } from "./check-index.ts";
import { checkMarks } from "./check-marks.ts";
import { checkUnsealed, unsealedRange } from "./check-unsealed.ts";
import { createFindingList, type FindingList } from "./finding-list.ts";
import { createLateCheck } from "./late-entries.ts";
import { findUnexpectedRows } from "./unexpected-rows.ts";

/**
 * Verifies the audit log in the service. Sealing signs a digest for each ten-minute interval, over the fingerprints (id and
 * hash) of its entries. The anchor is the copy of the newest digest in the service's own key vault.
 */

/** Maximum work of one call, so that it ends well within the platform's limit of 230 seconds. */
export const VERIFY_LIMITS = { entries: 200_000, intervals: 20_000 };

/** The next interval to check, and the end of the period in milliseconds, null for none. */
const Cursor = z.object({ from: z.string().refine(isIntervalName), end: z.int().nullable() });

/** The intervals to check: all that overlap `start <= instant < end`. */
export interface VerifyRequest {
  start?: Date | undefined;
  end?: Date | undefined;
  cursor?: string | undefined;
}

/**
 * Verifies the sealed intervals of a period. It checks the chain of digests, the fingerprints of the entries, the marks (rows
 * that close an interval for writers), and the index that lists use. The last response also verifies the entries of the period
 * that are not sealed yet, by their authentication codes. If the limits are reached, the response has a cursor for the next
 * intervals. The first response also reports changed rows outside the requested intervals.
 *
 * @throws {Problem} invalidCursor
 */
export async function verifyLog(
  deps: ReadingDependencies,
  request: VerifyRequest,
  limits: { entries: number; intervals: number } = VERIFY_LIMITS,
): Promise<Verification> {
  const { tables, trust } = deps;
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  const state = await chainState(deps);
  const { end, purges, keptFrom = 0 } = state;
  const findings = createFindingList();

  const requestedFrom = cursor
    ? intervalFrom(cursor.from)
    : request.start
      ? intervalOf(request.start.getTime())
      : keptFrom;
  const from = Math.max(keptFrom, requestedFrom);
  /** End of the period in milliseconds, infinite without one. */
  const periodEnd = (cursor ? cursor.end : request.end?.getTime()) ?? Number.POSITIVE_INFINITY;
  const newest = end?.interval ?? Number.NEGATIVE_INFINITY;
  const lastInterval = Math.min(
    newest,
    Number.isFinite(periodEnd) ? intervalOf(periodEnd - 1) : Number.POSITIVE_INFINITY,
  );
  const range = { from, to: Math.max(from, lastInterval + INTERVAL_MS) };

  if (!cursor) findings.add(...(await findUnexpectedRows(deps, state)));
  const anchor = await checkAnchor(deps, state, findings);
  const index = createIndexCheck(tables);
  const late = createLateCheck();
  const stored = late.recordFrom(index.recordFrom(storedEntries(tables, range)));
  const checked = await checkChain(tables, state, { from, last: lastInterval }, stored, findings, limits);
  // Reads the remaining pages, so that the checks of the index and of late entries get the entries of intervals without a
  // digest.
  for await (const page of stored) if (checked.more && page.at(-1)!.interval >= checked.to) break;
  const checkedRange = { from, to: checked.more ? checked.to : range.to };
  await checkMarks(tables, checkedRange, findings);
  const indexCoverage = await index.check(checkedRange, findings);
  const unsealed = await unsealedRange(deps, state);
  let inUnsealed = { entries: 0, withoutCode: 0 };
  if (!checked.more && trust.signer && unsealed) {
    const range = {
      from: Math.max(unsealed.from, intervalOf(requestedFrom)),
      to: Math.min(unsealed.to, Number.isFinite(periodEnd) ? intervalOf(periodEnd - 1) + INTERVAL_MS : unsealed.to),
    };
    inUnsealed = await checkUnsealed(deps, state, range, findings, { index: true });
  }
  const isEmpty = checkedRange.to === checkedRange.from;

  return {
    intact: findings.total === 0,
    sealing: trust.signer ? "configured" : "notConfigured",
    checkedFrom: isEmpty ? null : new Date(checkedRange.from).toISOString(),
    checkedTo: isEmpty ? null : new Date(checkedRange.to).toISOString(),
    digests: checked.digests,
    entries: checked.entries,
    lastDigest: checked.lastDigest,
    index: indexCoverage,
    findings: findings.listed,
    findingsTotal: findings.total,
    lateEntries: late.until(checkedRange.to),
    beginning: state.beginning ? new Date(intervalFrom(state.beginning.interval)).toISOString() : null,
    unsealedFrom: instant(unsealed?.from),
    unsealedEntries: inUnsealed.entries,
    entriesWithoutCode: checked.withoutCode + inUnsealed.withoutCode,
    authenticatedFrom: instant(state.authenticatedFrom),
    // The purges in the period; for a period from the first interval that is not purged, also the earlier ones.
    purges: purges.records
      .map(({ record }) => record)
      .filter((record) => intervalFrom(record.to) > requestedFrom || requestedFrom === keptFrom)
      .filter((record) => intervalFrom(record.from) < periodEnd),
    anchor,
    publicKeys: [...state.keys].map(([kid, key]) => ({
      kid,
      publicKey: publicKeyText(key),
      fingerprint: keyFingerprint(key),
    })),
    nextCursor: checked.more
      ? encodeCursor({ from: intervalName(checked.to), end: Number.isFinite(periodEnd) ? periodEnd : null })
      : null,
  };
}

const instant = (interval: Interval | undefined): string | null =>
  interval === undefined ? null : new Date(interval).toISOString();

/**
 * Compares the anchor with the tables. So verification detects if all tables were restored to an earlier state: the anchor
 * names a newer digest.
 */
async function checkAnchor(
  deps: ReadingDependencies,
  state: ChainState,
  findings: FindingList,
): Promise<Verification["anchor"]> {
  const { anchorState, keptFrom = 0, end } = state;
  if (!deps.anchor) return { state: "notConfigured" };
  if (!anchorState) return { state: "empty" };
  if (anchorState === "unreadable") return { state: "unreadable" };
  const { number, interval, hash } = anchorState;
  // The digest was purged, so the anchor can't be compared with it.
  if (intervalFrom(interval) < keptFrom) return { state: "matches", number, interval, hash };
  const inTables = await digestAt(deps.tables, interval, state.keys);
  if (inTables?.hash === hash) return { state: "matches", number, interval, hash };
  findings.add({
    kind: "digestsCut",
    interval,
    digestNumber: number,
    detail: inTables
      ? `The key vault names a different digest ${number} than the tables contain.`
      : `The key vault names digest ${number} as the newest, but the tables end with ${end ? `digest ${end.number}` : "no digest"}. The later digests and their entries were removed.`,
  });
  return { state: "differs", number, interval, hash };
}
