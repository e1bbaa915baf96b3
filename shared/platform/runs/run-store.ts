import { encodeTime } from "ulid";
import * as z from "zod";
import type { Caller } from "../http/endpoint.ts";
import { notFound } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { repeatOnConflict } from "../storage/conflict.ts";
import { type Entity, entity, type Row, withoutKeys } from "../storage/entity.ts";
import { insert, put, remove, replace, type Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { isUlid, newestFirst } from "../ulid.ts";

/** Fields of the record of every run. A run is a longer task such as a discovery, which the API shows with its progress. */
export interface RunBase {
  runId: string;
  requestedBy: string;
  requestId: string;
  status: string;
  createdAt: string;
}
/** Input of a new run. The remaining fields say who requested the run, and when. */
export type NewRun<R extends RunBase> = Omit<R, Exclude<keyof RunBase, "status">>;

/** Location of a module's runs: one partition, newest first. */
export interface RunRows<R extends RunBase> {
  runs: Entity<R>;
  partitionKey: string;
}

/** Runs of a partition. At most one run is in progress. */
export interface RunStore<R extends RunBase> {
  /** Starts a run. If a run is in progress, returns that run with `isNew: false`. */
  start(newRun: NewRun<R>, caller: Caller): Promise<{ run: R; isNew: boolean }>;
  find(runId: string): Promise<Row<R> | undefined>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<R>;
  /** Returns the run that is in progress. */
  active(): Promise<R | undefined>;
  /**
   * Ends the run, so that another run can start.
   *
   * @throws a conflict if another worker changed the run.
   */
  end(run: Row<R>, change: Partial<R>): Promise<void>;
  /**
   * Removes runs that are older than 30 days.
   *
   * @param removeOtherRows - Called first, to remove other rows of these runs.
   */
  removeOld(removeOtherRows?: (runIds: readonly string[]) => Promise<void>): Promise<void>;
}

/** Row that names the run in progress. Its key in lower case sorts after all runs, whose keys are upper case and digits. */
const ACTIVE_KEY = "active";
/** Declares the row that names the run in progress. */
export const activeRuns = (table: string) => entity(table, z.object({ runId: z.string() }));

/** Retention of runs. */
const RETENTION_MS = 30 * DAY_MS;

/** Returns the row key of a run. Newer runs have lower keys. */
export const runKey = (runId: string): string => newestFirst(runId);
/** Returns whether a run has ended. */
export const isOver = ({ status }: Pick<RunBase, "status">): boolean => status !== "queued" && status !== "running";

/**
 * Creates the store of a module's runs.
 *
 * @param noun - Name of such a run in messages, such as `run`.
 */
export function createRunStore<R extends RunBase>(
  { runs: Runs, partitionKey }: RunRows<R>,
  { tables, clock, randomness }: { tables: Tables; clock: Clock; randomness: Randomness },
  noun: string,
): RunStore<R> {
  const { table } = Runs;
  const ActiveRun = activeRuns(table);
  const recordOf = (row: Row<R>) => withoutKeys(row) as unknown as R;
  const find = (runId: string) => tables.get(Runs, partitionKey, runKey(runId));

  return {
    find,

    async active() {
      const activeRow = await tables.get(ActiveRun, partitionKey, ACTIVE_KEY);
      const run = activeRow && (await find(activeRow.runId));
      return run && !isOver(run) ? recordOf(run) : undefined;
    },

    async start(newRun, caller) {
      return await repeatOnConflict(async () => {
        const activeRow = await tables.get(ActiveRun, partitionKey, ACTIVE_KEY);
        const current = activeRow && (await find(activeRow.runId));
        if (current && !isOver(current)) return { run: recordOf(current), isNew: false };
        const now = clock.now();
        const runId = randomness.ulid(now);
        const { actor: requestedBy, requestId } = caller;
        const run = { ...newRun, runId, requestedBy, requestId, createdAt: now.toISOString() } as unknown as R;
        const reference = { runId };
        await tables.transaction(table, partitionKey, [
          activeRow
            ? replace(ActiveRun, ACTIVE_KEY, reference, activeRow.etag)
            : insert(ActiveRun, ACTIVE_KEY, reference),
          put(Runs, runKey(runId), run),
        ]);
        return { run, isNew: true };
      });
    },

    async get(runId) {
      const id = runId.toUpperCase();
      const run = isUlid(id) ? await find(id) : undefined;
      if (!run) throw notFound(`The ${noun} ${runId.slice(0, 64)}`);
      return recordOf(run);
    },

    async end(run, change) {
      await tables.transaction(table, partitionKey, [
        replace(Runs, run.rowKey, { ...recordOf(run), ...change }, run.etag),
        remove(ActiveRun, ACTIVE_KEY),
      ]);
    },

    async removeOld(removeOtherRows = async () => {}) {
      // Keys count down, so older runs come after this key.
      const from = newestFirst(encodeTime(Math.max(0, clock.now().getTime() - RETENTION_MS)) + "0".repeat(16));
      const range = {
        partitionKey,
        from,
        before: ACTIVE_KEY,
        select: ["runId" as const],
        onCorrupt: "leaveOut" as const,
      };
      for await (const rows of tables.pages(Runs, range)) {
        // Runs are removed last, because a remaining run names its other remaining rows.
        await removeOtherRows(rows.map(({ runId }) => runId));
        const removals = rows.map(({ rowKey }) => remove(Runs, rowKey));
        await tables.write(table, partitionKey, removals);
      }
    },
  };
}
