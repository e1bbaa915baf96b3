import { randomUUID } from "node:crypto";
import * as z from "zod";
import {
  decodeCursor,
  encodeCursor,
  MAX_COUNTED,
  MAX_OFFSET,
  type Page,
  type PageRequest,
} from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { pack, packedMember, unpack } from "../platform/storage/packed-members.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import {
  ASSET_TYPES,
  type AssetRecord,
  type AssetSource,
  type AssetType,
  fingerprint,
  SOURCES,
  sourceOf,
  titleOfCredential,
} from "./asset.ts";
import type { NetChange } from "./asset-row-changes.ts";
import { forEachType, VAULTS, type VaultRecord, Vaults } from "./vault.ts";

/**
 * The log of added, updated and removed assets. Each write of a vault that changes assets adds a row in the transaction that
 * replaces the vault's row, so the log entry exists exactly if the change does. Large changes have several rows, some written
 * before that transaction. If the worker crashes, the next worker removes these (vault-claim.ts).
 */

export const CHANGE_KINDS = ["added", "updated", "removed"] as const;
export type ChangeKind = (typeof CHANGE_KINDS)[number];

/** Kind, type, name, changed members. */
const PackedItem = z.tuple([z.enum(CHANGE_KINDS), z.enum(ASSET_TYPES), z.string(), z.array(z.string())]);
type PackedItem = z.infer<typeof PackedItem>;

const Titles = z.array(z.string());

const perType = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });
const ChangeRecord = z.object({
  /** When the write ended, ISO 8601. */
  at: z.string(),
  vaultName: z.string(),
  subscriptionId: z.string(),
  /** Absent for key vaults. */
  source: z.enum(SOURCES).optional(),
  counts: z.object({ added: perType, updated: perType, removed: perType }),
  /** Compressed `PackedItem`s. */
  items: packedMember(z.array(PackedItem)),
  /**
   * For credentials: the title of each item, empty if unknown, because their names are IDs. A member of its own, so that earlier
   * versions can read the items. Absent in rows of earlier versions.
   */
  titles: packedMember(Titles).optional(),
});
type ChangeRecord = z.infer<typeof ChangeRecord>;
export const ChangeRows = entity(Vaults.table, ChangeRecord);

/** Compressed, this many items stay far below the 1 MiB limit of an entity. */
const ITEMS_PER_ROW = 5_000;

/**
 * Keys are `c!<time>!<vault>!<UUID of the write>!<number of the row>`. The time counts down, so that the newest rows come
 * first. Thirteen digits are enough for every millisecond until the year 2286.
 */
const PREFIX = "c!";
const MAX_INSTANT_MS = 9_999_999_999_999;
/** Times outside of this range, such as a year before 1970 in a filter, count as its first or last time. */
const instantKey = (instantMs: number): string =>
  `${PREFIX}${String(MAX_INSTANT_MS - Math.min(Math.max(instantMs, 0), MAX_INSTANT_MS)).padStart(13, "0")}`;

/** A logged change of an asset. */
export interface LoggedChange {
  at: string;
  kind: ChangeKind;
  type: AssetType;
  name: string;
  /** For a credential: its title at that time, if known. */
  title: string | undefined;
  vaultName: string;
  subscriptionId: string;
  source: AssetSource;
  /** For updates: the changed members, if known. */
  members: string[];
}

/** Filter of the list of changes. Undefined members do not filter. */
export interface ChangeFilter {
  since?: Date | undefined;
  /** Exclusive end. */
  until?: Date | undefined;
  change?: ChangeKind | undefined;
  type?: AssetType | undefined;
  vault?: string | undefined;
  subscription?: string | undefined;
  source?: AssetSource | undefined;
}

/** Numbers of changes by kind. */
export interface ChangeCounts extends Record<ChangeKind, number> {
  /** False if 1,000 rows were read, so that there may be more. Then only the newest changes are counted. */
  complete: boolean;
}

/** The log rows of one write. */
export interface LoggedChanges {
  /** Key prefix of the rows, unique to this write. */
  readonly key: string;
  readonly rows: readonly Operation[];
}

/** Returns the log rows to write with a vault's change. */
export function changeOperations(
  vault: Pick<VaultRecord, "name" | "subscriptionId" | "source">,
  changes: readonly NetChange[],
  now: Date,
): LoggedChanges {
  const items = changes.map(({ kind, type, name, before, after }): PackedItem => {
    const members = kind === "updated" && before && after ? membersThatDiffer(before, after) : [];
    return [kind, type, name, members];
  });
  const titles = changes.map(({ before, after }) => {
    const { credential } = after ?? before ?? {};
    return credential ? titleOfCredential(credential) : "";
  });
  const operations: Operation[] = [];
  const key = `${instantKey(now.getTime())}!${vault.name.toLowerCase()}!${randomUUID()}`;
  for (let start = 0; start < items.length; start += ITEMS_PER_ROW) {
    const batch = items.slice(start, start + ITEMS_PER_ROW);
    const row: ChangeRecord = {
      at: now.toISOString(),
      vaultName: vault.name,
      subscriptionId: vault.subscriptionId,
      ...(vault.source === undefined ? {} : { source: vault.source }),
      counts: countsOf(batch),
      items: pack(batch),
      ...(titles.some(Boolean) && { titles: pack(titles.slice(start, start + ITEMS_PER_ROW)) }),
    };
    operations.push(put(ChangeRows, `${key}!${String(operations.length).padStart(3, "0")}`, row));
  }
  return { key, rows: operations };
}

/** Members that are not visible to users or follow from another member. */
const BOOKKEEPING: ReadonlySet<string> = new Set(["listing", "content", "firstSeenAt"]);

function membersThatDiffer(before: AssetRecord, after: AssetRecord): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)] as (keyof AssetRecord)[]);
  const differs = (name: keyof AssetRecord) => sorted(before[name]) !== sorted(after[name]);
  return [...names].filter((name) => !BOOKKEEPING.has(name) && differs(name)).sort();
}

/** Returns the value as JSON with sorted members, because tags have no order. */
const sorted = (value: unknown): string | undefined =>
  JSON.stringify(value, (_, member: unknown) =>
    typeof member === "object" && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );

function countsOf(items: readonly PackedItem[]): ChangeRecord["counts"] {
  const none = () => forEachType(() => 0);
  const counts = { added: none(), updated: none(), removed: none() };
  for (const [kind, type] of items) counts[kind][type]++;
  return counts;
}

const Cursor = z.object({
  /** Hash of the filters for which the cursor is valid. */
  f: z.string(),
  /** `k`: the last row that was read. `i`: how many of its matching changes were returned or skipped. */
  k: z.string().max(1024),
  i: z.int().min(0),
  /** Remaining number of changes to skip for the offset. */
  s: z.int().min(0).max(MAX_OFFSET),
});

/** Rows per page, and pages that one call reads before it returns its results with a cursor. */
const ROWS_PER_PAGE = 100;
const MAX_PAGES = 10;
const COUNTED = ["vaultName", "subscriptionId", "source", "counts"] as const;

/**
 * Returns changes, newest first. Reads at most ten pages of changes and eleven of counts.
 *
 * @throws {Problem} invalidCursor
 */
export async function listChanges(
  tables: Tables,
  filter: ChangeFilter,
  request: PageRequest,
): Promise<Page<LoggedChange>> {
  const identity = fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined));
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const changes: LoggedChange[] = [];
  let skip = cursor ? cursor.s : request.offset;
  let next: z.infer<typeof Cursor> | undefined;
  let pages = 0;
  const range = rangeOf(filter);
  // From the cursor's row on, because that row may have further changes.
  const from = cursor ? { ...range, from: cursor.k } : range;
  paging: for await (const rows of tables.pages(ChangeRows, { ...from, pageSize: ROWS_PER_PAGE })) {
    for (const row of rows) {
      if (!matchesRow(row, filter)) continue;
      const matchingItems = itemsOf(row).filter(({ item: [kind, type] }) => matchesItem(kind, type, filter));
      const firstIndex = row.rowKey === cursor?.k ? cursor.i : 0;
      for (let index = firstIndex; index < matchingItems.length; index++) {
        if (skip > 0) {
          skip--;
          continue;
        }
        if (changes.length === request.limit) {
          next = { f: identity, k: row.rowKey, i: index, s: 0 };
          break paging;
        }
        changes.push(toLoggedChange(row, matchingItems[index]!));
      }
    }
    const lastRow = rows.at(-1);
    if (++pages === MAX_PAGES && lastRow) {
      // The large index skips the rest of this row. If this was the last page after all, the next call returns no changes.
      next = { f: identity, k: lastRow.rowKey, i: Number.MAX_SAFE_INTEGER, s: skip };
      break;
    }
  }
  return {
    items: changes,
    ...(await countMatches(tables, filter)),
    limit: request.limit,
    offset: request.offset,
    nextCursor: next ? encodeCursor(next) : null,
  };
}

async function countMatches(
  tables: Tables,
  filter: ChangeFilter,
): Promise<Pick<Page<unknown>, "total" | "totalAtLeast">> {
  let total = 0;
  let pages = 0;
  for await (const rows of tables.pages(ChangeRows, { ...rangeOf(filter), select: COUNTED })) {
    if (++pages > MAX_PAGES) return { total: null, totalAtLeast: total };
    for (const row of rows)
      if (matchesRow(row, filter)) for (const kind of CHANGE_KINDS) total += countIn(row, kind, filter);
    if (total > MAX_COUNTED) return { total: null, totalAtLeast: MAX_COUNTED };
  }
  return { total };
}

/** Number of rows after which counting stops. */
const MAX_COUNTED_ROWS = 1000;

/** Returns the numbers of changes in a period. Reads about 1,000 rows, mostly in one request. */
export async function countChanges(tables: Tables, filter: ChangeFilter): Promise<ChangeCounts> {
  const counts: ChangeCounts = { added: 0, updated: 0, removed: 0, complete: true };
  let read = 0;
  for await (const rows of tables.pages(ChangeRows, { ...rangeOf(filter), select: COUNTED })) {
    for (const row of rows)
      if (matchesRow(row, filter)) for (const kind of CHANGE_KINDS) counts[kind] += countIn(row, kind, filter);
    read += rows.length;
    if (read >= MAX_COUNTED_ROWS) return { ...counts, complete: false };
  }
  return counts;
}

function rangeOf({ since, until }: ChangeFilter) {
  // Keys count down: later times have smaller keys. The range starts after the keys of `until` and ends after those of `since`.
  const from = until === undefined ? PREFIX : keyEnd(instantKey(until.getTime()));
  const before = since === undefined ? keyEnd(PREFIX) : keyEnd(instantKey(since.getTime()));
  return { partitionKey: VAULTS, from, before };
}

const matchesRow = (
  row: Pick<ChangeRecord, "vaultName" | "subscriptionId" | "source">,
  { vault, subscription, source }: ChangeFilter,
): boolean =>
  (vault === undefined || (sourceOf(row) === "keyVault" && row.vaultName.toLowerCase() === vault.toLowerCase())) &&
  (subscription === undefined || row.subscriptionId.toLowerCase() === subscription.toLowerCase()) &&
  (source === undefined || sourceOf(row) === source);

const matchesItem = (kind: ChangeKind, type: AssetType, filter: ChangeFilter): boolean =>
  (filter.change === undefined || kind === filter.change) && (filter.type === undefined || type === filter.type);

const countIn = ({ counts }: Pick<ChangeRecord, "counts">, kind: ChangeKind, filter: ChangeFilter): number =>
  ASSET_TYPES.reduce((sum, type) => sum + (matchesItem(kind, type, filter) ? counts[kind][type] : 0), 0);

interface Item {
  item: PackedItem;
  title: string | undefined;
}

function itemsOf(row: Row<ChangeRecord>): Item[] {
  const { titles: packedTitles } = row;
  const titles = packedTitles ? unpack(ChangeRows, { ...row, titles: packedTitles }, "titles", Titles) : [];
  return unpack(ChangeRows, row, "items", z.array(PackedItem)).map((item, index) => ({
    item,
    title: titles[index] || undefined,
  }));
}

const toLoggedChange = (
  { at, vaultName, subscriptionId, source }: ChangeRecord,
  { item: [kind, type, name, members], title }: Item,
): LoggedChange => ({
  at,
  kind,
  type,
  name,
  title,
  vaultName,
  subscriptionId,
  source: sourceOf({ source }),
  members,
});

/** Maximum number of rows that one purge removes. */
const ROWS_PER_PURGE = 5_000;

/** Removes rows older than the given time, up to a maximum. Returns whether more may be left. */
export async function removeOldChanges(tables: Tables, before: Date): Promise<boolean> {
  const range = { partitionKey: VAULTS, from: keyEnd(instantKey(before.getTime())), before: keyEnd(PREFIX) };
  let removed = 0;
  for await (const rows of tables.pages(ChangeRows, { ...range, select: [] })) {
    await tables.write(
      ChangeRows.table,
      VAULTS,
      rows.map(({ rowKey }) => remove(ChangeRows, rowKey)),
    );
    removed += rows.length;
    if (removed >= ROWS_PER_PURGE) return true;
  }
  return false;
}
