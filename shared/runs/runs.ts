import { encodeTime } from "ulid";
import * as z from "zod";
import type { Caller } from "../http/endpoint.ts";
import { notFound } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict, repeatOnConflict } from "../storage/conflict.ts";
import { type Entity, entity, type Row, withoutKeys } from "../storage/entity.ts";
import { insert, put, remove, replace, type Tables } from "../storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../time.ts";
import { isUlid, newestFirst } from "../ulid.ts";

/** Discoveries: readings of what another system holds, which may take longer than the request that asks for one. */

export const RUN_STATUSES = ["running", "completed", "partial", "failed"] as const;

/** Something that could not be read, and what to do about it. */
export const ListFailure = z.object({
  list: z.string(),
  code: z.string(),
  message: z.string(),
  remedy: z.string(),
  at: z.string(),
});
export type ListFailure = z.infer<typeof ListFailure>;

/** What the record of every run has. A room adds its own to it. */
export const RunFacts = z.object({
  runId: z.string(),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  status: z.enum(RUN_STATUSES),
  createdAt: z.string(),
  finishedAt: z.string().optional(),
  failures: z.array(ListFailure),
  /** The worker that has it in hand. How long it may is told by the age of this row. */
  worker: z.string().optional(),
  /** How many workers began it. */
  attempts: z.int(),
});
export type RunFacts = z.infer<typeof RunFacts>;

/** Where a room keeps its runs: all in one partition, the newest first. */
export interface RunRows<R extends RunFacts> {
  runs: Entity<R>;
  partitionKey: string;
}

/** Which run is under way: there is one at a time in a partition. */
const ACTIVE_KEY = "active";
const activeRuns = (table: string) => entity(table, z.object({ runId: z.string() }));

/** How long a run stays with a worker after its last sign of life, by the store's clock. */
const LEASE_MS = 60 * SECOND_MS;
const RENEWAL_MS = 15 * SECOND_MS;
/** How long runs are kept. */
const KEEP_MS = 30 * DAY_MS;

/** Another worker has the run in hand; come again after `waitMs` milliseconds. */
export class RunBusy extends Error {
  override readonly name = "RunBusy";
  readonly waitMs: number;
  constructor(waitMs: number) {
    super(`The discovery is in another worker's hands; try again in ${Math.ceil(waitMs / SECOND_MS)} s`);
    this.waitMs = waitMs;
  }
}

/** One worker's hold on a run. */
export interface HeldRun<R extends RunFacts> {
  readonly run: R;
  /** Names the worker in this one life. */
  readonly worker: string;
  /** Aborted when another worker has taken the run over. */
  readonly signal: AbortSignal;
  /** Makes sure that the run is still this worker's. @throws a conflict when it is not. */
  confirm(): Promise<void>;
  /** Changes what the run says. @throws as `confirm`. */
  change(change: Partial<R>): Promise<void>;
  /** Ends the run: it says what it says now, and another may begin. @throws as `confirm`. */
  end(change: Partial<R>): Promise<void>;
  /** Lets go of a run that is not over, so that the next message finds it free. */
  release(): Promise<void>;
}

/** The runs of the discovery, one at a time. */
export interface DiscoveryRuns<R extends RunFacts> {
  /** Begins a run, or answers the one that is under way. */
  begin(made: Omit<R, keyof RunFacts> & Pick<R, "trigger">, caller: Caller): Promise<{ run: R; isNew: boolean }>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<R>;
  /** The run under way. */
  active(): Promise<R | undefined>;
  /** Undefined when it is over. @throws {RunBusy} while another worker has it. */
  hold(runId: string): Promise<HeldRun<R> | undefined>;
  /** Ends a run in nobody's hands. */
  giveUp(runId: string, failure: ListFailure): Promise<R | undefined>;
  removeOld(): Promise<void>;
}

const keyOf = (runId: string): string => newestFirst(runId);

export function createRuns<R extends RunFacts>(
  { runs: Runs, partitionKey: RUNS }: RunRows<R>,
  deps: { tables: Tables; clock: Clock; randomness: Randomness },
): DiscoveryRuns<R> {
  const { tables, clock, randomness } = deps;
  const { table } = Runs;
  const ActiveRun = activeRuns(table);
  const recordOf = (row: Row<R>) => withoutKeys(row) as unknown as R;
  const read = (runId: string) => tables.get(Runs, RUNS, keyOf(runId));

  async function active(): Promise<R | undefined> {
    const standing = await tables.get(ActiveRun, RUNS, ACTIVE_KEY);
    const run = standing && (await read(standing.runId));
    return run?.status === "running" ? recordOf(run) : undefined;
  }

  const ended = (row: Row<R>, change: Partial<R>) => [
    replace(Runs, row.rowKey, { ...recordOf(row), worker: undefined, ...change } as R, row.etag),
    remove(ActiveRun, ACTIVE_KEY),
  ];

  return {
    active,

    async begin(made, caller) {
      return await repeatOnConflict(async () => {
        const standing = await tables.get(ActiveRun, RUNS, ACTIVE_KEY);
        const under = standing && (await read(standing.runId));
        if (under?.status === "running") return { run: recordOf(under), isNew: false };
        const now = clock.now();
        const facts: Omit<RunFacts, "trigger"> = {
          runId: randomness.ulid(now),
          requestedBy: caller.actor,
          requestId: caller.requestId,
          status: "running",
          createdAt: now.toISOString(),
          failures: [],
          attempts: 0,
        };
        const run = { ...made, ...facts } as unknown as R;
        const one = { runId: run.runId };
        await tables.transaction(table, RUNS, [
          standing ? replace(ActiveRun, ACTIVE_KEY, one, standing.etag) : insert(ActiveRun, ACTIVE_KEY, one),
          put(Runs, keyOf(run.runId), run),
        ]);
        return { run, isNew: true };
      });
    },

    async get(runId) {
      const id = runId.toUpperCase();
      const run = isUlid(id) ? await read(id) : undefined;
      if (!run) throw notFound(`The discovery ${runId.slice(0, 64)}`);
      return recordOf(run);
    },

    async hold(runId) {
      const found = await tables.aged(Runs, RUNS, keyOf(runId));
      if (found?.row.status !== "running") return undefined;
      if (found.row.worker !== undefined && found.ageMs < LEASE_MS) throw new RunBusy(LEASE_MS - found.ageMs);
      const worker = `discovery/${runId}/${randomness.ulid(clock.now())}`;
      try {
        return heldRun(await tables.replace(Runs, { ...found.row, worker, attempts: found.row.attempts + 1 }), worker);
      } catch (error) {
        if (isConflict(error)) throw new RunBusy(LEASE_MS);
        throw error;
      }
    },

    async giveUp(runId, failure) {
      const row = await read(runId);
      if (row?.status !== "running") return undefined;
      const change = {
        status: "failed" as const,
        finishedAt: clock.now().toISOString(),
        failures: [...row.failures, failure],
      } satisfies Partial<RunFacts>;
      await tables.transaction(table, RUNS, ended(row, change as Partial<R>));
      return { ...recordOf(row), ...change };
    },

    async removeOld() {
      // Keys count down: what is older comes after.
      const from = newestFirst(encodeTime(Math.max(0, clock.now().getTime() - KEEP_MS)) + "0".repeat(16));
      for await (const rows of tables.pages(Runs, {
        partitionKey: RUNS,
        from,
        before: ACTIVE_KEY,
        select: ["runId"],
      })) {
        const removals = rows.map(({ rowKey }) => remove(Runs, rowKey));
        await tables.write(table, RUNS, removals);
      }
    },
  };

  function heldRun(taken: Row<R>, worker: string): HeldRun<R> {
    const aborted = new AbortController();
    let row = taken;
    /** One write after the other: each needs the ETag of the one before. */
    let writing: Promise<unknown> = Promise.resolve();
    let over = false;

    function inTurn<T>(work: () => Promise<T>): Promise<T> {
      const turn = writing.then(async () => {
        try {
          return await work();
        } catch (error) {
          if (isConflict(error)) {
            clearInterval(timer);
            aborted.abort();
          }
          throw error;
        }
      });
      writing = turn.catch(() => {});
      return turn;
    }
    const change = (value: Partial<R>) =>
      inTurn(async () => {
        row = await tables.replace(Runs, { ...row, ...value });
      });
    const timer = setInterval(() => {
      // A renewal that fails for another reason than a conflict needs no answer: at the worst another worker takes over.
      if (!over) change({}).catch(() => {});
    }, RENEWAL_MS);
    timer.unref();
    const stop = () => {
      over = true;
      clearInterval(timer);
    };

    return {
      get run() {
        return recordOf(row);
      },
      worker,
      signal: aborted.signal,
      confirm: () => change({}),
      change,
      end: async (value) => {
        stop();
        await inTurn(() => tables.transaction(table, RUNS, ended(row, value)));
      },
      release: async () => {
        stop();
        await change({ worker: undefined } as Partial<R>).catch((error: unknown) => {
          if (!isConflict(error)) throw error;
        });
      },
    };
  }
}
