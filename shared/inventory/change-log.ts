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
import { pack, unpack } from "../platform/storage/packed-members.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import {
  ASSET_TYPES,
  type AssetRecord,
  type AssetSource,
  type AssetType,
  fingerprint,
  SOURCES,
  sourceOf,
} from "./asset.ts";
import type { NetChange } from "./changes.ts";
import { forEachType, VAULTS, type VaultRecord, Vaults } from "./vault.ts";

/**
 * What was added, updated and removed in the inventory. Of each work on a vault that changed assets there is a row, written
 * in the transaction that ends the work and replaces the vault's row: so it is there if and only if the change stands, once.
 * Of very many changes there are more rows, of which some are written just before; where their worker dies, the next one
 * removes them (claim.ts).
 */

export const CHANGE_KINDS = ["added", "updated", "removed"] as const;
export type ChangeKind = (typeof CHANGE_KINDS)[number];

const perType = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });
const ChangeRecord = z.object({
  /** When the work ended, ISO 8601. */
  at: z.string(),
  vaultName: z.string(),
  subscriptionId: z.string(),
  /** Absent: a key vault's. */
  source: z.enum(SOURCES).optional(),
  counts: z.object({ added: perType, updated: perType, removed: perType }),
  /** `PackedItem`s, packed. */
  items: z.instanceof(Uint8Array),
});
type ChangeRecord = z.infer<typeof ChangeRecord>;
export const ChangeRows = entity(Vaults.table, ChangeRecord);

/** Kind, type, name, changed members. */
const PackedItem = z.tuple([z.enum(CHANGE_KINDS), z.enum(ASSET_TYPES), z.string(), z.array(z.string())]);
type PackedItem = z.infer<typeof PackedItem>;

/** Deflated they stay far below the 1 MiB of an entity. */
const ITEMS_PER_ROW = 5_000;

/** Keys count down, so that the newest come first. Thirteen digits hold every millisecond until the year 2286. */
const PREFIX = "c!";
const LATEST_MS = 9_999_999_999_999;
/** What lies outside of them, such as a year before 1970 in a filter, is as their first or last instant. */
const instantKey = (at: number): string =>
  `${PREFIX}${String(LATEST_MS - Math.min(Math.max(at, 0), LATEST_MS)).padStart(13, "0")}`;

/** One change of an asset. */
export interface LoggedChange {
  at: string;
  kind: ChangeKind;
  type: AssetType;
  name: string;
  vaultName: string;
  subscriptionId: string;
  source: AssetSource;
  /** Of an update the members that differ, as far as they are known. */
  members: string[];
}

export interface ChangeFilter {
  since?: Date | undefined;
  /** Exclusive. */
  until?: Date | undefined;
  change?: ChangeKind | undefined;
  type?: AssetType | undefined;
  vault?: string | undefined;
  subscription?: string | undefined;
  source?: AssetSource | undefined;
}

/** How many there were of each kind. */
export interface ChangeCounts extends Record<ChangeKind, number> {
  /** False where there are more rows than one request reads: then the newest are counted. */
  complete: boolean;
}

/** The rows of one work. */
export interface LoggedChanges {
  /** What their keys begin with, which no other work's do. */
  readonly key: string;
  readonly rows: readonly Operation[];
}

/** What to write with the end of a work. */
export function changeOperations(
  vault: Pick<VaultRecord, "name" | "subscriptionId" | "source">,
  changes: readonly NetChange[],
  now: Date,
): LoggedChanges {
  const items = changes.map(({ kind, type, name, before, after }): PackedItem => {
    const members = kind === "updated" && before && after ? membersThatDiffer(before, after) : [];
    return [kind, type, name, members];
  });
  const operations: Operation[] = [];
  const key = `${instantKey(now.getTime())}!${vault.name.toLowerCase()}!${randomUUID()}`;
  for (let start = 0; start < items.length; start += ITEMS_PER_ROW) {
    const part = items.slice(start, start + ITEMS_PER_ROW);
    const row: ChangeRecord = {
      at: now.toISOString(),
      vaultName: vault.name,
      subscriptionId: vault.subscriptionId,
      ...(vault.source === undefined ? {} : { source: vault.source }),
      counts: countsOf(part),
      items: pack(part),
    };
    operations.push(put(ChangeRows, `${key}!${String(operations.length).padStart(3, "0")}`, row));
  }
  return { key, rows: operations };
}

/** What people could not see change, or what follows from another member. */
const BOOKKEEPING: ReadonlySet<string> = new Set(["listing", "content", "firstSeenAt"]);

function membersThatDiffer(before: AssetRecord, after: AssetRecord): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)] as (keyof AssetRecord)[]);
  const differs = (name: keyof AssetRecord) => sorted(before[name]) !== sorted(after[name]);
  return [...names].filter((name) => !BOOKKEEPING.has(name) && differs(name)).sort();
}

/** Tags come in any order. */
const sorted = (value: unknown): string | undefined =>
  JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );

function countsOf(items: readonly PackedItem[]): ChangeRecord["counts"] {
  const none = () => forEachType(() => 0);
  const counts = { added: none(), updated: none(), removed: none() };
  for (const [kind, type] of items) counts[kind][type]++;
  return counts;
}

const Cursor = z.object({
  /** Hash of the filters it belongs to. */
  f: z.string(),
  /** The last row that was looked at, and how many of its changes that fit were answered or skipped. */
  k: z.string().max(1024),
  i: z.int().min(0),
  /** How many of the offset are still to be skipped. */
  s: z.int().min(0).max(MAX_OFFSET),
});

/** Rows of one page, and pages that one call looks through before it answers what it found with a cursor. */
const ROWS_PER_PAGE = 100;
const MAX_PAGES = 10;
const COUNTED = ["vaultName", "subscriptionId", "source", "counts"] as const;

/** The newest first. At most ten pages of changes and ten of counts. @throws {Problem} invalidCursor */
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
  const found: LoggedChange[] = [];
  let skip = cursor ? cursor.s : request.offset;
  let next: z.infer<typeof Cursor> | undefined;
  let pages = 0;
  const range = rangeOf(filter);
  const from = cursor ? { ...range, from: cursor.k } : range;
  walk: for await (const rows of tables.pages(ChangeRows, { ...from, pageSize: ROWS_PER_PAGE })) {
    for (const row of rows) {
      if (!fitsRow(row, filter)) continue;
      const fitting = itemsOf(row).filter(([kind, type]) => fitsItem(kind, type, filter));
      const begin = row.rowKey === cursor?.k ? cursor.i : 0;
      for (let at = begin; at < fitting.length; at++) {
        if (skip > 0) {
          skip--;
          continue;
        }
        if (found.length === request.limit) {
          next = { f: identity, k: row.rowKey, i: at, s: 0 };
          break walk;
        }
        found.push(logged(row, fitting[at]!));
      }
    }
    const last = rows.at(-1);
    if (++pages === MAX_PAGES && last) {
      // Where it was the last page after all, the next call finds nothing more.
      next = { f: identity, k: last.rowKey, i: Number.MAX_SAFE_INTEGER, s: skip };
      break;
    }
  }
  return {
    items: found,
    ...(await totalOf(tables, filter)),
    limit: request.limit,
    offset: request.offset,
    nextCursor: next ? encodeCursor(next) : null,
  };
}

async function totalOf(tables: Tables, filter: ChangeFilter): Promise<Pick<Page<unknown>, "total" | "totalAtLeast">> {
  let total = 0;
  let pages = 0;
  for await (const rows of tables.pages(ChangeRows, { ...rangeOf(filter), select: COUNTED })) {
    if (++pages > MAX_PAGES) return { total: null, totalAtLeast: total };
    for (const row of rows)
      if (fitsRow(row, filter)) for (const kind of CHANGE_KINDS) total += countIn(row, kind, filter);
    if (total > MAX_COUNTED) return { total: null, totalAtLeast: MAX_COUNTED };
  }
  return { total };
}

/** Rows whose counts one request reads. */
const MAX_COUNTED_ROWS = 1000;

/** One request. */
export async function countChanges(tables: Tables, filter: ChangeFilter): Promise<ChangeCounts> {
  const counts: ChangeCounts = { added: 0, updated: 0, removed: 0, complete: true };
  let read = 0;
  for await (const rows of tables.pages(ChangeRows, { ...rangeOf(filter), select: COUNTED })) {
    for (const row of rows)
      if (fitsRow(row, filter)) for (const kind of CHANGE_KINDS) counts[kind] += countIn(row, kind, filter);
    read += rows.length;
    if (read >= MAX_COUNTED_ROWS) return { ...counts, complete: false };
  }
  return counts;
}

function rangeOf({ since, until }: ChangeFilter) {
  // The keys count down: what comes later has the smaller key.
  const from = until === undefined ? PREFIX : keyEnd(instantKey(until.getTime()));
  const before = since === undefined ? keyEnd(PREFIX) : keyEnd(instantKey(since.getTime()));
  return { partitionKey: VAULTS, from, before };
}

const fitsRow = (
  row: Pick<ChangeRecord, "vaultName" | "subscriptionId" | "source">,
  { vault, subscription, source }: ChangeFilter,
): boolean =>
  (vault === undefined || (sourceOf(row) === "keyVault" && row.vaultName.toLowerCase() === vault.toLowerCase())) &&
  (subscription === undefined || row.subscriptionId.toLowerCase() === subscription.toLowerCase()) &&
  (source === undefined || sourceOf(row) === source);

const fitsItem = (kind: ChangeKind, type: AssetType, filter: ChangeFilter): boolean =>
  (filter.change === undefined || kind === filter.change) && (filter.type === undefined || type === filter.type);

const countIn = ({ counts }: Pick<ChangeRecord, "counts">, kind: ChangeKind, filter: ChangeFilter): number =>
  ASSET_TYPES.reduce((sum, type) => sum + (fitsItem(kind, type, filter) ? counts[kind][type] : 0), 0);

const itemsOf = (row: Row<ChangeRecord>): PackedItem[] => unpack(ChangeRows, row, "items", z.array(PackedItem));

const logged = (
  { at, vaultName, subscriptionId, source }: ChangeRecord,
  [kind, type, name, members]: PackedItem,
): LoggedChange => ({
  at,
  kind,
  type,
  name,
  vaultName,
  subscriptionId,
  source: sourceOf({ source }),
  members,
});

/** Rows that one purge removes. */
const ROWS_PER_PURGE = 5_000;

/** Removes what is older, at most so many rows. Answers whether there is more. */
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
