import { setTimeout as delay } from "node:timers/promises";
import * as z from "zod";
import { countLeftOut, isAnsweringGet } from "../incomplete-answer.ts";
import type { Logger } from "../runtime.ts";
import { batches, removeIfExists, type WriteOptions, writeAll } from "./bulk-write.ts";
import type { StoreClock } from "./clock.ts";
import { columnOf, decode, encode, isTruncated, type StoredRow, validate } from "./columns.ts";
import { repeatOnConflict } from "./conflict.ts";
import type { StorageConnection } from "./connection.ts";
import type { Entity, Row } from "./entity.ts";
import { errorCode, RowMissing, StorageCorrupt } from "./errors.ts";
import { createFence, type Fence, type FenceRecord } from "./fence.ts";
import { MAX_PAGE_SIZE, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS } from "./limits.ts";
import { type Operation, remove } from "./operations.ts";
import { type Continuation, type PageQuery, queryPage, type StoredPage } from "./query.ts";
import { createWrittenLists, isOlder, type ListState, listEntity, type RowList, writeListed } from "./row-lists.ts";
import { createRows, type Rows } from "./rows.ts";
import { createRowSigning, type RowKeys, type RowSigning } from "./signing.ts";
import { createTableClients, type TableClients } from "./table-clients.ts";
import { BODY_FRAME_BYTES, checkTable, transactionParts } from "./transaction.ts";

export type { WriteOptions } from "./bulk-write.ts";
export {
  isUnclear,
  RowChanged,
  RowExists,
  RowInvalid,
  RowMissing,
  SigningKeysMissing,
  StorageCorrupt,
} from "./errors.ts";
export { type Fence, type FenceRecord, fenceEntity } from "./fence.ts";
export {
  type Encoded,
  encoded,
  insert,
  merge,
  type Operation,
  put,
  putEncoded,
  remove,
  replace,
} from "./operations.ts";

/** Range of rows in one partition, ordered by row key: from <= rowKey < before and after < rowKey. */
export interface Range {
  readonly partitionKey: string;
  readonly from?: string;
  readonly before?: string;
  /** Exclusive lower bound: the last row key of an earlier read. */
  readonly after?: string;
  /** Rows per page, 1..1000, default 1000. */
  readonly pageSize?: number;
  /** Returns false for the keys of other kinds of rows in the range. Such rows are skipped, and need not match the entity. */
  readonly only?: (rowKey: string) => boolean;
  /**
   * What happens with a row that can't be read. `throw`: the read throws StorageCorrupt, so that no work is based on a missing row.
   * `leaveOut`: the row is left out, so the page may be empty, and the answer counts the row (`incomplete-answer.ts`). A callback
   * receives the row, which is left out but not counted. Default: `leaveOut` while a GET request is answered, otherwise `throw`.
   */
  readonly onCorrupt?: ((row: StorageCorrupt) => void) | "throw" | "leaveOut";
}

export interface GetOptions {
  /** Receives a row that can't be read, for which `get` then returns undefined. By default, `get` throws StorageCorrupt. */
  readonly onCorrupt?: (row: StorageCorrupt) => void;
}

/**
 * Reads and writes typed rows in Azure Table Storage. The first write creates a table. Before that, reads of the table return
 * no rows.
 *
 * Every method throws RowInvalid for a value that does not match its entity or that the service would reject. Every method
 * throws StorageCorrupt for a stored row that does not match, except with `onCorrupt`. A request to a busy or unreachable
 * service is sent up to five times, then its error is thrown. `Rows` describes the guarantees after a lost answer.
 */
export interface Tables {
  /** Returns a row. Undefined if it does not exist. */
  get<T>(e: Entity<T>, partitionKey: string, rowKey: string, options?: GetOptions): Promise<Row<T> | undefined>;
  /**
   * Returns a row and the time since its last write in milliseconds, with a resolution of a second. Uses only the service's
   * clock: the answer's Date minus the row's Timestamp. Leases use this age.
   */
  getWithAge<T>(
    e: Entity<T>,
    partitionKey: string,
    rowKey: string,
  ): Promise<{ row: Row<T>; ageMs: number } | undefined>;
  /** @throws RowExists if the row exists. */
  insert<T>(e: Entity<T>, partitionKey: string, rowKey: string, value: NoInfer<T>): Promise<Row<T>>;
  /** Inserts a row, or replaces an existing row. */
  put<T>(e: Entity<T>, partitionKey: string, rowKey: string, value: NoInfer<T>): Promise<Row<T>>;
  /** @throws RowChanged if the ETag is stale or the row is missing. */
  replace<T>(e: Entity<T>, row: Row<NoInfer<T>>): Promise<Row<T>>;
  /**
   * Returns false if the row did not exist.
   *
   * @throws RowChanged if the ETag is stale.
   */
  remove(e: Entity<unknown>, partitionKey: string, rowKey: string, etag?: string): Promise<boolean>;
  /**
   * Reads a row, applies `change`, and writes the row with its ETag. Starts again if another writer changed the row in between.
   *
   * @param change - Receives undefined if the row is missing. Return undefined to leave the row unchanged. Called once per
   * attempt.
   * @param options - `replaceCorrupt`: a row that can't be read counts as missing and is replaced. For rows that can be computed
   * again.
   * @returns the current row.
   * @throws RowChanged, or RowExists, after ten attempts.
   */
  modify<T>(
    e: Entity<T>,
    partitionKey: string,
    rowKey: string,
    change: (now: Row<T> | undefined) => NoInfer<T> | undefined,
    options?: { readonly replaceCorrupt?: boolean },
  ): Promise<Row<T> | undefined>;
  /**
   * Submits one atomic transaction: 1 to 100 operations in one partition, each on a different row, at most 4 MiB.
   *
   * @returns the new ETags by row key; "" for a removed row.
   * @throws RowExists, RowChanged or RowMissing with the row key and the index of the operation. No operation was applied then.
   */
  transaction(table: string, partitionKey: string, operations: readonly Operation[]): Promise<Map<string, string>>;
  /**
   * Writes the operations in as many transactions as needed, each as full as the limits allow. The transactions together are
   * not atomic, but the call can be repeated after a crash: an insert counts as a put, and removing a missing row succeeds.
   * Operations on the same row are applied in order. Otherwise up to `parallel` transactions run concurrently.
   */
  write(table: string, partitionKey: string, operations: Iterable<Operation>, options?: WriteOptions): Promise<void>;
  /**
   * Splits operations into batches of the size of a transaction, in order. Each batch leaves room for the `lead` operations and
   * for the further `operations` and `bytes` of `reserved`. The first batch may be empty.
   */
  batches(
    table: string,
    partitionKey: string,
    operations: Iterable<Operation>,
    reserved: { readonly lead: readonly Operation[]; readonly operations?: number; readonly bytes: number },
  ): Promise<Operation[][]>;
  /** Returns one worker's access to a fence row, without a request. See `Fence`. */
  fence(
    e: Entity<FenceRecord>,
    partitionKey: string,
    rowKey: string,
    hold: { readonly owner: string; readonly etag: string | undefined },
  ): Fence;
  /**
   * Reads the pages of a range, one request each. The service can end a page early, so a page can be short. An empty page is
   * returned only if none of its rows could be read. The rows of one page are consistent with each other. To
   * resume, set `after` to the last row key. With `select`, only these members are read.
   */
  pages<T, K extends keyof T & string>(
    e: Entity<T>,
    range: Range & { readonly select: readonly K[] },
  ): AsyncGenerator<Row<Pick<T, K>>[], void>;
  pages<T>(e: Entity<T>, range: Range): AsyncGenerator<Row<T>[], void>;
  /** Returns the newest states of a partition's lists of rows that this process wrote, by row key. Costs no request. */
  writtenLists(table: string, partitionKey: string): ReadonlyMap<string, ListState>;
  /**
   * Reports a row whose content a module could not use, although it matches its entity, and counts it as left out of the answer
   * of the current request.
   */
  leaveOut(row: StorageCorrupt): Promise<void>;
  /**
   * Lists the table's partition keys in order, one request each, `after` exclusive. This is the only query across partitions.
   * The reconciliation uses it to find partitions that no other row names.
   */
  partitions(table: string, after?: string): AsyncGenerator<string, void>;
}

/**
 * `modify` waits a random time between its attempts. The maximum wait starts with `MODIFY_FIRST_PAUSE_MS` and doubles up to
 * `MODIFY_MAX_PAUSE_MS`.
 */
const MODIFY_TRIES = 10;
const MODIFY_FIRST_PAUSE_MS = 20;
const MODIFY_MAX_PAUSE_MS = 500;

/**
 * Creates the access to typed rows that `Tables` describes.
 *
 * @param keys - Keys of signed rows. Without them, signed rows can't be read or written.
 * @param onUnreadable - Receives every stored row that can't be read, before the read continues or throws. Must not throw.
 */
export function createTables(
  connection: StorageConnection,
  {
    log,
    clock,
    keys,
    onUnreadable,
  }: {
    log?: Logger;
    clock?: StoreClock;
    keys?: RowKeys | undefined;
    onUnreadable?: (rows: readonly StorageCorrupt[]) => Promise<void>;
  } = {},
): Tables {
  const clients = createTableClients(connection, { log, clock });
  const rows = createRows(clients);
  const signing = createRowSigning(keys);
  const written = createWrittenLists();

  async function verifyAndDecode<T>(e: Entity<T>, stored: StoredRow, selected: Selected = e): Promise<Row<T>> {
    await signing.verify(e, stored);
    return decode<T>(e.table, selected.schema, selected.members, stored);
  }

  /** Decodes a row that was read by its key. */
  async function decodeOne<T>(e: Entity<T>, stored: StoredRow): Promise<Row<T>> {
    try {
      return await verifyAndDecode(e, stored);
    } catch (error) {
      if (error instanceof StorageCorrupt) await onUnreadable?.([error]);
      throw error;
    }
  }

  async function writeRow<T>(
    e: Entity<T>,
    partitionKey: string,
    rowKey: string,
    value: T,
    kindAndEtag: Pick<Operation, "kind" | "etag">,
  ) {
    const checked = validate(e, rowKey, value);
    const operation: Operation = { ...kindAndEtag, entity: e, rowKey, columns: encode(e.members, checked as object) };
    if (isListed(operation)) {
      const etags = await tables.transaction(e.table, partitionKey, [operation]);
      return { ...checked, partitionKey, rowKey, etag: etags.get(rowKey)! };
    }
    const etag = await rows.apply(partitionKey, await signing.sign(partitionKey, operation));
    return { ...checked, partitionKey, rowKey, etag };
  }

  /**
   * Returns whether a write also changes a list of rows: a signed row that names rows of its partition with their signatures
   * (row-lists.ts). A removed row, or an earlier state of a row, differs from its list. One transaction writes both.
   */
  const isListed = ({ entity }: Operation) => entity.listed && signing.isSigned(entity);

  /** Reads a list of rows, for a write of one of its rows. */
  async function readList(table: string, partitionKey: string, rowKey: string): Promise<Row<RowList> | undefined> {
    const newest = written.statesOf(table, partitionKey).get(rowKey);
    const stored = await rows.read(table, partitionKey, rowKey);
    const list = stored && (await decodeOne(listEntity(table), stored.row));
    if (!list || !newest || !isOlder(list, newest)) return list;
    // Another program put the list back. A write would make it look current.
    const older = new StorageCorrupt(table, list, "olderState");
    await onUnreadable?.([older]);
    throw older;
  }

  const tables: Omit<Tables, "pages" | "partitions" | "leaveOut"> = {
    async get<T>(e: Entity<T>, partitionKey: string, rowKey: string, { onCorrupt }: GetOptions = {}) {
      const stored = await rows.read(e.table, partitionKey, rowKey);
      try {
        return stored && (await decodeOne(e, stored.row));
      } catch (error) {
        if (!(error instanceof StorageCorrupt) || onCorrupt === undefined) throw error;
        onCorrupt(error);
        return undefined;
      }
    },
    async getWithAge<T>(e: Entity<T>, partitionKey: string, rowKey: string) {
      const stored = await rows.read(e.table, partitionKey, rowKey);
      if (stored === undefined) return undefined;
      const ageMs = stored.date - Date.parse(stored.row.timestamp as string);
      return { row: await decodeOne(e, stored.row), ageMs };
    },
    insert: (e, partitionKey, rowKey, value) => writeRow(e, partitionKey, rowKey, value, { kind: "insert" }),
    put: (e, partitionKey, rowKey, value) => writeRow(e, partitionKey, rowKey, value, { kind: "put" }),
    replace: (e, row) => writeRow(e, row.partitionKey, row.rowKey, row, { kind: "replace", etag: row.etag }),
    async remove(e, partitionKey, rowKey, etag) {
      const operation = remove(e, rowKey, etag);
      if (!isListed(operation)) return await removeIfExists(rows, partitionKey, operation);
      try {
        await tables.transaction(e.table, partitionKey, [operation]);
        return true;
      } catch (error) {
        if (error instanceof RowMissing && error.rowKey === rowKey) return false;
        throw error;
      }
    },

    modify: (e, partitionKey, rowKey, change, options) =>
      modifyRow(tables, e, { partitionKey, rowKey }, change, options),

    async transaction(table, partitionKey, operations) {
      if (operations.length === 0 || operations.length > MAX_TRANSACTION_OPERATIONS)
        throw new RangeError(
          `A transaction has 1 to ${MAX_TRANSACTION_OPERATIONS} operations, not ${operations.length}.`,
        );
      if (new Set(operations.map(({ rowKey }) => rowKey)).size < operations.length)
        throw new RangeError("A transaction can't contain two operations on the same row.");
      for (const operation of operations) checkTable(table, operation);
      const { address } = await clients.connect(table);
      const signed = await Promise.all(operations.map((operation) => signing.sign(partitionKey, operation)));
      const submit = async (withLists: readonly Operation[]) => {
        if (withLists.length > MAX_TRANSACTION_OPERATIONS)
          throw new RangeError(`A transaction with its lists has ${withLists.length} operations.`);
        const parts = withLists.map(transactionParts({ address, table, partitionKey }));
        const bytes = parts.reduce((sum, part) => sum + part.bytes, BODY_FRAME_BYTES);
        if (bytes > MAX_TRANSACTION_BYTES)
          throw new RangeError(`A transaction of ${bytes} bytes is larger than ${MAX_TRANSACTION_BYTES}.`);
        return await rows.submit(table, partitionKey, parts);
      };
      if (!signed.some(isListed)) return await submit(signed);
      return await writeListed({ table, partitionKey, operations: signed }, { readList, signing, written, submit });
    },

    async write(table, partitionKey, operations, options = {}) {
      const { address } = await clients.connect(table);
      await writeAll(rows, { table, partitionKey, address }, operations, options);
    },

    async batches(table, partitionKey, operations, { lead, operations: reservedOperations = 0, bytes }) {
      const { address } = await clients.connect(table);
      const target = { table, partitionKey, address };
      const size = lead.map(transactionParts(target)).reduce((sum, part) => sum + part.bytes, bytes);
      const reserved = { operations: lead.length + reservedOperations, bytes: size };
      return [...batches(target, operations, reserved)].map((parts) => parts.map(({ operation }) => operation));
    },

    writtenLists: written.statesOf,

    fence: (e, partitionKey, rowKey, hold) => createFence({ rows, clients }, e, { partitionKey, rowKey }, hold),
  };

  const { pages, partitions } = createPageReader({ clients, rows, signing, verifyAndDecode, onUnreadable });

  async function leaveOut(row: StorageCorrupt): Promise<void> {
    await onUnreadable?.([row]);
    countLeftOut(row);
  }

  return { ...tables, pages: pages as Tables["pages"], partitions, leaveOut };
}

/** Creates the reads of many rows: see `Tables.pages` and `Tables.partitions`. */
function createPageReader(deps: {
  clients: TableClients;
  rows: Rows;
  signing: RowSigning;
  verifyAndDecode: <T>(e: Entity<T>, stored: StoredRow, selected?: Selected) => Promise<Row<T>>;
  onUnreadable: ((rows: readonly StorageCorrupt[]) => Promise<void>) | undefined;
}) {
  const { clients, rows, signing, verifyAndDecode, onUnreadable } = deps;

  /** Returns undefined if the table does not exist. */
  async function readPage(table: string, query: PageQuery): Promise<StoredPage | undefined> {
    try {
      return await clients.run(table, { create: false }, (connection) => queryPage(connection, table, query));
    } catch (error) {
      if (errorCode(error) === "TableNotFound") return undefined;
      throw error;
    }
  }

  async function* pages<T>(
    e: Entity<T>,
    range: Range & { readonly select?: readonly (keyof T & string)[] },
  ): AsyncGenerator<Row<T>[], void> {
    const { pageSize = MAX_PAGE_SIZE, select, only, onCorrupt } = range;
    if (!Number.isInteger(pageSize) || pageSize < 1 || pageSize > MAX_PAGE_SIZE)
      throw new RangeError(`A page has 1 to ${MAX_PAGE_SIZE} rows, not ${pageSize}.`);
    if (e.signed === true && select) throw new TypeError(`A signed row of ${e.table} is read whole.`);
    const selected = select === undefined ? e : selectMembers(e, select);
    const { members } = selected;
    // The signature covers all columns, so they are all read.
    const columns = select && !signing.isSigned(e) ? ["PartitionKey", "RowKey", ...members.map(columnOf)] : undefined;
    const filter = filterOf(range);
    let next: Continuation | undefined;
    do {
      const query = { filter, top: pageSize, next };
      let answer = await readPage(e.table, { ...query, select: columns });
      if (answer === undefined) return;
      let stored = columns === undefined ? answer.rows : await readTruncatedRows(e.table, members, answer.rows);
      if (stored === undefined) {
        // A row changed between the two reads, so the page is read again with all columns.
        answer = await readPage(e.table, { ...query, select: undefined });
        if (answer === undefined) return;
        stored = answer.rows;
      }
      const decoded: Row<T>[] = [];
      const corrupt: StorageCorrupt[] = [];
      for (const row of stored) {
        if (only?.(row.rowKey as string) === false) continue;
        try {
          decoded.push(await verifyAndDecode(e, row, selected));
        } catch (error) {
          if (!(error instanceof StorageCorrupt)) throw error;
          corrupt.push(error);
        }
      }
      if (corrupt.length > 0) {
        await onUnreadable?.(corrupt);
        const action = onCorrupt ?? (isAnsweringGet() ? "leaveOut" : "throw");
        if (action === "throw") throw corrupt[0];
        for (const row of corrupt) (action === "leaveOut" ? countLeftOut : action)(row);
      }
      if (decoded.length + corrupt.length > 0) yield decoded;
      ({ next } = answer);
    } while (next !== undefined);
  }

  /**
   * Reads the rows in full whose selected members continue in columns that were not selected. Returns undefined if one of them
   * has changed since, because the rows of a page must be consistent with each other.
   */
  async function readTruncatedRows(
    table: string,
    members: Selected["members"],
    page: readonly StoredRow[],
  ): Promise<StoredRow[] | undefined> {
    const fullRows = await Promise.all(
      page.map(async (row) => {
        if (!isTruncated(members, row)) return row;
        const now = (await rows.read(table, row.partitionKey as string, row.rowKey as string))?.row;
        return now?.etag === row.etag ? now : undefined;
      }),
    );
    return fullRows.every((row) => row !== undefined) ? fullRows : undefined;
  }

  async function* partitions(table: string, after?: string): AsyncGenerator<string, void> {
    let lastKey = after;
    for (;;) {
      const next = await nextPartition(table, lastKey);
      if (next === undefined) return;
      yield next;
      lastKey = next;
    }
  }

  async function nextPartition(table: string, after: string | undefined): Promise<string | undefined> {
    const filter = after === undefined ? undefined : `PartitionKey gt ${quoted(after)}`;
    let next: Continuation | undefined;
    do {
      const answered = await readPage(table, { filter, select: ["PartitionKey"], top: 1, next });
      if (answered === undefined) return undefined;
      if (answered.rows.length > 0) return answered.rows[0]!.partitionKey as string;
      ({ next } = answered);
    } while (next !== undefined);
    return undefined;
  }

  return { pages, partitions };
}

/** Reads, changes and writes a row, and repeats that on a conflict: see `Tables.modify`. */
async function modifyRow<T>(
  tables: Pick<Tables, "get" | "insert" | "replace">,
  e: Entity<T>,
  { partitionKey, rowKey }: { partitionKey: string; rowKey: string },
  change: (now: Row<T> | undefined) => T | undefined,
  { replaceCorrupt = false }: { replaceCorrupt?: boolean } = {},
): Promise<Row<T> | undefined> {
  return await repeatOnConflict(async (attempt) => {
    if (attempt > 1)
      await delay(Math.random() * Math.min(MODIFY_MAX_PAUSE_MS, MODIFY_FIRST_PAUSE_MS * 2 ** (attempt - 1)));
    let now: Row<T> | undefined;
    let etag: string | undefined;
    try {
      now = await tables.get(e, partitionKey, rowKey);
      etag = now?.etag;
    } catch (error) {
      if (!replaceCorrupt || !(error instanceof StorageCorrupt)) throw error;
      ({ etag } = error);
    }
    const next = change(now);
    if (next === undefined) return now;
    if (etag === undefined) return await tables.insert(e, partitionKey, rowKey, next);
    return await tables.replace(e, { ...next, partitionKey, rowKey, etag });
  }, MODIFY_TRIES);
}

type Selected = Pick<Entity<unknown>, "schema" | "members">;
const selections = new WeakMap<Entity<unknown>, Map<string, Selected>>();

/** Returns the entity with only these members. Cached, because zod compiles a schema on its first use. */
function selectMembers<T>(e: Entity<T>, select: readonly (keyof T & string)[]): Selected {
  const cached = selections.get(e) ?? new Map<string, Selected>();
  selections.set(e, cached);
  const key = select.join();
  const selection = cached.get(key);
  if (selection !== undefined) return selection;
  const members = e.members.filter(({ name }) => (select as readonly string[]).includes(name));
  // zod's `pick` can't be used, because it rejects a schema with a refinement over all members.
  const schema = z.object(Object.fromEntries(members.map(({ name }) => [name, e.schema.shape[name]!])));
  cached.set(key, { schema, members });
  return { schema, members };
}

function filterOf({ partitionKey, from, before, after }: Range): string {
  const conditions = [`PartitionKey eq ${quoted(partitionKey)}`];
  if (after !== undefined && (from === undefined || after >= from)) conditions.push(`RowKey gt ${quoted(after)}`);
  else if (from !== undefined) conditions.push(`RowKey ge ${quoted(from)}`);
  if (before !== undefined) conditions.push(`RowKey lt ${quoted(before)}`);
  return conditions.join(" and ");
}

const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;
