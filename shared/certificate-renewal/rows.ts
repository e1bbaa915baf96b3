import { encodeTime } from "ulid";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { insert, type Operation, put, RowExists, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import { TABLE } from "./authority.ts";
import { isOver, RENEWALS, RenewalPointers, type RenewalRecord, Renewals } from "./renewal.ts";

/** Thrown if another renewal of the certificate is in progress. */
export class UnfinishedRenewal extends Error {
  override readonly name = "UnfinishedRenewal";
  readonly runId: string;

  constructor(runId: string) {
    super(`Renewal ${runId} has not ended.`);
    this.runId = runId;
  }
}

/** A renewal that is overdue by this time has lost its queue message. The timer then sends another one. */
const LOST_MESSAGE_MS = 5 * MINUTE_MS;

// Row keys, all in one partition. `r|<id>`: the renewal, with inverted characters: newest first. `u|<asset>`: the unfinished
// renewal of a certificate. `d|<time>|<id>`: when a renewal is overdue, with the time as in a ULID.
export const RECORD_PREFIX = "r|";
const DUE_PREFIX = "d|";
export const recordKey = (runId: string): string => RECORD_PREFIX + newestFirst(runId);
export const unfinishedKey = (assetId: string): string => `u|${keyText(assetId.toLowerCase())}`;
export const dueKey = ({ dueAt, runId }: Pick<RenewalRecord, "dueAt" | "runId">): string =>
  `${DUE_PREFIX}${encodeTime(Date.parse(dueAt) + LOST_MESSAGE_MS)}|${runId}`;

/** Stores renewals together with their pointers. */
export interface RenewalRows {
  get(runId: string): Promise<Row<RenewalRecord> | undefined>;
  /** Returns the renewal with the time since its last write, by the clock of the table service. */
  getWithAge(runId: string): Promise<{ row: Row<RenewalRecord>; ageMs: number } | undefined>;
  /** Returns the unfinished renewal of a certificate. */
  unfinishedOf(assetId: string): Promise<string | undefined>;
  /** @throws {UnfinishedRenewal} */
  insert(record: Omit<RenewalRecord, "writeId">): Promise<void>;
  /** @throws {RowChanged} if the renewal changed since it was read. */
  save(before: Row<RenewalRecord>, after: RenewalRecord): Promise<Row<RenewalRecord>>;
  /** Lists the IDs of renewals whose message was lost, longest overdue first. */
  listOverdue(): AsyncGenerator<string[]>;
  /** Deletes renewals that ended before a time. */
  deleteEnded(before: Date): Promise<void>;
}

export function createRenewalRows(deps: { tables: Tables; clock: Clock; randomness: Randomness }): RenewalRows {
  const { tables, clock, randomness } = deps;
  const writeId = (): string => randomness.ulid(clock.now());

  return {
    get: async (runId) => (isUlid(runId) ? await tables.get(Renewals, RENEWALS, recordKey(runId)) : undefined),

    getWithAge: async (runId) =>
      isUlid(runId) ? await tables.getWithAge(Renewals, RENEWALS, recordKey(runId)) : undefined,

    async unfinishedOf(assetId) {
      return (await tables.get(RenewalPointers, RENEWALS, unfinishedKey(assetId)))?.runId;
    },

    async insert(record) {
      const { runId, assetId } = record;
      try {
        await tables.transaction(TABLE, RENEWALS, [
          insert(Renewals, recordKey(runId), { ...record, writeId: writeId() }),
          insert(RenewalPointers, unfinishedKey(assetId), { runId }),
          put(RenewalPointers, dueKey(record), { runId }),
        ]);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
        throw new UnfinishedRenewal((await this.unfinishedOf(assetId)) ?? runId);
      }
    },

    async save(before, changed) {
      const after = { ...withoutKeys(changed), writeId: writeId() };
      const { runId, assetId, status } = after;
      const operations: Operation[] = [replace(Renewals, before.rowKey, after, before.etag)];
      const [dueBefore, dueAfter] = [dueKey(before), isOver(status) ? undefined : dueKey(after)];
      if (dueBefore !== dueAfter) {
        operations.push(remove(RenewalPointers, dueBefore));
        if (dueAfter !== undefined) operations.push(put(RenewalPointers, dueAfter, { runId }));
      }
      if (isOver(status)) operations.push(remove(RenewalPointers, unfinishedKey(assetId)));
      const etags = await tables.transaction(TABLE, RENEWALS, operations);
      return { ...after, partitionKey: RENEWALS, rowKey: before.rowKey, etag: etags.get(before.rowKey)! };
    },

    async *listOverdue() {
      const range = {
        partitionKey: RENEWALS,
        from: DUE_PREFIX,
        before: DUE_PREFIX + encodeTime(clock.now().getTime()),
        onCorrupt: "leaveOut" as const,
      };
      for await (const rows of tables.pages(RenewalPointers, range)) yield rows.map(({ runId }) => runId);
    },

    async deleteEnded(before) {
      // Keys count down, so older renewals come after this key.
      const from = RECORD_PREFIX + newestFirst(encodeTime(Math.max(0, before.getTime())) + "0".repeat(16));
      const range = { partitionKey: RENEWALS, from, before: "s", onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(Renewals, range)) {
        const ended = rows.filter(({ status }) => isOver(status));
        for (const { rowKey } of ended) await tables.remove(Renewals, RENEWALS, rowKey);
      }
    },
  };
}
