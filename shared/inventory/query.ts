import pMap from "p-map";
import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Range, Tables } from "../platform/storage/tables.ts";
import { sum } from "../platform/sum.ts";
import {
  ASSET_TYPES,
  type AssetRecord,
  type AssetSource,
  Assets,
  type AssetType,
  fingerprint,
  locationsOf,
  sourceOf,
} from "./asset.ts";
import {
  expiryBounds,
  expiryKey,
  expiryPrefix,
  lateBounds,
  nameKey,
  namePrefix,
  partitions,
  RENEWED,
} from "./asset-keys.ts";
import { END_OF_TIME, type ExpiryRange, intersect, type Moment, STATUSES, type Status } from "./asset-status.ts";
import { detailsReadAt } from "./details.ts";
import { b2cTenantOf, type CountingContext, exclusionReason, type NotCounted, ownersOf } from "./holder.ts";
import { statusOfAsset } from "./renewal.ts";
import { readScope } from "./scope.ts";
import { type AssetSummary, type SummaryFilter, summaryOf } from "./summary.ts";
import { forEachType, VAULTS, type VaultRecord, Vaults, vaultKey } from "./vault.ts";
import {
  type CountedGroups,
  type CountQuery,
  countMatching,
  countWithStatus,
  groupKey,
  hiddenGroups,
  keyOfGroup,
  rangeOfQuery,
  readGroups,
  subscriptionOf,
} from "./vault-counts.ts";

/**
 * Queries of assets for the API and for metrics: lists, a single asset, and counts. For a credential of a directory, its
 * *holder* takes the place of the vault (holder.ts).
 *
 * A list is read from an index, by name or by expiry, with one range of rows per asset type. The ranges are merged in
 * order. Certificates with a renewal plan have indexes of their own (asset-keys.ts), which are read only if there are any.
 * Filters that no index covers are applied to the rows as they are read. A *group* is one vault, or all vaults of a
 * subscription, with the numbers of their assets (vault-counts.ts).
 */

/** Maximum number of pages of 1,000 rows that one call reads for filters without an index. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;
/** Number of vault rows that are read concurrently, for the last listings that the totals don't contain. */
const MAX_CONCURRENT_READS = 8;

/** Filter and order of a list of assets. Absent members do not filter. */
export interface AssetFilter {
  type?: AssetType;
  status?: Status;
  vault?: string;
  subscription?: string;
  source?: AssetSource;
  /** Only credentials of this B2C tenant. */
  b2cTenant?: string;
  /** True: only assets that count. False: only assets excluded from counts and the score. */
  counted?: boolean;
  /**
   * True: only assets whose subscription left the scope. False: none of them. If neither this nor `counted` is given: counted
   * assets and those out of scope, but no asset that is excluded for another reason.
   */
  outOfScope?: boolean;
  /** Expires before this time. Assets without an expiry never match. */
  expiresBefore?: Date;
  expiresAfter?: Date;
  search?: string;
  /** The start of the name, ignoring case. The index by name covers it: only matching rows are read, and only for one page. */
  namePrefix?: string;
  enabled?: boolean;
  tag?: { name: string; value?: string };
  owner?: string;
  /** True: only assets with an owner. False: only assets without one. */
  hasOwner?: boolean;
  sort?: "name" | "expiresOn";
}

/** An asset with data of its vault, such as when it was last seen. */
export interface FoundAsset {
  asset: AssetRecord;
  lastSeenAt: string | undefined;
  /** When its details were read. Undefined if unknown, and in lists. */
  detailsReadAt?: string | undefined;
  /** Why the asset is excluded from counts and the score. Undefined if it counts, or if its vault is unknown. */
  notCounted: NotCounted | undefined;
  /** When the vault's subscription left the scope, ISO 8601. Undefined if it is in scope. */
  outOfScopeSince: string | undefined;
  subscriptionName: string | undefined;
}

const Cursor = z.object({
  /** Hash of the filters for which the cursor is valid. */
  f: z.string(),
  /** Sort key of the last row examined for the page. */
  k: z.string().max(1024),
  /** Type of that row. */
  t: z.enum(ASSET_TYPES),
  /** Remaining number of matches to skip for the offset, if the previous call stopped at its limit. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
  /** The moment of the first page, which decides the statuses on all pages. */
  m: z.object({ now: z.number(), criticalDays: z.number(), warningDays: z.number() }),
});

/** Numbers of assets and vaults. */
export interface InventoryCounts {
  /** Numbers of counted assets by type and status. */
  assets: Record<AssetType, Record<Status, number>>;
  /** Number of key vaults in scope. */
  vaults: number;
  /** Vaults none of whose lists the last scan could read. */
  unreadable: number;
  /** Returns whether a vault is out of scope, or a holder's credentials are excluded, at this time. */
  isExcluded(vault: Pick<VaultRecord, "name" | "subscriptionId">): boolean;
}

/**
 * Queries of assets. Their cost does not grow with the number of assets, only with the numbers of vaults and of skipped rows.
 */
export interface AssetQueries {
  /**
   * Lists assets that match the filter, by name or expiry. Up to two requests per type and page of 1,000 skipped rows, and one
   * for the totals. With the status `warning` or `critical`, also one request per 1,000 late or expired certificates with a
   * renewal plan. If the totals are insufficient, also one per 1,000 vaults.
   *
   * @param moment - Decides the statuses. A cursor contains the moment of the first page, which is then used instead.
   * @throws {Problem} invalidCursor for a cursor of other filters; invalidRequest for an order that the filter excludes.
   */
  list(filter: AssetFilter, request: PageRequest, moment: Moment): Promise<Page<FoundAsset>>;
  /** Returns one asset by ID, or undefined. Three point reads, up to five for a credential. */
  get(id: string, moment: Pick<Moment, "now">): Promise<FoundAsset | undefined>;
  /** Returns counts of the inventory. One request for the totals. If they are insufficient, also one per 1,000 vaults. */
  figures(moment: Moment): Promise<InventoryCounts>;
  /**
   * Returns a summary of counted assets that match the filter. One request per 1,000 vaults, one for changes, and up to three
   * for the assets that expire next.
   */
  summary(filter: SummaryFilter, moment: Moment): Promise<AssetSummary>;
}

export function createAssetQueries(deps: {
  tables: Tables;
  ownerTag: string;
  /** Returns whether a PRO license is present. */
  licensed: () => Promise<boolean>;
}): AssetQueries {
  const { tables, ownerTag, licensed } = deps;

  // Counts the matches of each type, opens a stream of rows for each type, and merges the streams until the page is full.
  async function list(requested: AssetFilter, request: PageRequest, moment: Moment): Promise<Page<FoundAsset>> {
    // Reads the partition of the B2C tenants only, and not those of all assets.
    const filter: AssetFilter =
      requested.b2cTenant === undefined ? requested : { ...requested, source: requested.source ?? "b2c" };
    const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
    const identity = fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined));
    if (cursor && cursor.f !== identity) {
      throw new Problem(
        "invalidCursor",
        "This cursor belongs to other filters. Send the same filters with it, or start without it.",
      );
    }
    const pageMoment = cursor?.m ?? moment;
    const query: CountQuery = { moment: pageMoment, status: filter.status, dates: datesOf(filter) };
    const range = rangeOfQuery(query);
    const byExpiry = range !== undefined || filter.sort === "expiresOn";
    if (range && filter.sort === "name") {
      const message = "can't be used with status, expiresBefore or expiresAfter, whose order is by expiry";
      throw new Problem("invalidRequest", `The parameter sort=name ${message}.`, {
        errors: [{ path: "query.sort", message }],
      });
    }
    const totals = await readGroups(
      tables,
      { vault: filter.vault, subscription: subscriptionOf(filter) },
      range ? [query] : [],
    );
    const countingContext = { now: pageMoment.now, licensed: await licensed(), scope: totals.scope };
    const groups = new Set(
      totals.groups.filter(
        (group) =>
          (filter.source === undefined || sourceOf(group) === filter.source) &&
          isWanted(exclusionReason(group, countingContext), filter),
      ),
    );
    const types = filter.type ? [filter.type] : ASSET_TYPES;
    const counts = new Map(
      types.map((type) => {
        const matching = [...groups].map((group) => countMatching(group, type, query));
        const withoutPlan = sum(matching, (count) => count.withoutPlan);
        return [type, { withoutPlan, withPlan: sum(matching, (count) => count.withPlan) }];
      }),
    );
    const indexedTotal = sum([...counts.values()], ({ withoutPlan, withPlan }) => withoutPlan + withPlan);
    // Includes the groups that the filter excludes, because their assets are in the same partition.
    const hasPlans = types.includes("certificate") && totals.groups.some(({ withPlan }) => withPlan !== undefined);
    const matchesUnindexed = unindexedFilter(filter, ownerTag);
    // Groups whose assets must be filtered out while rows are read, because they are in the same partition.
    const hidden = hiddenGroups(totals.groups, groups, types);
    const matches =
      hidden.size === 0
        ? matchesUnindexed
        : (asset: AssetRecord) => !hidden.has(groupKey(asset)) && (!matchesUnindexed || matchesUnindexed(asset));
    const subscription = subscriptionOf(filter);
    const partitionKey =
      filter.vault !== undefined
        ? partitions.vault(filter.vault)
        : subscription
          ? partitions.subscription(subscription)
          : partitions.all;
    const isEmptyRange = range && range.before <= range.from && !range.unset;
    // The streams of all types share this number of pages that they may still read.
    const budget = { pages: matches ? MAX_SCANNED_PAGES : Number.POSITIVE_INFINITY };
    const skipCount = cursor ? cursor.s : request.offset;
    const pageEnd = skipCount + request.limit;
    const maxRows = pageEnd + 1;
    // How many rows a stream requests. If rows are filtered out as they are read, it is unknown how many a page needs.
    const rowsOf = (count: number) =>
      matches
        ? { first: PAGE_ROWS, most: Number.POSITIVE_INFINITY }
        : { first: firstPageSize(maxRows, count / indexedTotal), most: maxRows };
    const streams: Stream[] = [];
    const source = { tables, partitionKey, cursor, budget };
    if (indexedTotal !== 0 && !isEmptyRange)
      for (const type of types) {
        const { withoutPlan, withPlan } = counts.get(type)!;
        streams.push(
          openStream(
            source,
            type,
            byExpiry ? expiryIndex(type, range) : nameIndex(type, filter.namePrefix),
            rowsOf(byExpiry ? withoutPlan : withoutPlan + withPlan),
          ),
        );
      }
    if (indexedTotal !== 0 && byExpiry && hasPlans) {
      const rows = rowsOf(counts.get("certificate")!.withPlan);
      const isLateStatus = filter.status === "warning" || filter.status === "critical";
      streams.push(
        isLateStatus
          ? openLateStream(source, query, rows.most)
          : openStream(source, "certificate", withPlanIndex(query), rows),
      );
    }

    // Counting the matches reads rows beyond the page. The search by the start of a name doesn't show their number.
    const countsMatches = matchesUnindexed && !cursor && filter.namePrefix === undefined;
    const items: AssetRecord[] = [];
    let matchedCount = 0;
    let lastHeadOnPage: Head | undefined;
    let hasMore = false;
    for await (const head of mergeStreams(streams)) {
      if (!matches || matches(head.row)) {
        if (matchedCount >= pageEnd) {
          hasMore = true;
          if (!countsMatches) break;
        } else if (matchedCount >= skipCount) items.push(head.row);
        matchedCount++;
      }
      // Also a row that doesn't match, so that the next page doesn't examine it again.
      if (matchedCount <= pageEnd && !hasMore) lastHeadOnPage = head;
    }
    const isCutShort = streams.some((one) => one.isCut);
    return {
      items: await pMap(
        items,
        async (asset) => toFoundAsset(asset, await findVaultOf(asset, totals), countingContext),
        { concurrency: MAX_CONCURRENT_READS },
      ),
      ...(!matchesUnindexed
        ? { total: indexedTotal }
        : cursor || isCutShort || (hasMore && !countsMatches)
          ? { total: null, totalAtLeast: matchedCount }
          : { total: matchedCount }),
      limit: request.limit,
      offset: request.offset,
      nextCursor:
        (hasMore || isCutShort) && lastHeadOnPage
          ? encodeCursor({
              f: identity,
              k: lastHeadOnPage.key,
              t: lastHeadOnPage.type,
              m: pageMoment,
              s: Math.max(0, skipCount - matchedCount),
            } satisfies z.infer<typeof Cursor>)
          : null,
    };
  }

  return {
    list,

    async get(id, { now }) {
      const locations = locationsOf(id);
      const [first] = locations;
      if (!first) return undefined;
      const [scope, vault, ...assets] = await Promise.all([
        readScope(tables),
        tables.get(Vaults, VAULTS, vaultKey(first.vaultName)),
        ...locations.map(({ vaultName, type, name }) =>
          tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
        ),
      ]);
      const asset = assets.find((one) => one !== undefined);
      if (!asset) return undefined;
      const assetWithVaultData = toFoundAsset(asset, vault, { now, licensed: await licensed(), scope });
      return { ...assetWithVaultData, detailsReadAt: vault && detailsReadAt(asset, vault) };
    },

    async figures(moment) {
      const { groups, scope } = await readGroups(
        tables,
        {},
        STATUSES.map((status) => ({ moment, status })),
      );
      const countingContext = { now: moment.now, licensed: await licensed(), scope };
      const counted = groups.filter((group) => exclusionReason(group, countingContext) === undefined);
      const excluded = new Set(
        groups.filter((group) => exclusionReason(group, countingContext) !== undefined).map(keyOfGroup),
      );
      const vaults = counted.filter((group) => sourceOf(group) === "keyVault");
      return {
        assets: forEachType((type) => {
          const counts = STATUSES.map((status) => [
            status,
            sum(counted, (group) => countWithStatus(group, type, status, moment)),
          ]);
          return Object.fromEntries(counts) as Record<Status, number>;
        }),
        vaults: sum(vaults, (group) => group.vaults),
        unreadable: sum(vaults, (group) => group.unreadable),
        isExcluded: ({ name, subscriptionId }) =>
          excluded.has(subscriptionId.toLowerCase()) || excluded.has(name.toLowerCase()),
      };
    },

    async summary(filter, moment) {
      return await summaryOf(filter, moment, { tables, ownerTag, licensed: await licensed() });
    },
  };
}

/** Returns the vault's or holder's data in an asset's response. */
async function findVaultOf(
  { source, subscriptionId, vaultName, type }: AssetRecord,
  totals: CountedGroups,
): Promise<Pick<VaultRecord, "source" | "listedAt" | "subscriptionId"> | undefined> {
  // Each holder is a group of its own, because the stored totals count only vaults. So its group has its name.
  if (sourceOf({ source }) !== "keyVault")
    return totals.groups.find(({ name }) => name?.toLowerCase() === vaultName.toLowerCase());
  return { subscriptionId, listedAt: { [type]: await totals.listedAt(vaultName, type) } };
}

/**
 * Returns whether the filter includes vaults with this reason for exclusion. By default the filter includes counted and
 * out-of-scope vaults, but none that are excluded for another reason.
 */
function isWanted(reason: NotCounted | undefined, { counted, outOfScope }: AssetFilter): boolean {
  const isOut = reason === "outOfScope";
  if (outOfScope !== undefined && isOut !== outOfScope) return false;
  return counted === undefined ? reason === undefined || isOut : (reason === undefined) === counted;
}

function toFoundAsset(
  asset: AssetRecord,
  vault: Pick<VaultRecord, "source" | "listedAt" | "subscriptionId"> | undefined,
  countingContext: CountingContext,
): FoundAsset {
  const listedAt = vault?.listedAt[asset.type];
  // A credential that a later discovery of changes found was last seen then.
  const lastSeenAt = asset.credential && listedAt && listedAt < asset.firstSeenAt ? asset.firstSeenAt : listedAt;
  const isOfVault = sourceOf(asset) === "keyVault";
  return {
    asset,
    lastSeenAt,
    notCounted: vault && exclusionReason(vault, countingContext),
    outOfScopeSince: isOfVault ? countingContext.scope.leftAt(asset.subscriptionId) : undefined,
    subscriptionName: isOfVault ? countingContext.scope.nameOf(asset.subscriptionId) : undefined,
  };
}

/**
 * Returns the number of rows of one type to request first, from its share of all wanted rows. The types are mixed at random, so
 * two standard deviations of a binomial distribution are added. If that is too few, one more request follows.
 */
function firstPageSize(rowsWanted: number, share: number): number {
  // Clamp: counts can be wrong briefly during an upgrade, because earlier versions change vaults without marking them for the
  // totals.
  const clampedShare = Math.min(1, Math.max(0, share));
  const expected = clampedShare * rowsWanted;
  return Math.min(rowsWanted, Math.ceil(expected + 2 * Math.sqrt(expected * (1 - clampedShare))) + 1);
}

/**
 * Returns the range of expiries that matches `expiresBefore` and `expiresAfter`. Undefined if neither is given. Expiries are
 * whole seconds and both bounds are exclusive, so a bound within a second is rounded to the next one.
 */
function datesOf(filter: AssetFilter): ExpiryRange | undefined {
  const ranges: ExpiryRange[] = [];
  if (filter.expiresBefore) {
    ranges.push({ from: 0, before: Math.ceil(filter.expiresBefore.getTime() / 1000), unset: false });
  }
  if (filter.expiresAfter) {
    ranges.push({ from: Math.floor(filter.expiresAfter.getTime() / 1000) + 1, before: END_OF_TIME, unset: false });
  }
  return ranges.length === 0 ? undefined : ranges.reduce(intersect);
}

/** Returns a predicate for the filters that have no index. Undefined if none of them is given. */
function unindexedFilter(filter: AssetFilter, ownerTag: string): ((asset: AssetRecord) => boolean) | undefined {
  const tests: ((asset: AssetRecord) => boolean)[] = [];
  const { search, b2cTenant, enabled, tag, owner, hasOwner } = filter;
  if (search !== undefined) {
    const text = search.toLowerCase();
    tests.push(({ name, credential }) =>
      [name, credential?.displayName, credential?.applicationName].some((one) => one?.toLowerCase().includes(text)),
    );
  }
  if (b2cTenant !== undefined) tests.push(({ vaultName }) => b2cTenantOf(vaultName.toLowerCase()) === b2cTenant);
  if (enabled !== undefined) tests.push((asset) => asset.enabled === enabled);
  if (owner !== undefined) tests.push((asset) => ownersOf(asset, ownerTag).includes(owner));
  if (hasOwner !== undefined) tests.push((asset) => ownersOf(asset, ownerTag).some(Boolean) === hasOwner);
  if (tag) {
    tests.push((asset) => {
      const value = asset.tags && Object.hasOwn(asset.tags, tag.name) ? asset.tags[tag.name] : undefined;
      return value !== undefined && (tag.value === undefined || value === tag.value);
    });
  }
  const start = filter.namePrefix?.toLowerCase();
  if (start !== undefined) tests.push(({ name }) => name.toLowerCase().startsWith(start));
  return tests.length === 0 ? undefined : (asset) => tests.every((test) => test(asset));
}

/** The next row of one type's range. `key`: the row key without its prefix, by which the ranges of several types are merged. */
interface Head {
  key: string;
  type: AssetType;
  row: Row<AssetRecord>;
}

/** The rows of one range, in the order of their keys. */
interface Stream {
  type: AssetType;
  heads: AsyncGenerator<Head>;
  /** Whether the call's limit ended the range before its end. */
  isCut: boolean;
}

/** The state that all streams of a list share. */
interface StreamSource {
  tables: Tables;
  partitionKey: string;
  cursor: z.infer<typeof Cursor> | undefined;
  /** Number of pages that the streams may still read. */
  budget: { pages: number };
}

/** A range of an index. */
interface IndexRange {
  /** Prefix of the row keys. The rest is the sort key. */
  prefix: string;
  bounds: { from: string; before: string };
  /** Returns whether a row of the range matches. Undefined if all do. */
  accepts?: (asset: AssetRecord) => boolean;
}

/** Returns the index by name. `start`: beginning of the names. */
const nameIndex = (type: AssetType, start = ""): IndexRange => {
  const prefix = namePrefix(type);
  const from = prefix + start.toLowerCase();
  return { prefix, bounds: { from, before: keyEnd(from) } };
};

/** Returns the index by expiry, which does not contain certificates with a renewal plan (`withPlanIndex`). */
const expiryIndex = (type: AssetType, range: ExpiryRange | undefined): IndexRange => {
  const prefix = expiryPrefix(type);
  const bounds = range
    ? expiryBounds(type, range.from, range.before, range.unset)
    : { from: prefix, before: keyEnd(prefix) };
  return { prefix, bounds };
};

/**
 * Returns the range of certificates with a renewal plan in the index by expiry. For `healthy` the range has all unexpired ones,
 * and `accepts` leaves out those whose renewal is late, which are few. `warning` and `critical` have an index of their own
 * (`openLateStream`).
 */
function withPlanIndex({ status, dates, moment }: CountQuery): IndexRange {
  const firstUnexpired = Math.ceil(moment.now / 1000);
  const ofStatus: ExpiryRange = {
    from: status === "healthy" ? firstUnexpired : 0,
    before: status === "expired" ? firstUnexpired : END_OF_TIME,
    unset: false,
  };
  const { from, before } = dates ? intersect(ofStatus, dates) : ofStatus;
  return {
    prefix: expiryPrefix(RENEWED),
    bounds: expiryBounds(RENEWED, from, Math.max(from, before), false),
    ...(status === "healthy" && { accepts: (asset) => statusOfAsset(asset, moment) === status }),
  };
}

/**
 * Returns whether a row comes after the cursor's row. Rows with equal sort keys are ordered by type: a row of a later type with
 * the cursor's key comes after it.
 */
const isAfterCursor = (cursor: z.infer<typeof Cursor> | undefined, type: AssetType, key: string): boolean =>
  cursor === undefined || (type > cursor.t ? key >= cursor.k : key > cursor.k);

function openStream(
  { tables, partitionKey, cursor, budget }: StreamSource,
  type: AssetType,
  { prefix, bounds, accepts }: IndexRange,
  /** Number of rows to request first, and the maximum that may be needed. */
  rows: { first: number; most: number },
): Stream {
  // The cursor can be before this range, because another stream of the list starts earlier.
  const from =
    cursor === undefined || prefix + cursor.k < bounds.from
      ? { from: bounds.from }
      : type > cursor.t
        ? { from: prefix + cursor.k }
        : { after: prefix + cursor.k };
  const stream: Stream = { type, isCut: false, heads: heads() };
  async function* heads(): AsyncGenerator<Head> {
    const pagesFrom = (begin: Pick<Range, "from" | "after">, pageSize: number) =>
      tables.pages(Assets, { partitionKey, ...begin, before: bounds.before, pageSize: Math.min(PAGE_ROWS, pageSize) });
    let pages = pagesFrom(from, rows.first);
    for (let read = 0; ; ) {
      if (budget.pages <= 0) {
        stream.isCut = true;
        return;
      }
      budget.pages--;
      const page = await pages.next();
      if (page.done) return;
      for (const row of page.value)
        if (!accepts || accepts(row)) yield { key: row.rowKey.slice(prefix.length), type, row };
      // The first request returned too few rows. Continue with the maximum that may be needed.
      if (read === 0 && page.value.length === rows.first)
        pages = pagesFrom({ after: page.value.at(-1)!.rowKey }, Math.max(1, rows.most - rows.first));
      read += page.value.length;
    }
  }
  return stream;
}

/**
 * Opens the certificates with a renewal plan that are `warning` or `critical`, by expiry. They are read from the index by
 * `attentionAt`, which is not in the order of expiry. So all rows up to now are read, also those of expired certificates, and the
 * matches are sorted in memory. One request per 1,000 rows, which the limit of pages does not include.
 *
 * @param most - The maximum number of rows that may be needed.
 */
function openLateStream(
  { tables, partitionKey, cursor }: StreamSource,
  { status, dates, moment }: CountQuery,
  most: number,
): Stream {
  const byKey = (a: Head, b: Head) => (a.key < b.key ? -1 : 1);
  const matches = (asset: AssetRecord) =>
    statusOfAsset(asset, moment) === status &&
    (!dates || (asset.expiresOn! >= dates.from && asset.expiresOn! < dates.before));
  async function* heads(): AsyncGenerator<Head> {
    let matching: Head[] = [];
    const range = { partitionKey, ...lateBounds(Math.floor(moment.now / 1000) + 1) };
    for await (const rows of tables.pages(Assets, range)) {
      for (const row of rows) {
        if (!matches(row)) continue;
        const key = expiryKey(RENEWED, row.expiresOn, row.name, row.vaultName).slice(expiryPrefix(RENEWED).length);
        if (isAfterCursor(cursor, "certificate", key)) matching.push({ key, type: "certificate", row });
      }
      // Trimmed only at twice the number, so that most pages are not sorted.
      if (matching.length > 2 * most) matching = matching.sort(byKey).slice(0, most);
    }
    yield* matching.sort(byKey);
  }
  return { type: "certificate", isCut: false, heads: heads() };
}

/** Merges the ranges in order. Stops when any range is cut: its unread rows may sort before the next rows of the others. */
async function* mergeStreams(streams: Stream[]): AsyncGenerator<Head> {
  const currentHeads = await Promise.all(streams.map(async (stream) => ({ stream, next: await stream.heads.next() })));
  for (;;) {
    if (streams.some((one) => one.isCut)) return;
    let smallest: (typeof currentHeads)[number] | undefined;
    for (const current of currentHeads) {
      if (current.next.done) continue;
      if (!smallest || sortsBefore(current.next.value, smallest.next.value as Head)) smallest = current;
    }
    if (!smallest) return;
    yield smallest.next.value as Head;
    smallest.next = await smallest.stream.heads.next();
  }
}

const sortsBefore = (a: Head, b: Head): boolean => a.key < b.key || (a.key === b.key && a.type < b.type);
