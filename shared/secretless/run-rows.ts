import { Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, RowExists, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import {
  isOver,
  RUNS,
  type RunRecord,
  runKey,
  SecretlessPointers,
  SecretlessRuns,
  unfinishedRunKey,
  unfinishedRunOf,
} from "../rotation/secretless-run.ts";

/** Stores runs. Row keys, all in one partition: `r|<id, newest first>` the run, `u|<client ID>` the unfinished run of an application. */
export interface RunRows {
  /** Returns undefined for an invalid or unknown ID. */
  get(runId: string): Promise<Row<RunRecord> | undefined>;
  /** Returns the run with the time since its last write, by the clock of the table service. */
  getWithAge(runId: string): Promise<{ row: Row<RunRecord>; ageMs: number } | undefined>;
  /** Returns the ID of the unfinished run of an application. */
  unfinishedOf(appId: string): Promise<string | undefined>;
  /** @throws {Problem} conflict if another run of the application has not ended. */
  insert(record: Omit<RunRecord, "writeId">): Promise<void>;
  /** @throws {RowChanged} if the run changed since it was read. */
  save(before: Row<RunRecord>, after: RunRecord): Promise<Row<RunRecord>>;
  /** Lists runs, newest first. Leaves out rows that can't be read. */
  list(): AsyncGenerator<Row<RunRecord>[]>;
  /** Lists the IDs of unfinished runs. */
  unfinished(): AsyncGenerator<string[]>;
}

export function createRunRows(deps: { tables: Tables; clock: Clock; randomness: Randomness }): RunRows {
  const { tables, clock, randomness } = deps;
  const writeId = () => randomness.ulid(clock.now());
  const { table } = SecretlessRuns;
  const unfinishedOf = (appId: string) => unfinishedRunOf(tables, appId);

  return {
    get: async (runId) => (isUlid(runId) ? await tables.get(SecretlessRuns, RUNS, runKey(runId)) : undefined),
    getWithAge: async (runId) =>
      isUlid(runId) ? await tables.getWithAge(SecretlessRuns, RUNS, runKey(runId)) : undefined,
    unfinishedOf,

    async insert(record) {
      const { runId, appId } = record;
      try {
        await tables.transaction(table, RUNS, [
          insert(SecretlessRuns, runKey(runId), { ...record, writeId: writeId() }),
          insert(SecretlessPointers, unfinishedRunKey(appId), { runId }),
        ]);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
        throw unfinishedRun((await unfinishedOf(appId)) ?? runId);
      }
    },

    async save(before, changed) {
      const after = { ...withoutKeys(changed), writeId: writeId() };
      const etags = await tables.transaction(table, RUNS, [
        replace(SecretlessRuns, before.rowKey, after, before.etag),
        ...(isOver(after.status) && !isOver(before.status)
          ? [remove(SecretlessPointers, unfinishedRunKey(after.appId))]
          : []),
      ]);
      return { ...after, partitionKey: RUNS, rowKey: before.rowKey, etag: etags.get(before.rowKey)! };
    },

    async *list() {
      const range = { partitionKey: RUNS, from: "r|", before: keyEnd("r|"), onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(SecretlessRuns, range)) yield rows;
    },

    async *unfinished() {
      const range = { partitionKey: RUNS, from: "u|", before: keyEnd("u|"), onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(SecretlessPointers, range)) yield rows.map(({ runId }) => runId);
    },
  };
}

export const unfinishedRun = (runId: string): Problem =>
  new Problem("conflict", `The run ${runId} of this application has not ended. Wait for it, or roll it back.`, {
    members: { runId },
  });
