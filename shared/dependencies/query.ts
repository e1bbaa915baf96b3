import { type AssetPlace, fingerprint } from "../inventory/asset.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { ConsumerKind, Edge } from "./edge.ts";
import { assetPrefix, EDGES, type EdgeRecord, Edges, rangeOf, type UnitRecord, vaultPrefix } from "./rows.ts";

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

/** Of one that a log has seen the day of its last read. Else what is later: when it was told, or the last reading that found it unchanged. ISO texts of one zone sort. */
export function seenEdge(edge: EdgeRecord, units: ReadonlyMap<string, UnitRecord>): FoundEdge {
  if (edge.lastReadOn !== undefined) return { edge, seenAt: `${edge.lastReadOn}T00:00:00.000Z` };
  const last = edge.lastSeenAt ?? units.get(edge.unit)?.lastFullAt ?? edge.toldAt;
  return { edge, seenAt: last > edge.toldAt ? last : edge.toldAt };
}

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
  const { prefix, matches } = planOf(filter);
  const all = prefix === EDGES && !matches;
  const page = await filteredPage<Row<EdgeRecord>>(request, {
    filters: fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined)),
    matches,
    pages: (range) => tables.pages(Edges, { ...rangeOf(prefix), ...range }),
    total: all ? [...units.values()].reduce((edges, unit) => edges + unit.edges, 0) : undefined,
  });
  return { ...page, items: page.items.map((edge) => seenEdge(withoutKeys(edge), units)) };
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
