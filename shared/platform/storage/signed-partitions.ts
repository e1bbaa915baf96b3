import * as z from "zod";
import type { StoreClock } from "./clock.ts";
import type { StoredRow } from "./columns.ts";
import { isConflict } from "./conflict.ts";
import type { StorageConnection } from "./connection.ts";
import { entity, keysOnly } from "./entity.ts";
import { errorCode, StorageCorrupt } from "./errors.ts";
import { isListKey, keyEnd, LIST_PREFIX } from "./keys.ts";
import { MAX_PAGE_SIZE } from "./limits.ts";
import type { Operation } from "./operations.ts";
import { type Continuation, type PageQuery, queryPage, queryTypedPage } from "./query.ts";
import { LISTS, listEntity, listIndexOf, listKey, shortSignature } from "./row-lists.ts";
import { createRows } from "./rows.ts";
import {
  createRowSigning,
  type RowKeys,
  type SetAsideReason,
  SIGNATURE,
  setAsideReason,
  setAsideSignature,
} from "./signing.ts";
import { type ConnectedTable, createTableClients } from "./table-clients.ts";
import type { Tables } from "./tables.ts";

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

/** Compares signed rows with their lists, signs rows, and sets rows aside. `Tables` signs and lists each row that it writes. */
export interface SignedPartitions {
  /** Returns whether a row of the range has no signature. */
  hasUnsigned(range: SignedRange): Promise<boolean>;
  /**
   * Compares the rows of a listed range with their lists, and the lists with the counts of their writes in the key vault. Reads
   * only signatures. Returns the current counts, and rows that differ from their list also when they are read again.
   *
   * @param sequences - The counts that the key vault stores, by the index of the list. A missing count is 0.
   */
  compare(range: SignedRange, sequences: readonly number[]): Promise<{ sequences: number[]; findings: Finding[] }>;
  /**
   * Makes a row unreadable on every instance. Returns the row's ETag, or undefined if another writer changed the row since. The
   * row's content stays. A missing row gets a row without content, so that its absence does not take effect either.
   */
  setAside(finding: Finding & { reason: SetAsideReason }): Promise<string | undefined>;
  /**
   * Signs rows without a signature, and forgets listed rows that do not exist. Rows with a signature stay unchanged. Returns the
   * number of changes. A row that another writer changes at the same time is left to the next call.
   */
  signUnsigned(range: SignedRange): Promise<number>;
  /** Returns each row of a range that can't be read or differs from its list. Reads whole rows and writes nothing. */
  inspect(range: SignedRange, sequences: readonly number[]): Promise<Finding[]>;
  /**
   * Accepts the rows as they are: signs them, removes rows that stand for missing ones (`setAside` inserts them), and writes
   * the lists anew with higher counts than `sequences`: empty, and then with each row that is written. Only for a stopped app.
   * Can be repeated after a crash.
   *
   * @param options - `removed`: row keys of rows to remove instead.
   * @returns the counts of the lists.
   */
  acceptAll(
    range: SignedRange,
    options: { sequences: readonly number[]; removed: ReadonlySet<string> },
  ): Promise<number[]>;
}

/** Rows per transaction, which also writes up to 16 lists. */
const ROWS_PER_TRANSACTION = 50;
/** Attempts to read a row and its list without a write in between. */
const CONFIRM_ATTEMPTS = 5;
/** Columns that tell a person what a row is. */
const CONTENT = ["username", "role", "state", "name", "alertType", "user", "providerType", "subscriptionId"];

/** A list, or why it can't be read. Undefined if it does not exist. */
type List = { sequence: number; rows: ReadonlyMap<string, string> } | SetAsideReason | undefined;

/** Returns why a list can't be read: it was set aside as `missing`, or it is not the service's current list. */
const brokenList = ({ reason }: StorageCorrupt): SetAsideReason => (reason === "missing" ? "missing" : "olderState");

const filterOf = ({ partitionKey, from, before }: Pick<SignedRange, "partitionKey" | "from" | "before">) =>
  [
    `PartitionKey eq '${partitionKey}'`,
    ...(from === undefined ? [] : [`RowKey ge '${from}'`]),
    ...(before === undefined ? [] : [`RowKey lt '${before}'`]),
  ].join(" and ");

/** Returns why the rows of a list can't be trusted, or undefined. */
function listReason(list: List, sequence: number): SetAsideReason | undefined {
  if (typeof list === "string") return list;
  if (list === undefined) return sequence > 0 ? "missing" : undefined;
  return list.sequence < sequence ? "olderState" : undefined;
}

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

/** An entity of rows of any content, which are written as they were read. */
const rawEntity = ({ table, listed }: SignedRange) => entity(table, z.object({}), { signed: "adopted", listed });

/** Returns the columns that tell a person what a row is. */
const contentOf = (columns: Readonly<Record<string, unknown>>): string =>
  CONTENT.flatMap((name) => (columns[name] === undefined ? [] : [`${name} ${columns[name]}`])).join(", ");

export function createSignedPartitions(
  connection: StorageConnection,
  { tables, keys, clock }: { tables: Tables; keys: RowKeys; clock?: StoreClock },
): SignedPartitions {
  const clients = createTableClients(connection, { clock });
  const stored = createRows(clients);
  const signing = createRowSigning(keys);

  /** Yields the rows of a range, without its lists. */
  async function* read<R extends { rowKey?: unknown }>(
    range: SignedRange,
    query: (reached: ConnectedTable, page: PageQuery) => Promise<{ rows: R[]; next: Continuation | undefined }>,
    select?: readonly string[],
  ): AsyncGenerator<R, void> {
    let next: Continuation | undefined;
    do {
      const page = { filter: filterOf(range), select, top: MAX_PAGE_SIZE, next };
      try {
        const answer = await clients.run(range.table, { create: false }, (reached) => query(reached, page));
        for (const row of answer.rows) if (!isListKey(String(row.rowKey))) yield row;
        ({ next } = answer);
      } catch (error) {
        if (errorCode(error) === "TableNotFound") return;
        throw error;
      }
    } while (next !== undefined);
  }

  /** Yields the row keys of a range with their signatures. */
  async function* signatures(range: SignedRange): AsyncGenerator<{ rowKey: string; signature: unknown }, void> {
    const query = (reached: ConnectedTable, page: PageQuery) => queryPage(reached, range.table, page);
    // The service returns null for a selected column that a row does not have.
    for await (const row of read(range, query, ["PartitionKey", "RowKey", SIGNATURE]))
      yield { rowKey: row.rowKey as string, signature: row[SIGNATURE] ?? undefined };
  }

  const wholeRows = (range: SignedRange) => read(range, (reached, page) => queryTypedPage(reached, range.table, page));

  /** Reads the lists of a partition with one request. */
  async function readLists({ table, partitionKey }: SignedRange): Promise<List[]> {
    const lists: List[] = Array.from({ length: LISTS });
    const indexOf = (rowKey: string) => Number.parseInt(rowKey.slice(LIST_PREFIX.length), 16);
    const onCorrupt = (row: StorageCorrupt) => {
      lists[indexOf(row.rowKey)] = brokenList(row);
    };
    const range = { partitionKey, from: LIST_PREFIX, before: keyEnd(LIST_PREFIX), onCorrupt };
    for await (const rows of tables.pages(listEntity(table), range))
      for (const { rowKey, sequence, rows: listed } of rows)
        lists[indexOf(rowKey)] = { sequence, rows: new Map(listed) };
    // A row that the service did not write can have another index.
    return lists.slice(0, LISTS);
  }

  async function readList(table: string, partitionKey: string, rowKey: string): Promise<List> {
    try {
      const list = await tables.get(listEntity(table), partitionKey, rowKey);
      return list && { sequence: list.sequence, rows: new Map(list.rows) };
    } catch (error) {
      if (error instanceof StorageCorrupt) return brokenList(error);
      throw error;
    }
  }

  /** Reads a row and its list again, because the two were not read at the same time. */
  async function confirmed(
    range: SignedRange,
    rowKey: string,
    sequence: number,
  ): Promise<Finding["reason"] | undefined> {
    const { table, partitionKey } = range;
    for (let attempt = 1; ; attempt++) {
      const key = listKey(listIndexOf(rowKey));
      const before = await readList(table, partitionKey, key);
      const row = await stored.read(table, partitionKey, rowKey);
      const after = await readList(table, partitionKey, key);
      if (typeof before === "object" && typeof after === "object" && before.sequence !== after.sequence) {
        // A row that changes all the time is compared at the next call.
        if (attempt === CONFIRM_ATTEMPTS) return undefined;
        continue;
      }
      if (row !== undefined) {
        const reason = rowReason(after, sequence, rowKey, row.row[SIGNATURE]);
        // Accepted by reads, because an instance of an earlier version wrote it during the upgrade.
        const isAccepted = reason === "unsigned" && (await isReadable(table, row.row));
        return isAccepted ? undefined : reason;
      }
      return typeof after === "object" && after.rows.has(rowKey) ? "missing" : undefined;
    }
  }

  async function isReadable(table: string, row: StoredRow): Promise<boolean> {
    try {
      await signing.verify({ table, signed: "adopted" }, row);
      return true;
    } catch (error) {
      if (error instanceof StorageCorrupt) return false;
      throw error;
    }
  }

  async function compare(range: SignedRange, sequences: readonly number[]) {
    const { table, partitionKey } = range;
    const lists = await readLists(range);
    const findings: Finding[] = [];
    for (const [index, list] of lists.entries()) {
      const reason = listReason(list, sequences[index] ?? 0);
      if (reason) findings.push({ table, partitionKey, rowKey: listKey(index), reason });
    }
    const broken = new Set(findings.map(({ rowKey }) => rowKey));
    // A list that can't be trusted does not show which of its rows are missing.
    for (const rowKey of range.fixedKeys ?? [])
      if (broken.has(listKey(listIndexOf(rowKey))) && !(await stored.read(table, partitionKey, rowKey)))
        findings.push({ table, partitionKey, rowKey, reason: "missing" });
    const suspects = new Set<string>();
    const missing = new Set(lists.flatMap((list) => (typeof list === "object" ? [...list.rows.keys()] : [])));
    for await (const { rowKey, signature } of signatures(range)) {
      missing.delete(rowKey);
      const index = listIndexOf(rowKey);
      if (rowReason(lists[index], sequences[index] ?? 0, rowKey, signature)) suspects.add(rowKey);
    }
    for (const rowKey of [...suspects, ...missing]) {
      const reason = await confirmed(range, rowKey, sequences[listIndexOf(rowKey)] ?? 0);
      if (reason) findings.push({ table, partitionKey, rowKey, reason });
    }
    return {
      sequences: lists.map((list, index) =>
        Math.max(typeof list === "object" ? list.sequence : 0, sequences[index] ?? 0),
      ),
      findings,
    };
  }

  async function rewrite(range: SignedRange, operations: readonly Operation[]): Promise<number> {
    let written = 0;
    for (let at = 0; at < operations.length; at += ROWS_PER_TRANSACTION) {
      const some = operations.slice(at, at + ROWS_PER_TRANSACTION);
      try {
        await tables.transaction(range.table, range.partitionKey, some);
        written += some.length;
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Another writer changed one of the rows. The others are written one by one.
        for (const operation of some.length === 1 ? [] : some) written += await rewrite(range, [operation]);
      }
    }
    return written;
  }

  /** Removes listed rows that do not exist from their lists. */
  async function forgetMissing(range: SignedRange): Promise<number> {
    if (!range.listed) return 0;
    const { findings } = await compare(range, []);
    const isBroken = (key: string) => findings.some(({ rowKey }) => rowKey === key);
    const missing = findings.filter(
      ({ reason, rowKey }) => reason === "missing" && !isListKey(rowKey) && !isBroken(listKey(listIndexOf(rowKey))),
    );
    let forgotten = 0;
    for (const { table, partitionKey, rowKey } of missing) {
      await tables.modify(listEntity(table), partitionKey, listKey(listIndexOf(rowKey)), (list) => {
        if (!list) return undefined;
        const rows = list.rows.filter(([key]) => key !== rowKey);
        return { sequence: list.sequence + 1, rows };
      });
      forgotten++;
    }
    return forgotten;
  }

  return {
    async hasUnsigned(range) {
      for await (const { signature } of signatures(range)) if (signature === undefined) return true;
      return false;
    },

    compare,

    async setAside({ table, partitionKey, rowKey, reason }) {
      const row = await stored.read(table, partitionKey, rowKey);
      if (setAsideReason(row?.row[SIGNATURE]) !== undefined) return row!.row.etag as string;
      const columns = { [SIGNATURE]: setAsideSignature(reason) };
      const anyRow = keysOnly({ table });
      try {
        return await stored.apply(partitionKey, {
          ...(row ? { kind: "merge", etag: row.row.etag as string } : { kind: "insert" }),
          entity: anyRow,
          rowKey,
          columns,
        });
      } catch (error) {
        if (isConflict(error)) return undefined;
        throw error;
      }
    },

    async signUnsigned(range) {
      const operations: Operation[] = [];
      const anyRow = rawEntity(range);
      for await (const { rowKey, etag, columns } of wholeRows(range)) {
        if (columns[SIGNATURE] !== undefined) continue;
        operations.push({ kind: "replace", entity: anyRow, rowKey, columns, etag });
      }
      const written = await rewrite(range, operations);
      return written + (await forgetMissing(range));
    },

    async inspect(range, sequences) {
      const { table, partitionKey } = range;
      const reasons = new Map<string, Finding["reason"]>();
      if (range.listed)
        for (const { rowKey, reason } of (await compare(range, sequences)).findings) reasons.set(rowKey, reason);
      const contents = new Map<string, string>();
      for await (const { rowKey, columns, etag } of wholeRows(range)) {
        contents.set(rowKey, contentOf(columns));
        if (reasons.has(rowKey)) continue;
        const signature = columns[SIGNATURE];
        const aside = signature === undefined ? "unsigned" : setAsideReason(signature);
        if (aside !== undefined) reasons.set(rowKey, aside as SetAsideReason);
        else if (!(await isReadable(table, { ...columns, partitionKey, rowKey, etag }))) reasons.set(rowKey, "changed");
      }
      return [...reasons].map(([rowKey, reason]) => ({
        table,
        partitionKey,
        rowKey,
        reason,
        content: contents.get(rowKey) ?? "",
      }));
    },

    async acceptAll(range, { sequences, removed }) {
      const { table, partitionKey } = range;
      const lists = range.listed ? await readLists(range) : [];
      const next = lists.map(
        (list, index) => Math.max(typeof list === "object" ? list.sequence : 0, sequences[index] ?? 0) + 1,
      );
      for (const [index, sequence] of next.entries())
        await tables.put(listEntity(table), partitionKey, listKey(index), { sequence, rows: [] });
      const operations: Operation[] = [];
      const anyRow = rawEntity(range);
      for await (const { rowKey, etag, columns: all } of wholeRows(range)) {
        const { [SIGNATURE]: signature, ...columns } = all;
        const isEmpty = setAsideReason(signature) === "missing" && Object.keys(columns).length === 0;
        const kind = isEmpty || removed.has(rowKey) ? "remove" : "replace";
        operations.push({ kind, entity: anyRow, rowKey, columns: kind === "remove" ? {} : columns, etag });
      }
      await rewrite(range, operations);
      const written = range.listed ? await readLists(range) : [];
      return written.map((list) => (typeof list === "object" ? list.sequence : 0));
    },
  };
}
