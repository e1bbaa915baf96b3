import * as z from "zod";
import type { StoreClock } from "./clock.ts";
import { isConflict } from "./conflict.ts";
import type { StorageConnection } from "./connection.ts";
import { entity, keysOnly } from "./entity.ts";
import { StorageCorrupt } from "./errors.ts";
import { isListKey } from "./keys.ts";
import { type Operation, put } from "./operations.ts";
import { type ComparedRow, createRowComparison, type Finding, type List, type SignedRange } from "./row-comparison.ts";
import { isOlder, listEntity, listIndexOf, listKey } from "./row-lists.ts";
import { createRows } from "./rows.ts";
import {
  createRowSigning,
  type RowKeys,
  type SetAsideReason,
  SIGNATURE,
  setAsideReason,
  setAsideSignature,
} from "./signing.ts";
import { createTableClients } from "./table-clients.ts";
import type { Tables } from "./tables.ts";

export type { ComparedRow, Finding, SignedRange } from "./row-comparison.ts";

/**
 * Compares signed rows with their lists, signs rows, and sets rows aside. `Tables` signs and lists each row that it writes. A
 * list is one of 16 signed rows that name the partition's other rows with their signatures (row-lists.ts). To set a row aside
 * is to replace its signature with a reason, so that no process can read the row.
 */
export interface SignedPartitions {
  /** Returns whether a row of the range has no signature. */
  hasUnsigned(range: SignedRange): Promise<boolean>;
  /**
   * Compares the rows of a listed range with their lists, and the lists with their sequences in the key vault. Reads only
   * signatures. Returns rows that differ from their list also when they are read again, and the sequences to store in the key
   * vault. A list that was written since the last call gets the next sequence.
   *
   * @param sequences - The sequences that the key vault stores, by the index of the list. A missing sequence counts as 0.
   */
  compare(range: SignedRange, sequences: readonly number[]): Promise<{ sequences: number[]; findings: ComparedRow[] }>;
  /**
   * Makes a row unreadable on every instance. Returns the row's ETag, or undefined if another writer changed the row since. The
   * row's content stays. A missing row gets a row without content, so that its absence does not take effect either.
   */
  setAside(row: ComparedRow & { reason: SetAsideReason }): Promise<string | undefined>;
  /**
   * Signs rows without a signature that reads accept, and removes rows that do not exist from their lists. Rows with a signature
   * stay unchanged. Returns the number of changes. A row that another writer changes at the same time is left to the next call.
   */
  signUnsigned(range: SignedRange): Promise<number>;
  /** Returns each row of a range that can't be read or differs from its list. Reads whole rows and writes nothing. */
  inspect(range: SignedRange, sequences: readonly number[]): Promise<Finding[]>;
  /**
   * Accepts the rows as they are. First replaces the lists with empty lists, whose sequences are higher than `sequences`. Then signs
   * each row, which also adds the row to its list, and removes rows that stand for missing rows (`setAside` inserts them). Only for
   * a stopped app. Can be repeated after a crash.
   *
   * @param options - `removed`: row keys of rows to remove instead.
   * @returns the sequences of the lists.
   */
  acceptAll(
    range: SignedRange,
    options: { sequences: readonly number[]; removed: ReadonlySet<string> },
  ): Promise<number[]>;
}

/** Rows per transaction, which also writes up to 16 lists. */
const ROWS_PER_TRANSACTION = 50;
/** Columns that tell a person what a row is. */
const CONTENT = ["username", "role", "state", "name", "alertType", "user", "providerType", "subscriptionId"];

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
  const comparison = createRowComparison({ clients, stored, signing, tables });
  const { signatures, wholeRows, isReadable, readLists, compareRows } = comparison;

  /**
   * Gives a list that was written since the last comparison the next sequence. A copy of an earlier state then keeps a lower
   * sequence, however often the service writes that copy.
   *
   * @returns the sequence of the list, to store in the key vault.
   */
  async function advance(
    { table, partitionKey }: SignedRange,
    index: number,
    list: List,
    sequence: number,
  ): Promise<number> {
    // The list can't be read, does not exist, or is an earlier state of the list.
    if (typeof list !== "object" || list.sequence < sequence) return sequence;
    if (list.writes === 0) return list.sequence;
    try {
      const now = await tables.modify(listEntity(table), partitionKey, listKey(index), (current) =>
        // Another program may have put back an earlier list since it was compared.
        !current || isOlder(current, list)
          ? undefined
          : { sequence: current.sequence + 1, writes: 0, rows: current.rows },
      );
      return Math.max(now?.sequence ?? 0, list.sequence);
    } catch (error) {
      // Writers change the list all the time, or another program removed or changed it. The next comparison finds it.
      if (isConflict(error) || error instanceof StorageCorrupt) return list.sequence;
      throw error;
    }
  }

  async function compare(range: SignedRange, sequences: readonly number[]) {
    const { lists, findings } = await compareRows(range, sequences);
    const next = [...sequences];
    for (const [index, list] of lists.entries()) next[index] = await advance(range, index, list, sequences[index] ?? 0);
    return { sequences: next, findings };
  }

  /** Writes the operations in transactions. Returns how many were applied: a row that another writer changed is skipped. */
  async function rewrite(range: SignedRange, operations: readonly Operation[]): Promise<number> {
    let written = 0;
    for (let start = 0; start < operations.length; start += ROWS_PER_TRANSACTION) {
      const batch = operations.slice(start, start + ROWS_PER_TRANSACTION);
      try {
        await tables.transaction(range.table, range.partitionKey, batch);
        written += batch.length;
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Another writer changed one of the rows. The others are written one by one.
        for (const operation of batch.length === 1 ? [] : batch) written += await rewrite(range, [operation]);
      }
    }
    return written;
  }

  /** Removes listed rows that do not exist from their lists. */
  async function forgetMissing(range: SignedRange): Promise<number> {
    if (!range.listed) return 0;
    let forgotten = 0;
    // Without sequences, each list that can be read counts as current.
    for (const { table, partitionKey, rowKey, reason } of (await compareRows(range, [])).findings) {
      if (reason !== "missing" || isListKey(rowKey)) continue;
      const list = await tables.get(listEntity(table), partitionKey, listKey(listIndexOf(rowKey)));
      // A write of the row changes the list's ETag.
      if (!list || (await stored.read(table, partitionKey, rowKey))) continue;
      const rows = list.rows.filter(([key]) => key !== rowKey);
      try {
        await tables.replace(listEntity(table), { ...list, writes: list.writes + 1, rows });
        forgotten++;
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
    return forgotten;
  }

  return {
    async hasUnsigned(range) {
      for await (const { signature } of signatures(range)) if (signature === undefined) return true;
      return false;
    },

    compare,

    async setAside({ table, partitionKey, rowKey, reason, signature }) {
      const row = await stored.read(table, partitionKey, rowKey);
      if (setAsideReason(row?.row[SIGNATURE]) !== undefined) return row!.row.etag as string;
      if (!isListKey(rowKey) && (row?.row[SIGNATURE] !== signature || (row && reason === "missing"))) return undefined;
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
      for await (const row of wholeRows(range)) {
        const { rowKey, etag, columns } = row;
        if (columns[SIGNATURE] !== undefined || !(await isReadable(range.table, row))) continue;
        operations.push({ kind: "replace", entity: anyRow, rowKey, columns, etag });
      }
      const written = await rewrite(range, operations);
      return written + (await forgetMissing(range));
    },

    async inspect(range, sequences) {
      const { table, partitionKey } = range;
      const reasons = new Map<string, Finding["reason"]>();
      if (range.listed)
        for (const { rowKey, reason } of (await compareRows(range, sequences)).findings) reasons.set(rowKey, reason);
      const contents = new Map<string, string>();
      for await (const row of wholeRows(range)) {
        const { rowKey, columns } = row;
        contents.set(rowKey, contentOf(columns));
        if (reasons.has(rowKey) || (await isReadable(table, row))) continue;
        const signature = columns[SIGNATURE];
        const reason = signature === undefined ? "unsigned" : setAsideReason(signature);
        reasons.set(rowKey, (reason as SetAsideReason | undefined) ?? "changed");
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
      const emptyList = (sequence: number, index: number) =>
        put(listEntity(table), listKey(index), { sequence, writes: 0, rows: [] });
      const lists = range.listed ? await readLists(range) : [];
      const next = lists.map(
        (list, index) => Math.max(typeof list === "object" ? list.sequence : 0, sequences[index] ?? 0) + 1,
      );
      if (range.listed) await tables.transaction(table, partitionKey, next.map(emptyList));
      const operations: Operation[] = [];
      const anyRow = rawEntity(range);
      for await (const { rowKey, etag, columns: storedColumns } of wholeRows(range)) {
        const { [SIGNATURE]: signature, ...columns } = storedColumns;
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
