import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import type { Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import {
  ASSET_TYPES,
  type AssetRecord,
  type AssetSource,
  Assets,
  type AssetType,
  fingerprint,
  placesOf,
  sourceOf,
} from "./asset.ts";
import { countExpiries } from "./expiries.ts";
import { END_OF_TIME, type ExpiryRange, intersect, type Moment, rangeOf, STATUSES, type Status } from "./health.ts";
import { holderSubscription, type NotCounted, notCounted, ownersOf } from "./holder.ts";
import { expiryBounds, expiryPrefix, nameKey, namePrefix, partitions } from "./layout.ts";
import { expiriesOf, forEachType, VAULTS, type VaultRecord, Vaults, vaultKey } from "./vault.ts";

/** Filters without an index of their own read at most this many pages of 1,000 rows in one call. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;

export interface AssetFilter {
  type?: AssetType;
  status?: Status;
  vault?: string;
  subscription?: string;
  source?: AssetSource;
  /** False: those that leave counts and score, and only those. */
  counted?: boolean;
  /** Expires before this instant; assets without an expiry never match. */
  expiresBefore?: Date;
  expiresAfter?: Date;
  search?: string;
  enabled?: boolean;
  tag?: { name: string; value?: string };
  owner?: string;
  sort?: "name" | "expiresOn";
}

/** An asset with its vault's word on when it was last seen. */
export interface FoundAsset {
  asset: AssetRecord;
  lastSeenAt: string | undefined;
  /** Why it is in no count and in no score; undefined where it is. */
  notCounted: NotCounted | undefined;
}

const Cursor = z.object({
  /** Hash of the filters it belongs to. */
  f: z.string(),
  /** The last answered row: its place in the order, and its type. */
  k: z.string().max(1024),
  t: z.enum(ASSET_TYPES),
  /** How many matches of the offset are still to be skipped, where a budget ended the call before. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
  m: z.object({ now: z.number(), criticalDays: z.number(), warningDays: z.number() }),
});

type SummaryRow = Pick<VaultRecord, "name" | "subscriptionId" | "listedAt"> & Partial<VaultRecord>;
const SUMMARY = [
  "name",
  "source",
  "subscriptionId",
  "listedAt",
  "failedScans",
  "certificateExpiries",
  "keyExpiries",
  "secretExpiries",
] as const;

/** The inventory in numbers. */
export interface InventoryFigures {
  /** How many assets that count have each status, per type. */
  assets: Record<AssetType, Record<Status, number>>;
  /** Key vaults that are known. */
  vaults: number;
  /** Those of which the last scan could read no list. */
  unreadable: number;
  /** Holders whose credentials don't count now, by lower-cased name. */
  uncounted: ReadonlySet<string>;
}

/** Questions about assets; each costs the same however many there are. */
export interface AssetQueries {
  /**
   * Assets that match the filter, by name or expiry. At most a request per type and page of 1,000 rows skipped, and one per
   * 1,000 vaults.
   *
   * @param moment - Decides what a status means; a cursor goes on with that of its first page.
   * @throws {Problem} invalidCursor for a cursor of other filters; invalidRequest for an order the filter rules out.
   */
  list(filter: AssetFilter, request: PageRequest, moment: Moment): Promise<Page<FoundAsset>>;
  /** One asset by id; undefined when there is none. Two point reads, three for a credential. */
  get(id: string, moment: Pick<Moment, "now">): Promise<FoundAsset | undefined>;
  /** One request per 1,000 vaults. */
  figures(moment: Moment): Promise<InventoryFigures>;
}

export function createAssetQueries(deps: {
  tables: Tables;
  ownerTag: string;
  /** Whether there is a PRO licence. */
  licensed: () => Promise<boolean>;
}): AssetQueries {
  const { tables, ownerTag, licensed } = deps;

  /** The vaults a filter is about: one row, one range, or all; a page of 1,000 vaults a request. */
  async function summaries(filter: AssetFilter): Promise<SummaryRow[]> {
    if (filter.vault !== undefined) {
      const row = await tables.get(Vaults, VAULTS, vaultKey(filter.vault));
      const fits =
        row &&
        sourceOf(row) === "keyVault" &&
        (!filter.subscription || row.subscriptionId.toLowerCase() === filter.subscription.toLowerCase());
      return fits ? [row] : [];
    }
    const subscription = subscriptionOf(filter);
    const prefix = subscription ? `s!${subscription.toLowerCase()}!` : "n!";
    const found: SummaryRow[] = [];
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), select: [...SUMMARY] };
    for await (const rows of tables.pages(Vaults, range)) found.push(...rows);
    return found;
  }

  async function list(filter: AssetFilter, request: PageRequest, moment: Moment): Promise<Page<FoundAsset>> {
    const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
    const identity = fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined));
    if (cursor && cursor.f !== identity) {
      throw new Problem(
        "invalidCursor",
        "This cursor belongs to other filters. Send the same filters with it, or start without it.",
      );
    }
    const at = cursor?.m ?? moment;
    const range = expiryRangeOf(filter, at);
    const byExpiry = range !== undefined || filter.sort === "expiresOn";
    if (range && filter.sort === "name") {
      const message = "can't be used with status, expiresBefore or expiresAfter, whose order is by expiry";
      throw new Problem("invalidRequest", `The parameter sort=name ${message}.`, {
        errors: [{ path: "query.sort", message }],
      });
    }
    const known = await summaries(filter);
    const now = { now: at.now, licensed: await licensed() };
    const vaults = known.filter(
      (vault) =>
        (filter.source === undefined || sourceOf(vault) === filter.source) &&
        (notCounted(vault, now) === undefined) === (filter.counted ?? true),
    );
    const types = filter.type ? [filter.type] : ASSET_TYPES;
    const indexed = sum(vaults, (vault) => sum(types, (type) => countExpiries(expiriesOf(vault, type), range)));
    const unindexed = unindexedFilter(filter, ownerTag);
    const hidden = hiddenVaults(known, vaults, types);
    const matches =
      hidden.size === 0
        ? unindexed
        : (asset: AssetRecord) => !hidden.has(asset.vaultName.toLowerCase()) && (!unindexed || unindexed(asset));
    const subscription = subscriptionOf(filter);
    const partitionKey =
      filter.vault !== undefined
        ? partitions.vault(filter.vault)
        : subscription
          ? partitions.subscription(subscription)
          : partitions.all;
    const empty = indexed === 0 || (range && range.before <= range.from && !range.unset);
    const budget = { pages: matches ? MAX_SCANNED_PAGES : Number.POSITIVE_INFINITY };
    const skipped = cursor ? cursor.s : request.offset;
    const wanted = skipped + request.limit;
    const streams = empty
      ? []
      : types.map((type) =>
          stream(tables, partitionKey, type, byExpiry, range, cursor, matches ? PAGE_ROWS : wanted + 1, budget),
        );

    const items: AssetRecord[] = [];
    let matched = 0;
    let last: Head | undefined;
    let more = false;
    for await (const head of merge(streams)) {
      if (head.row && (!matches || matches(head.row))) {
        if (matched >= wanted) {
          more = true;
          // Where nothing else is counted by rows, the one row beyond the page says all there is to know.
          if (!unindexed || cursor) break;
        } else if (matched >= skipped) items.push(head.row);
        matched++;
      }
      if (matched <= wanted && !more) last = head;
    }
    const ended = budget.pages <= 0 && streams.some((one) => one.cut);
    const seen = new Map(vaults.map((vault) => [vault.name.toLowerCase(), vault]));
    return {
      items: items.map((asset) => {
        const vault = seen.get(asset.vaultName.toLowerCase());
        return foundAsset(asset, vault, now);
      }),
      ...(!unindexed
        ? { total: indexed }
        : cursor || ended
          ? { total: null, totalAtLeast: Math.max(matched, items.length) }
          : { total: matched }),
      limit: request.limit,
      offset: request.offset,
      nextCursor:
        (more || ended) && last
          ? encodeCursor({
              f: identity,
              k: last.key,
              t: last.type,
              m: at,
              s: Math.max(0, skipped - matched),
            } satisfies z.infer<typeof Cursor>)
          : null,
    };
  }

  return {
    list,

    async get(id, { now }) {
      const places = placesOf(id);
      const [first] = places;
      if (!first) return undefined;
      const [vault, ...assets] = await Promise.all([
        tables.get(Vaults, VAULTS, vaultKey(first.vaultName)),
        ...places.map(({ vaultName, type, name }) =>
          tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
        ),
      ]);
      const asset = assets.find((one) => one !== undefined);
      return asset && foundAsset(asset, vault, { now, licensed: await licensed() });
    },

    async figures(moment) {
      const now = { now: moment.now, licensed: await licensed() };
      const known = await summaries({});
      const vaults = known.filter((vault) => sourceOf(vault) === "keyVault");
      const counted = known.filter((vault) => notCounted(vault, now) === undefined);
      const uncounted = known.filter((vault) => notCounted(vault, now) !== undefined);
      return {
        assets: forEachType((type) => healthOf(counted, type, moment)),
        vaults: vaults.length,
        unreadable: vaults.filter(({ failedScans = 0 }) => failedScans > 0).length,
        uncounted: new Set(uncounted.map(({ name }) => name.toLowerCase())),
      };
    },
  };
}

/** Assets of one type in these vaults, counted by status. */
export function healthOf(vaults: Partial<VaultRecord>[], type: AssetType, moment: Moment): Record<Status, number> {
  const count = (status: Status) =>
    sum(vaults, (vault) => countExpiries(expiriesOf(vault, type), rangeOf(status, moment)));
  return Object.fromEntries(STATUSES.map((status) => [status, count(status)])) as Record<Status, number>;
}

/** A source other than key vaults has a partition of its own, as a subscription has. */
const subscriptionOf = ({ subscription, source }: AssetFilter): string | undefined =>
  subscription ?? (source === undefined || source === "keyVault" ? undefined : holderSubscription(source));

/** Those among which the wanted vaults' assets stand and whose own are not asked for, by lower-cased name. */
function hiddenVaults(known: SummaryRow[], wanted: SummaryRow[], types: readonly AssetType[]): Set<string> {
  const shown = new Set(wanted);
  const hidden = known.filter((vault) => !shown.has(vault) && types.some((type) => expiriesOf(vault, type)?.length));
  return new Set(hidden.map(({ name }) => name.toLowerCase()));
}

function foundAsset(
  asset: AssetRecord,
  vault: Pick<VaultRecord, "source" | "listedAt"> | undefined,
  now: { now: number; licensed: boolean },
): FoundAsset {
  const listedAt = vault?.listedAt[asset.type];
  // A credential that a reading of changes found was seen after the last complete one.
  const lastSeenAt = asset.credential && listedAt && listedAt < asset.firstSeenAt ? asset.firstSeenAt : listedAt;
  return { asset, lastSeenAt, notCounted: vault && notCounted(vault, now) };
}

const sum = <T>(values: readonly T[], of: (value: T) => number): number =>
  values.reduce((total, value) => total + of(value), 0);

/** The range of expiry all of status, expiresBefore and expiresAfter leave; undefined when none of them is given. */
function expiryRangeOf(filter: AssetFilter, moment: Moment): ExpiryRange | undefined {
  const ranges: ExpiryRange[] = [];
  if (filter.status) ranges.push(rangeOf(filter.status, moment));
  if (filter.expiresBefore) {
    ranges.push({ from: 0, before: Math.ceil(filter.expiresBefore.getTime() / 1000), unset: false });
  }
  if (filter.expiresAfter) {
    ranges.push({ from: Math.floor(filter.expiresAfter.getTime() / 1000) + 1, before: END_OF_TIME, unset: false });
  }
  return ranges.length === 0 ? undefined : ranges.reduce(intersect);
}

/** The filters no index serves, as one test of a row; undefined when none of them is given. */
function unindexedFilter(filter: AssetFilter, ownerTag: string): ((asset: AssetRecord) => boolean) | undefined {
  const tests: ((asset: AssetRecord) => boolean)[] = [];
  const { search, enabled, tag, owner } = filter;
  if (search !== undefined) {
    const text = search.toLowerCase();
    tests.push(({ name, credential }) =>
      [name, credential?.displayName, credential?.applicationName].some((one) => one?.toLowerCase().includes(text)),
    );
  }
  if (enabled !== undefined) tests.push((asset) => asset.enabled === enabled);
  if (owner !== undefined) tests.push((asset) => ownersOf(asset, ownerTag).includes(owner));
  if (tag) {
    tests.push((asset) => {
      const value = asset.tags && Object.hasOwn(asset.tags, tag.name) ? asset.tags[tag.name] : undefined;
      return value !== undefined && (tag.value === undefined || value === tag.value);
    });
  }
  return tests.length === 0 ? undefined : (asset) => tests.every((test) => test(asset));
}

/** The next row of one type's range, by its place in the order; `row` is undefined where a budget ended the range. */
interface Head {
  key: string;
  type: AssetType;
  row: Row<AssetRecord> | undefined;
}

interface Stream {
  type: AssetType;
  heads: AsyncGenerator<Head>;
  /** Whether the budget ended it before its range did. */
  cut: boolean;
}

function stream(
  tables: Tables,
  partitionKey: string,
  type: AssetType,
  byExpiry: boolean,
  range: ExpiryRange | undefined,
  cursor: z.infer<typeof Cursor> | undefined,
  rows: number,
  budget: { pages: number },
): Stream {
  const prefix = byExpiry ? expiryPrefix(type) : namePrefix(type);
  const bounds = range
    ? expiryBounds(type, range.from, range.before, range.unset)
    : { from: prefix, before: keyEnd(prefix) };
  // Equal places are ordered by type, so a range of a later type begins at the cursor's place and others behind it.
  const from =
    cursor === undefined
      ? { from: bounds.from }
      : type > cursor.t
        ? { from: prefix + cursor.k }
        : { after: prefix + cursor.k };
  const self: Stream = { type, cut: false, heads: heads() };
  async function* heads(): AsyncGenerator<Head> {
    const pages = tables.pages(Assets, {
      partitionKey,
      ...from,
      before: bounds.before,
      pageSize: Math.min(PAGE_ROWS, rows),
    });
    for (;;) {
      if (budget.pages <= 0) {
        self.cut = true;
        return;
      }
      budget.pages--;
      const page = await pages.next();
      if (page.done) return;
      for (const row of page.value) yield { key: row.rowKey.slice(prefix.length), type, row };
    }
  }
  return self;
}

/**
 * Merges the ranges in order. Once one of them was cut by the budget, what the others still hold may lie behind rows
 * nobody read, so the walk ends there and the next call goes on.
 */
async function* merge(streams: Stream[]): AsyncGenerator<Head> {
  const fronts = await Promise.all(streams.map(async (one) => ({ one, next: await one.heads.next() })));
  for (;;) {
    if (streams.some((one) => one.cut)) return;
    let least: (typeof fronts)[number] | undefined;
    for (const front of fronts) {
      if (front.next.done) continue;
      if (!least || before(front.next.value, least.next.value as Head)) least = front;
    }
    if (!least) return;
    yield least.next.value as Head;
    least.next = await least.one.heads.next();
  }
}

const before = (a: Head, b: Head): boolean => a.key < b.key || (a.key === b.key && a.type < b.type);
