import type { Randomness } from "../../platform/runtime.ts";
import { type Operation, put } from "../../platform/storage/tables.ts";
import type { EntryAuthentication } from "../chain/entry-authentication.ts";
import { type EntryName, type Link, rowOfName } from "../chain/link.ts";
import { LastRow, lastRowKey } from "../rows.ts";

/*
 * The sequences in which a process writes its audit entries, one write of a sequence at a time. The link of an entry has its
 * number in the sequence, and names entries that the process wrote before. So the removal of an entry shows. No entry names the
 * newest one, so each sequence has a row for its last entry (`~last|<sequence>`), which each write replaces.
 */

/** Maximum number of earlier entries that a link names. The others are named by the next entries. */
const MAX_PREVIOUS = 20;

/** An entry to insert, or to replace by one with a higher count. */
export interface EntryWrite {
  partitionKey: string;
  rowKey: string;
  text: string;
  count: number;
  /** The link of the existing row, which it keeps, if the write replaces one. */
  replaced?: { link: string | undefined };
}

/** The rows of a write: the columns of the entry's row, and operations for the same transaction. */
export interface LinkedRows {
  columns: { entry: string; link?: string | undefined; mac?: string | undefined };
  operations: Operation[];
}

/** `closed`: the rows were certainly not stored. `exists`: another writer was faster, or the first answer was lost. */
export type WriteResult = "written" | "closed" | "exists";

/** The sequences of one process (chain/link.ts). */
export interface Sequences {
  /**
   * Calls `attempt` with authenticated, linked rows, and notes its result for the next entry. Without signing keys, the rows have
   * neither a code nor a link.
   */
  write(entry: EntryWrite, attempt: (rows: LinkedRows) => Promise<WriteResult>): Promise<WriteResult>;
  /** Notes that the index rows of a written entry exist. A later entry says so. */
  noteIndexed(name: EntryName): void;
}

interface Sequence {
  readonly id: string;
  /** Number of its next entry. */
  number: number;
  last: EntryName | undefined;
}

/** Creates the sequences of this process. */
export function createSequences(randomness: Randomness, authentication: EntryAuthentication): Sequences {
  /** Sequences without a write in progress. A new one is created only if all are in use, so there are as many as writes at once. */
  const idle: Sequence[] = [];
  /** Written entries that no other entry names yet, by row. */
  const unnamed = new Map<string, EntryName>();

  const newSequence = (): Sequence => ({
    id: Buffer.from(randomness.bytes(9)).toString("base64url"),
    number: 1,
    last: undefined,
  });

  /** Remembers an entry that a later link must name. */
  function note(name: EntryName): void {
    unnamed.set(rowOfName(name), combined(unnamed.get(rowOfName(name)), name));
  }

  /** Returns the names of these entries and of other entries that no entry names yet. */
  function namesFrom(first: readonly (EntryName | undefined)[]): EntryName[] {
    const names = new Map<string, EntryName>();
    for (const name of [...first, ...unnamed.values()]) {
      if (!name) continue;
      const earlier = names.get(rowOfName(name));
      if (earlier || names.size < MAX_PREVIOUS) names.set(rowOfName(name), combined(earlier, name));
    }
    return [...names.values()];
  }

  /** Forgets entries that a written link names, unless their count or index changed since. */
  function removeNamed(names: readonly EntryName[]): void {
    for (const name of names) {
      const waiting = unnamed.get(rowOfName(name));
      if (waiting && waiting.count <= name.count && (name.indexed || !waiting.indexed)) unnamed.delete(rowOfName(name));
    }
  }

  function linkedRows(
    entry: EntryWrite,
    sequence: Sequence,
    previous: EntryName[],
    sign: NonNullable<EntryAuthentication["sign"]>,
  ): LinkedRows {
    const { partitionKey, rowKey, text, count, replaced } = entry;
    const { id, number, last } = sequence;
    const link = replaced ? replaced.link : JSON.stringify({ sequence: id, number, previous } satisfies Link);
    const name = { day: partitionKey, key: rowKey, count };
    // A replaced row keeps its link, so it takes no number. The row of the last entry names its new count until an entry does.
    const next: Link = replaced
      ? { sequence: id, number, previous: namesFrom([last, name]) }
      : { sequence: id, number: number + 1, previous: [name] };
    const lastLink = JSON.stringify(next);
    const lastKey = lastRowKey(id);
    const lastMac = sign({ partitionKey, rowKey: lastKey, text: undefined, link: lastLink });
    return {
      columns: { entry: text, link, mac: sign({ partitionKey, rowKey, text, link }) },
      operations: [put(LastRow, lastKey, { link: lastLink, mac: lastMac })],
    };
  }

  return {
    async write(entry, attempt) {
      const { partitionKey, rowKey, text, count, replaced } = entry;
      const { sign } = authentication;
      if (!sign) return await attempt({ columns: { entry: text }, operations: [] });
      const sequence = idle.pop() ?? newSequence();
      const previous = namesFrom([sequence.last]);
      let result: WriteResult | undefined;
      try {
        result = await attempt(linkedRows(entry, sequence, previous, sign));
        return result;
      } finally {
        const name = { day: partitionKey, key: rowKey, count };
        if (result === "written") {
          if (replaced) note(name);
          else {
            removeNamed(previous);
            sequence.number += 1;
            sequence.last = name;
          }
        }
        if (result === "written" || result === "closed") idle.push(sequence);
        // It is unknown whether the number was used, so the sequence ends, and another one names its last entry.
        else if (sequence.last) note(sequence.last);
      }
    },
    noteIndexed: (name) => note({ ...name, indexed: true }),
  };
}

/** Returns one name for both names of an entry: with the higher count, and indexed if one of them is. */
function combined(a: EntryName | undefined, b: EntryName): EntryName {
  if (!a) return b;
  const indexed = a.indexed ?? b.indexed;
  return { day: b.day, key: b.key, count: Math.max(a.count, b.count), ...(indexed && { indexed }) };
}
