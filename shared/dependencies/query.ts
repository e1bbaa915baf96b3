import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { type AssetPlace, fingerprint } from "../inventory/asset.ts";
import { withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import type { ConsumerKind, Edge } from "./edge.ts";
import { assetPrefix, EDGES, type EdgeRecord, Edges, rangeOf, type UnitRecord, vaultPrefix } from "./rows.ts";

/** Pages of 1,000 edges that one call looks through, and so what a filter without an index costs at most. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;

export interface EdgeFilter {
  vault?: string | undefined;
  /** The asset's name. */
  secret?: string | undefined;
  /** Where the asset with the id that was asked for stands. */
  place?: AssetPlace | undefined;
  kind?: ConsumerKind | undefined;
  strength?: Edge["strength"] | undefined;
  subscription?: string | undefined;
  environment?: string | undefined;
  resolved?: boolean | undefined;
  pinned?: boolean | undefined;
  refresh?: Edge["refresh"]["how"] | undefined;
}

/** An edge, and when it was last seen. */
export interface FoundEdge {
  edge: EdgeRecord;
  seenAt: string;
}

/** What is later: when it was told, or the last reading that found it unchanged. ISO texts of one zone sort. */
export function seenEdge(edge: EdgeRecord, units: ReadonlyMap<string, UnitRecord>): FoundEdge {
  const last = edge.lastSeenAt ?? units.get(edge.unit)?.lastFullAt ?? edge.toldAt;
  return { edge, seenAt: last > edge.toldAt ? last : edge.toldAt };
}

const Cursor = z.object({
  /** Hash of the filters it belongs to. */
  f: z.string(),
  /** The last row that was looked at. */
  k: z.string().max(1024),
  /** How many matches of the offset are still to be skipped, where a call ended before. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/**
 * By vault, type and name of the asset; those that name the whole vault first. With a vault or an asset one range is read, any
 * other filter looks through at most ten pages of 1,000 a call.
 *
 * @param units - As `allUnits` answers them.
 * @throws {Problem} invalidCursor
 */
export async function listEdges(
  filter: EdgeFilter,
  request: PageRequest,
  units: ReadonlyMap<string, UnitRecord>,
  tables: Tables,
): Promise<Page<FoundEdge>> {
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  const identity = fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined));
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const { prefix, matches } = planOf(filter);
  const skip = cursor ? cursor.s : request.offset;
  const items: EdgeRecord[] = [];
  let [matched, pages, last] = [0, 0, cursor?.k];
  let [more, cut] = [false, false];
  const pageSize = matches ? PAGE_ROWS : Math.min(PAGE_ROWS, skip + request.limit + 1);
  const range = { ...rangeOf(prefix), pageSize, ...(cursor ? { after: cursor.k } : {}) };
  walk: for await (const rows of tables.pages(Edges, range)) {
    for (const row of rows) {
      if (!matches || matches(row)) {
        if (matched >= skip + request.limit) {
          more = true;
          // All that match are counted where they are looked through anyway.
          if (!matches || cursor) break walk;
        } else if (matched >= skip) items.push(withoutKeys(row));
        matched++;
      }
      if (!more) last = row.rowKey;
    }
    pages++;
    cut = matches !== undefined && pages === MAX_SCANNED_PAGES;
    if (cut) break;
  }
  const all = prefix === EDGES && !matches;
  const sum = [...units.values()].reduce((edges, unit) => edges + unit.edges, 0);
  const complete = !cursor && !cut && (matches !== undefined || !more);
  return {
    items: items.map((edge) => seenEdge(edge, units)),
    ...(all ? { total: sum } : complete ? { total: matched } : { total: null, totalAtLeast: matched + (more ? 1 : 0) }),
    limit: request.limit,
    offset: request.offset,
    nextCursor:
      (more || cut) && last !== undefined
        ? encodeCursor({ f: identity, k: last, s: Math.max(0, skip - matched) } satisfies z.infer<typeof Cursor>)
        : null,
  };
}

/** The range that serves a filter, and a test of each row for what it does not serve. */
function planOf(filter: EdgeFilter): { prefix: string; matches: ((edge: EdgeRecord) => boolean) | undefined } {
  const { place, vault, secret, kind, strength, subscription, environment, resolved, pinned, refresh } = filter;
  const tests: ((edge: EdgeRecord) => boolean)[] = [];
  const same = (wanted: string | undefined, of: (edge: EdgeRecord) => string | undefined) => {
    if (wanted !== undefined) tests.push((edge) => of(edge)?.toLowerCase() === wanted.toLowerCase());
  };
  if (place) same(vault, (edge) => edge.vaultName);
  same(secret, ({ name }) => name);
  same(kind, ({ resource }) => resource.kind);
  same(strength, (edge) => edge.strength);
  same(subscription, ({ resource }) => resource.subscriptionId);
  same(environment, ({ resource }) => resource.environment);
  same(refresh, (edge) => edge.refresh.how);
  if (resolved !== undefined) tests.push(({ state }) => state?.resolved === resolved);
  if (pinned !== undefined) tests.push((edge) => (edge.pinned !== undefined) === pinned);
  const prefix = place
    ? assetPrefix(place.vaultName, place.type, place.name)
    : vault !== undefined
      ? vaultPrefix(vault)
      : EDGES;
  return { prefix, matches: tests.length === 0 ? undefined : (edge) => tests.every((test) => test(edge)) };
}
