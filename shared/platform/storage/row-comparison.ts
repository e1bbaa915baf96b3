import pMap from "p-map";
import type { StoredRow } from "./columns.ts";
import { errorCode, StorageCorrupt } from "./errors.ts";
import { isListKey, keyEnd } from "./keys.ts";
import { MAX_PAGE_SIZE } from "./limits.ts";
import { type Continuation, type PageQuery, queryPage, queryTypedPage, type TypedRow } from "./query.ts";
import {
  isOlder,
  LISTS,
  type ListState,
  listEntity,
  listIndexOf,
  listKey,
  type RowList,
  shortSignature,
} from "./row-lists.ts";
import type { Rows } from "./rows.ts";
import { type RowSigning, type SetAsideReason, SIGNATURE, setAsideReason } from "./signing.ts";
import type { ConnectedTable, TableClients } from "./table-clients.ts";
import type { Tables } from "./tables.ts";

/*
 * Compares signed rows with the lists of their partition. A list is one of 16 signed rows that name the partition's other rows,
 * each with the start of its current signature (row-lists.ts). So an earlier state of a row, a removed row, and a removed row that
 * was put back differ from the list. The sequence of a list counts the comparisons that found the list changed. The key vault
 * stores the sequence too, so an earlier state of a list has a lower sequence than the key vault. Rows that must not take effect
 * are set aside: a reason replaces their signature.
 */

/** Rows of one partition that are all signed with keys: from <= rowKey < before. */
export interface SignedRange {
  readonly table: string;
  readonly partitionKey: string;
  readonly from?: string;
  readonly before?: string;
  /** Whether the rows are in the partition's lists (row-lists.ts). A partition has one listed range at most. */
  readonly listed: boolean;
  /** Keys of listed rows that always exist once their list does, so that their removal is detected even without the list. */
  readonly fixedKeys?: readonly string[];
}

/** A row that must not take effect. */
export interface Finding {
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** `changed`: the signature is wrong. `unsigned`: it is missing. The others: the row differs from its list. */
  readonly reason: SetAsideReason | "changed";
  /** Columns of the row that tell a person what it is. Never a hash or a signature. Only from `inspect`. */
  readonly content?: string;
}

/** A finding with the row's signature when it was found, so that a state that the service wrote since is not set aside. */
export interface ComparedRow extends Finding {
  /** Undefined for a row without a signature, for a missing row, and for a list. */
  readonly signature?: unknown;
}

/** Reads signed rows, and compares them with their lists. Writes nothing. */
export interface RowComparison {
  /** Yields the row keys of a range, without its lists, with their signatures. */
  signatures(range: SignedRange): AsyncGenerator<{ rowKey: string; signature: unknown }, void>;
  /** Yields the rows of a range, without its lists. */
  wholeRows(range: SignedRange): AsyncGenerator<TypedRow, void>;
  /** Returns whether reads accept the row. */
  isReadable(table: string, row: TypedRow): Promise<boolean>;
  /** Reads the lists of a partition with one request. */
  readLists(range: SignedRange): Promise<List[]>;
  /**
   * Compares the rows of a listed range with their lists, and the lists with their sequences in the key vault. Reads only
   * signatures. Returns the lists, and rows that differ from their list also when they are read again.
   */
  compareRows(range: SignedRange, sequences: readonly number[]): Promise<{ lists: List[]; findings: ComparedRow[] }>;
}

/** Attempts to read a row and its list without a write in between. */
const CONFIRM_ATTEMPTS = 5;
const PARALLEL_READS = 8;
/**
 * Maximum number of rows without an entry in a list that one comparison reads again, chosen at random, because another program can
 * write any number of them. They are set aside, and the next comparison reads others.
 */
const MAX_NOT_LISTED = 500;
/** Maximum number of rows that one comparison reports although an earlier comparison has set them aside. */
const MAX_SET_ASIDE = 100;

/** A list, or why it can't be read. Undefined if it does not exist. */
export type List = { sequence: number; writes: number; rows: ReadonlyMap<string, string> } | SetAsideReason | undefined;

/** Returns why a list can't be read: it was set aside as `missing`, or it is not the service's current list. */
const brokenList = ({ reason }: StorageCorrupt): SetAsideReason => (reason === "missing" ? "missing" : "olderState");

/** The keys of signed ranges are constants without quotes, so nothing is escaped. */
const filterOf = ({ partitionKey, from, before }: Pick<SignedRange, "partitionKey" | "from" | "before">) =>
  [
    `PartitionKey eq '${partitionKey}'`,
    ...(from === undefined ? [] : [`RowKey ge '${from}'`]),
    ...(before === undefined ? [] : [`RowKey lt '${before}'`]),
  ].join(" and ");

/** Returns a text that differs after each write of a list. `writes` counts the writes with the same sequence. */
const stateOf = (list: List) => (typeof list === "object" ? `${list.sequence} ${list.writes}` : list);

/** Returns why the rows of a list can't be trusted, or undefined. */
function listReason(list: List, sequence: number): SetAsideReason | undefined {
  if (typeof list === "string") return list;
  if (list === undefined) return sequence > 0 ? "missing" : undefined;
  return list.sequence < sequence ? "olderState" : undefined;
}

/** Returns at most `count` of the values, chosen at random. */
function someOf<T>(values: readonly T[], count: number): T[] {
  if (values.length <= count) return [...values];
  const shuffled = [...values];
  for (let index = 0; index < count; index++) {
    const other = index + Math.floor(Math.random() * (shuffled.length - index));
    [shuffled[index], shuffled[other]] = [shuffled[other]!, shuffled[index]!];
  }
  return shuffled.slice(0, count);
}

/** @param newest - The newest state that this process had written before it read the list. */
const toList = ({ sequence, writes, rows }: RowList, newest: ListState | undefined): List =>
  newest && isOlder({ sequence, writes }, newest) ? "olderState" : { sequence, writes, rows: new Map(rows) };

/** Returns why a row must not take effect by its signature and its list, or undefined. */
function rowReason(list: List, sequence: number, rowKey: string, signature: unknown): Finding["reason"] | undefined {
  if (signature === undefined) return "unsigned";
  const aside = setAsideReason(signature);
  if (aside !== undefined) return aside as SetAsideReason;
  if (listReason(list, sequence) !== undefined) return "olderState";
  const listed = typeof list === "object" ? list.rows.get(rowKey) : undefined;
  if (listed === undefined) return "notListed";
  return listed === shortSignature(signature) ? undefined : "olderState";
}

const storedRow = ({ columns, ...system }: TypedRow): StoredRow => ({ ...columns, ...system });

export function createRowComparison(deps: {
  clients: TableClients;
  stored: Rows;
  signing: RowSigning;
  tables: Tables;
}): RowComparison {
  const { clients, stored, signing, tables } = deps;

  /** Yields the rows of a range, without its lists. */
  async function* read<R extends { rowKey?: unknown }>(
    range: SignedRange,
    query: (connection: ConnectedTable, page: PageQuery) => Promise<{ rows: R[]; next: Continuation | undefined }>,
    select?: readonly string[],
  ): AsyncGenerator<R, void> {
    let next: Continuation | undefined;
    do {
      const page = { filter: filterOf(range), select, top: MAX_PAGE_SIZE, next };
      try {
        const answer = await clients.run(range.table, { create: false }, (connection) => query(connection, page));
        for (const row of answer.rows) if (!isListKey(String(row.rowKey))) yield row;
        ({ next } = answer);
      } catch (error) {
        if (errorCode(error) === "TableNotFound") return;
        throw error;
      }
    } while (next !== undefined);
  }

  async function* signatures(range: SignedRange): AsyncGenerator<{ rowKey: string; signature: unknown }, void> {
    const query = (connection: ConnectedTable, page: PageQuery) => queryPage(connection, range.table, page);
    // The service returns null for a selected column that a row does not have.
    for await (const row of read(range, query, ["PartitionKey", "RowKey", SIGNATURE]))
      yield { rowKey: row.rowKey as string, signature: row[SIGNATURE] ?? undefined };
  }

  const wholeRows = (range: SignedRange) =>
    read(range, (connection, page) => queryTypedPage(connection, range.table, page));

  async function readLists({ table, partitionKey }: SignedRange): Promise<List[]> {
    const lists: List[] = Array.from({ length: LISTS });
    const keys = lists.map((_, index) => listKey(index));
    const written = tables.writtenLists(table, partitionKey);
    const onCorrupt = (row: StorageCorrupt) => {
      lists[keys.indexOf(row.rowKey)] = brokenList(row);
    };
    const only = (rowKey: string) => keys.includes(rowKey);
    const range = { partitionKey, from: keys[0]!, before: keyEnd(keys.at(-1)!), only, onCorrupt };
    for await (const rows of tables.pages(listEntity(table), range))
      for (const list of rows) lists[keys.indexOf(list.rowKey)] = toList(list, written.get(list.rowKey));
    return lists;
  }

  async function readList(table: string, partitionKey: string, rowKey: string): Promise<List> {
    const newest = tables.writtenLists(table, partitionKey).get(rowKey);
    try {
      const list = await tables.get(listEntity(table), partitionKey, rowKey);
      return list && toList(list, newest);
    } catch (error) {
      if (error instanceof StorageCorrupt) return brokenList(error);
      throw error;
    }
  }

  /**
   * Reads a row and its list again, because the two were not read at the same time. Returns undefined if they do not differ.
   */
  async function confirmed(range: SignedRange, rowKey: string, sequence: number): Promise<ComparedRow | undefined> {
    const { table, partitionKey } = range;
    const keys = { table, partitionKey, rowKey };
    for (let attempt = 1; ; attempt++) {
      const key = listKey(listIndexOf(rowKey));
      const before = await readList(table, partitionKey, key);
      const row = await stored.read(table, partitionKey, rowKey);
      const after = await readList(table, partitionKey, key);
      if (stateOf(before) !== stateOf(after)) {
        // A row that changes all the time is compared at the next call.
        if (attempt === CONFIRM_ATTEMPTS) return undefined;
        continue;
      }
      if (row !== undefined) {
        const signature = row.row[SIGNATURE];
        const reason = rowReason(after, sequence, rowKey, signature);
        // Accepted by reads, because an instance of an earlier version wrote it during the upgrade.
        const isFromUpgrade = reason === "unsigned" && (await isAccepted(table, row.row));
        return isFromUpgrade || !reason ? undefined : { ...keys, reason, signature };
      }
      return typeof after === "object" && after.rows.has(rowKey) ? { ...keys, reason: "missing" } : undefined;
    }
  }

  async function isAccepted(table: string, row: StoredRow): Promise<boolean> {
    try {
      await signing.verify({ table, signed: "adopted" }, row);
      return true;
    } catch (error) {
      if (error instanceof StorageCorrupt) return false;
      throw error;
    }
  }

  async function compareRows(range: SignedRange, sequences: readonly number[]) {
    const { table, partitionKey } = range;
    const lists = await readLists(range);
    const findings: ComparedRow[] = [];
    for (const [index, list] of lists.entries()) {
      const reason = listReason(list, sequences[index] ?? 0);
      if (reason) findings.push({ table, partitionKey, rowKey: listKey(index), reason });
    }
    const broken = new Set(findings.map(({ rowKey }) => rowKey));
    // A list that can't be trusted does not show which of its rows are missing.
    for (const rowKey of range.fixedKeys ?? [])
      if (broken.has(listKey(listIndexOf(rowKey))) && !(await stored.read(table, partitionKey, rowKey)))
        findings.push({ table, partitionKey, rowKey, reason: "missing" });
    const notListed: string[] = [];
    const rowsSetAside: ComparedRow[] = [];
    /** Listed rows that were not read, or differ. */
    const differing = new Set(lists.flatMap((list) => (typeof list === "object" ? [...list.rows.keys()] : [])));
    for await (const { rowKey, signature } of signatures(range)) {
      const index = listIndexOf(rowKey);
      const reason = rowReason(lists[index], sequences[index] ?? 0, rowKey, signature);
      const isAside = setAsideReason(signature) !== undefined;
      if (isAside) rowsSetAside.push({ table, partitionKey, rowKey, reason: reason!, signature });
      else if (reason && !differing.has(rowKey)) notListed.push(rowKey);
      if (isAside || !reason) differing.delete(rowKey);
    }
    const toConfirm = [...differing, ...someOf(notListed, MAX_NOT_LISTED)];
    const confirm = (rowKey: string) => confirmed(range, rowKey, sequences[listIndexOf(rowKey)] ?? 0);
    for (const finding of await pMap(toConfirm, confirm, { concurrency: PARALLEL_READS }))
      if (finding) findings.push(finding);
    return { lists, findings: [...findings, ...someOf(rowsSetAside, MAX_SET_ASIDE)] };
  }

  return {
    signatures,
    wholeRows,
    isReadable: (table, row) => isAccepted(table, storedRow(row)),
    readLists,
    compareRows,
  };
}
