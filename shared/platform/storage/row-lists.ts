import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import * as z from "zod";
import { isConflict } from "./conflict.ts";
import { type Entity, entity, type Row } from "./entity.ts";
import { isListKey, LIST_PREFIX } from "./keys.ts";
import { insert, type Operation, replace } from "./operations.ts";
import { type RowSigning, SIGNATURE } from "./signing.ts";

/*
 * A signature shows that the service wrote a row, but not that it is the row's current state. So a partition with `listed`
 * entities also has 16 signed lists. Each list is a row that names one sixteenth of the partition's rows, by a hash of their
 * keys, with the start of their current signatures. A list changes in the transaction of its rows. If another program restores an
 * earlier state of a row, removes a row, or puts a removed row back, the row differs from its list. A comparison runs every minute.
 * It raises the sequence of each list that was written since, and stores the sequence in the service's key vault
 * (signed-partitions.ts). Writers keep the sequence. So an earlier state of a list has a lower sequence than the key vault, also
 * after the service has written that list again.
 */

/** Number of lists of a partition. More lists mean fewer conflicts between writers, and more rows to compare. */
export const LISTS = 16;
/** Characters of a signature in a list: 72 bits. */
const SHORT_SIGNATURE = 12;
/** Attempts to write while other writers change the same list. */
const ATTEMPTS = 20;
const MAX_PAUSE_MS = 200;

const RowList = z.object({
  /** Number of comparisons that found the list changed. */
  sequence: z.int(),
  /** Number of writes since then. */
  writes: z.int(),
  /** Row keys, each with the result of `shortSignature`. */
  rows: z.array(z.tuple([z.string(), z.string()])),
});
export type RowList = z.infer<typeof RowList>;

/** The order of a list's states: by sequence, then by writes. */
export type ListState = Pick<RowList, "sequence" | "writes">;
export const isOlder = (a: ListState, b: ListState): boolean =>
  a.sequence < b.sequence || (a.sequence === b.sequence && a.writes < b.writes);

/** The newest states that this process wrote. Another program has put back a list that a later read finds older. */
export interface WrittenLists {
  /** Returns the states of a partition's lists by row key, as of now. */
  statesOf(table: string, partitionKey: string): ReadonlyMap<string, ListState>;
  /** Notes a state that this process has written. */
  note(table: string, partitionKey: string, rowKey: string, state: ListState): void;
}

export function createWrittenLists(): WrittenLists {
  const partitions = new Map<string, Map<string, ListState>>();
  const partitionStates = (table: string, partitionKey: string) =>
    partitions.get(`${table}/${partitionKey}`) ?? new Map();
  return {
    statesOf: (table, partitionKey) => new Map(partitionStates(table, partitionKey)),
    note(table, partitionKey, rowKey, { sequence, writes }) {
      const states: Map<string, ListState> = partitionStates(table, partitionKey);
      const noted = states.get(rowKey);
      if (!noted || isOlder(noted, { sequence, writes })) states.set(rowKey, { sequence, writes });
      partitions.set(`${table}/${partitionKey}`, states);
    },
  };
}

const entities = new Map<string, Entity<RowList>>();

/** Returns the entity of a table's lists. */
export function listEntity(table: string): Entity<RowList> {
  const lists = entities.get(table) ?? entity(table, RowList, { signed: true });
  entities.set(table, lists);
  return lists;
}

/** Returns the row key of a list. @param index - 0 to 15. */
export const listKey = (index: number): string => LIST_PREFIX + index.toString(16);

/** Returns which list has the row, 0 to 15. */
export const listIndexOf = (rowKey: string): number => createHash("sha256").update(rowKey).digest()[0]! % LISTS;

/** Returns what a list says of a row with this signature. */
export const shortSignature = (signature: unknown): string =>
  typeof signature === "string" ? signature.slice(signature.indexOf(".") + 1).slice(0, SHORT_SIGNATURE) : "";

/** Returns the list after the given operations. */
function nextList(list: RowList | undefined, changes: readonly Operation[]): RowList {
  const rows = new Map(list?.rows);
  for (const { kind, rowKey, columns } of changes)
    if (kind === "remove") rows.delete(rowKey);
    else rows.set(rowKey, shortSignature(columns[SIGNATURE]));
  // Not 0, which in the key vault stands for a list that never existed: its removal would not be found.
  return { sequence: list?.sequence ?? 1, writes: (list?.writes ?? 0) + 1, rows: [...rows] };
}

/**
 * Submits signed operations with the lists of the rows that they change. Repeats if another writer changed only a list.
 *
 * @param deps.readList - Throws StorageCorrupt for a list that can't be read.
 * @throws RowChanged or RowExists for a list that other writers change all the time, and the conflicts of the operations.
 */
export async function writeListed(
  { table, partitionKey, operations }: { table: string; partitionKey: string; operations: readonly Operation[] },
  deps: {
    readList: (table: string, partitionKey: string, rowKey: string) => Promise<Row<RowList> | undefined>;
    signing: RowSigning;
    written: WrittenLists;
    submit: (operations: readonly Operation[]) => Promise<Map<string, string>>;
  },
): Promise<Map<string, string>> {
  const changes = Map.groupBy(
    operations.filter(({ entity: { listed } }) => listed),
    ({ rowKey }) => listKey(listIndexOf(rowKey)),
  );
  for (let attempt = 1; ; attempt++) {
    const lists = await Promise.all(
      [...changes].map(async ([key, changesOfList]) => {
        const list = await deps.readList(table, partitionKey, key);
        const next = nextList(list, changesOfList);
        const e = listEntity(table);
        const operation = list ? replace(e, key, next, list.etag) : insert(e, key, next);
        return { key, next, operation: await deps.signing.sign(partitionKey, operation) };
      }),
    );
    try {
      const etags = await deps.submit([...operations, ...lists.map(({ operation }) => operation)]);
      for (const { key, next } of lists) deps.written.note(table, partitionKey, key, next);
      return etags;
    } catch (error) {
      if (attempt === ATTEMPTS || !isConflict(error) || !isListKey(error.rowKey)) throw error;
      await delay(Math.random() * Math.min(MAX_PAUSE_MS, 10 * attempt));
    }
  }
}
