import { type AssetLocation, fingerprint } from "../inventory/asset.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { ConsumerKind, Edge } from "./edge.ts";
import { assetPrefix, EDGES, type EdgeRecord, Edges, rangeOf, type UnitRecord, vaultPrefix } from "./rows.ts";

/** Filter of the list of dependencies. Undefined members do not filter. */
export interface EdgeFilter {
  vault?: string | undefined;
  /** Name of the asset. */
  secret?: string | undefined;
  /** The asset whose ID was requested. Dependencies on its whole vault do not match. */
  asset?: AssetLocation | undefined;
  kind?: ConsumerKind | undefined;
  strength?: Edge["strength"] | undefined;
  subscription?: string | undefined;
  environment?: string | undefined;
  resolved?: boolean | undefined;
  pinned?: boolean | undefined;
  refresh?: Edge["refresh"]["how"] | undefined;
}

/** A dependency and when it was last confirmed. */
export interface FoundEdge {
  edge: EdgeRecord;
  seenAt: string;
}

/**
 * Returns the dependency with the time of its last confirmation: for `observed`, the day of the last read. Otherwise the later
 * of its own last change and the last run that found it unchanged. ISO texts of one time zone sort by time.
 *
 * @param units - Result of `readUnits`: the parts of the sources, such as subscriptions, with the time of their last full run.
 */
export function withSeenAt(edge: EdgeRecord, units: ReadonlyMap<string, UnitRecord>): FoundEdge {
  if (edge.lastReadOn !== undefined) return { edge, seenAt: `${edge.lastReadOn}T00:00:00.000Z` };
  // `toldAt` is the time when the dependency was last written. `lastSeenAt` is set while its resource can't be read.
  const unchangedAt = edge.lastSeenAt ?? units.get(edge.unit)?.lastFullAt ?? edge.toldAt;
  return { edge, seenAt: unchangedAt > edge.toldAt ? unchangedAt : edge.toldAt };
}

/**
 * Lists dependencies by vault, type and name of the asset, those on whole vaults first. A filter by `vault` or `asset` reads
 * one range of keys. Any other filter reads at most ten pages of 1,000 per call.
 *
 * @param units - Result of `readUnits`.
 * @throws {Problem} invalidCursor
 */
export async function listEdges(
  filter: EdgeFilter,
  request: PageRequest,
  units: ReadonlyMap<string, UnitRecord>,
  tables: Tables,
): Promise<Page<FoundEdge>> {
  const { prefix, matches } = rangeAndTest(filter);
  const isUnfiltered = prefix === EDGES && !matches;
  const page = await filteredPage<Row<EdgeRecord>>(request, {
    filters: fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined)),
    matches,
    pages: (range) => tables.pages(Edges, { ...rangeOf(prefix), ...range }),
    total: isUnfiltered ? [...units.values()].reduce((edges, unit) => edges + unit.edges, 0) : undefined,
  });
  return { ...page, items: page.items.map((edge) => withSeenAt(withoutKeys(edge), units)) };
}

/** Returns the range for a filter, and a test for the parts of the filter that the range does not cover. */
function rangeAndTest(filter: EdgeFilter): { prefix: string; matches: ((edge: EdgeRecord) => boolean) | undefined } {
  const { asset, vault, secret, kind, strength, subscription, environment, resolved, pinned, refresh } = filter;
  const tests: ((edge: EdgeRecord) => boolean)[] = [];
  const addTest = (wanted: string | undefined, memberOf: (edge: EdgeRecord) => string | undefined) => {
    if (wanted !== undefined) tests.push((edge) => memberOf(edge)?.toLowerCase() === wanted.toLowerCase());
  };
  // Without `asset` the range covers exactly the vault, so the vault needs no test.
  if (asset) addTest(vault, (edge) => edge.vaultName);
  addTest(secret, ({ name }) => name);
  addTest(kind, ({ resource }) => resource.kind);
  addTest(strength, (edge) => edge.strength);
  addTest(subscription, ({ resource }) => resource.subscriptionId);
  addTest(environment, ({ resource }) => resource.environment);
  addTest(refresh, (edge) => edge.refresh.how);
  if (resolved !== undefined) tests.push(({ state }) => state?.resolved === resolved);
  if (pinned !== undefined) tests.push((edge) => (edge.pinned !== undefined) === pinned);
  const prefix = asset
    ? assetPrefix(asset.vaultName, asset.type, asset.name)
    : vault !== undefined
      ? vaultPrefix(vault)
      : EDGES;
  return { prefix, matches: tests.length === 0 ? undefined : (edge) => tests.every((test) => test(edge)) };
}
