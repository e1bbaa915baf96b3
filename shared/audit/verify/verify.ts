import * as z from "zod";
import { decodeCursor, encodeCursor } from "../../platform/http/paging.ts";
import type { Verification } from "../api.ts";
import { digestAt } from "../chain/chain.ts";
import { type ChainState, chainState, type ReadingDependencies } from "../chain/chain-state.ts";
import { keyFingerprint, publicKeyText } from "../chain/signing.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import { firstInterval } from "../seal/first-interval.ts";
import { storedEntries } from "../stored-entries.ts";
import { checkChain } from "./check-chain.ts";
import { createIndexCheck } from "./check-index.ts";
import { checkMarks } from "./check-marks.ts";
import { createFindingList, type FindingList } from "./finding-list.ts";
import { createLateCheck } from "./late-entries.ts";
import { findUnexpectedRows } from "./unexpected-rows.ts";

/** Maximum work of one call, so that it ends well within the platform's limit of 230 seconds. */
export const VERIFY_LIMITS = { entries: 200_000, intervals: 20_000 };

const Cursor = z.object({ from: z.string().refine(isIntervalName), end: z.int().nullable() });

/** The sealed intervals to check: all that overlap `start <= instant < end`. */
export interface VerifyRequest {
  start?: Date | undefined;
  end?: Date | undefined;
  cursor?: string | undefined;
}

/**
 * Checks the chain of digests, and compares every entry with its sealed fingerprint and the index with the entries, interval by
 * interval. The first response also reports changes outside the requested intervals.
 *
 * @throws {Problem} invalidCursor
 */
export async function verifySealed(
  deps: ReadingDependencies,
  request: VerifyRequest,
  limits: { entries: number; intervals: number } = VERIFY_LIMITS,
): Promise<Verification> {
  const { tables, clock, trust } = deps;
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  const state = await chainState(deps);
  const { end, purges, keptFrom = 0 } = state;
  const found = createFindingList();

  const asked = cursor ? intervalFrom(cursor.from) : request.start ? intervalOf(request.start.getTime()) : keptFrom;
  const from = Math.max(keptFrom, asked);
  const until = (cursor ? cursor.end : request.end?.getTime()) ?? Number.POSITIVE_INFINITY;
  const newest = end?.interval ?? Number.NEGATIVE_INFINITY;
  const last = Math.min(newest, Number.isFinite(until) ? intervalOf(until - 1) : Number.POSITIVE_INFINITY);
  const range = { from, to: Math.max(from, last + INTERVAL_MS) };

  if (!cursor) found.add(...(await findUnexpectedRows(deps, state)));
  const anchor = await checkAnchor(deps, state, found);
  const index = createIndexCheck(tables);
  const late = createLateCheck();
  const stored = late.watch(index.watch(storedEntries(tables, range)));
  const checked = await checkChain(tables, state, { from, last }, stored, found, limits);
  // Entries of intervals without a valid digest were skipped.
  for await (const page of stored) if (checked.more && page.at(-1)!.interval >= checked.to) break;
  const done = { from, to: checked.more ? checked.to : range.to };
  await checkMarks(tables, done, found);
  const compared = await index.check(done, found);
  const nothing = done.to === done.from;

  return {
    intact: found.total === 0,
    sealing: trust.signer ? "configured" : "notConfigured",
    checkedFrom: nothing ? null : new Date(done.from).toISOString(),
    checkedTo: nothing ? null : new Date(done.to).toISOString(),
    digests: checked.digests,
    entries: checked.entries,
    lastDigest: checked.lastDigest,
    index: compared,
    findings: found.listed,
    findingsTotal: found.total,
    lateEntries: late.until(done.to),
    beginning: state.beginning ? new Date(intervalFrom(state.beginning.interval)).toISOString() : null,
    unsealedFrom: instant(end ? end.interval + INTERVAL_MS : await firstInterval(tables, clock)),
    purges: purges.records
      .map(({ record }) => record)
      .filter((record) => intervalFrom(record.to) > asked || asked === keptFrom)
      .filter((record) => intervalFrom(record.from) < until),
    anchor,
    publicKeys: [...state.keys].map(([kid, key]) => ({
      kid,
      publicKey: publicKeyText(key),
      fingerprint: keyFingerprint(key),
    })),
    nextCursor: checked.more
      ? encodeCursor({ from: intervalName(checked.to), end: Number.isFinite(until) ? until : null })
      : null,
  };
}

const instant = (interval: Interval | undefined): string | null =>
  interval === undefined ? null : new Date(interval).toISOString();

/** Detects that all tables were restored to an earlier state together: the digest in the key vault is newer. */
async function checkAnchor(
  deps: ReadingDependencies,
  state: ChainState,
  found: FindingList,
): Promise<Verification["anchor"]> {
  const { remembered, keptFrom = 0, end } = state;
  if (!deps.anchor) return { state: "notConfigured" };
  if (!remembered) return { state: "empty" };
  if (remembered === "unreadable") return { state: "unreadable" };
  const { number, interval, hash } = remembered;
  if (intervalFrom(interval) < keptFrom) return { state: "matches", number, interval, hash };
  const inTables = await digestAt(deps.tables, interval, state.keys);
  if (inTables?.hash === hash) return { state: "matches", number, interval, hash };
  found.add({
    kind: "digestsCut",
    interval,
    digestNumber: number,
    detail: inTables
      ? `The key vault remembers another digest ${number} than the tables hold.`
      : `The key vault remembers digest ${number}; the tables end with ${end ? `digest ${end.number}` : "none"}. Every digest and entry between was cut off.`,
  });
  return { state: "differs", number, interval, hash };
}
