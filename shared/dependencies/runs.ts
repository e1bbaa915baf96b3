import { encodeTime } from "ulid";
import type { Caller } from "../http/endpoint.ts";
import { notFound } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict, repeatOnConflict } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { insert, put, remove, replace, type Tables } from "../storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../time.ts";
import { isUlid, newestFirst } from "../ulid.ts";
import {
  ACTIVE_KEY,
  ActiveRun,
  RUNS,
  type RunRecord,
  Runs,
  runPartition,
  TABLE,
  type UnitWork,
  UnitWorks,
  workKey,
  workPrefix,
} from "./rows.ts";

/** How long a unit stays with a worker after its last sign of life, by the store's clock. */
const LEASE_MS = 60 * SECOND_MS;
const RENEWAL_MS = 15 * SECOND_MS;
/** Units read at once, all instances together: what they ask counts against limits of the whole tenant. */
export const UNITS_AT_ONCE = 4;
/** A unit that so many workers began and none ended is given up. */
const MAX_ATTEMPTS = 5;
/** How long runs are kept. */
const KEEP_MS = 30 * DAY_MS;

/** One worker's hold on a unit of a run. */
export interface HeldUnit {
  readonly work: UnitWork;
  readonly mode: RunRecord["mode"];
  readonly runId: string;
  /** Names the worker in this one life. */
  readonly worker: string;
  /** Aborted when another worker has taken the unit over. */
  readonly signal: AbortSignal;
  /** Says what became of it, unless another worker has it by now. */
  end(change: Pick<UnitWork, "status" | "changed" | "failure">): Promise<void>;
  /** Lets go of a unit that is not done, so that the next worker finds it free. */
  release(): Promise<void>;
}

/** The runs, one at a time, and who has which of their units. */
export interface DependencyRuns {
  /** Begins a run, or answers the one that is under way. */
  begin(made: Pick<RunRecord, "mode" | "trigger">, caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<RunRecord>;
  find(runId: string): Promise<Row<RunRecord> | undefined>;
  /** The run under way. */
  active(): Promise<RunRecord | undefined>;
  /** Writes down a run's units. Of two plans made at once one holds. */
  plan(run: Row<RunRecord>, works: readonly UnitWork[], failures: RunRecord["failures"]): Promise<void>;
  /** A unit to work on; "busy" while as many as may be are in others' hands, or the last ones; undefined when all are done. */
  next(run: RunRecord): Promise<HeldUnit | "busy" | undefined>;
  /** All units of a run. A request per 1,000. */
  works(run: RunRecord): Promise<Row<UnitWork>[]>;
  /** Changes what a run says. @throws a conflict when another worker was faster. */
  change(run: Row<RunRecord>, change: Partial<RunRecord>): Promise<Row<RunRecord>>;
  /** Ends it, so that another may begin. @throws as `change` */
  end(run: Row<RunRecord>, change: Partial<RunRecord>): Promise<void>;
  removeOld(): Promise<void>;
}

const keyOf = (runId: string): string => newestFirst(runId);
export const isOver = ({ status }: Pick<RunRecord, "status">): boolean => status !== "queued" && status !== "running";

export function createRuns(deps: { tables: Tables; clock: Clock; randomness: Randomness }): DependencyRuns {
  const { tables, clock, randomness } = deps;
  const find = (runId: string) => tables.get(Runs, RUNS, keyOf(runId));

  async function works(run: RunRecord): Promise<Row<UnitWork>[]> {
    const found: Row<UnitWork>[] = [];
    if (run.planId === undefined) return found;
    const prefix = workPrefix(run.planId);
    const range = { partitionKey: runPartition(run.runId), from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(UnitWorks, range)) found.push(...rows);
    return found;
  }

  /** The unit as it is, where its worker is dead. */
  const lostUnit = async ({ partitionKey, rowKey }: Row<UnitWork>) => {
    const found = await tables.aged(UnitWorks, partitionKey, rowKey);
    return found?.row.status === "running" && found.ageMs >= LEASE_MS ? found.row : undefined;
  };

  async function take(row: Row<UnitWork>, { runId, mode }: RunRecord): Promise<HeldUnit | undefined> {
    if (row.attempts >= MAX_ATTEMPTS) {
      const failure = {
        code: "internal",
        message: `The unit could not be worked on to its end, in ${MAX_ATTEMPTS} tries.`,
        remedy: "Look at GET /system/failed-messages and at the log; the next run tries it again.",
      };
      await tables.replace(UnitWorks, { ...row, status: "failed", failure });
      return undefined;
    }
    const worker = `dependencies/${runId}/${randomness.ulid(clock.now())}`;
    const taken = { ...row, status: "running", worker, attempts: row.attempts + 1 } as const;
    return heldUnit(await tables.replace(UnitWorks, taken), { worker, mode, runId });
  }

  function heldUnit(taken: Row<UnitWork>, of: Pick<HeldUnit, "worker" | "mode" | "runId">): HeldUnit {
    const aborted = new AbortController();
    let row = taken;
    /** One write after the other: each needs the ETag of the one before. */
    let writing: Promise<unknown> = Promise.resolve();
    const write = (change: Partial<UnitWork>) => {
      const turn = writing.then(async () => {
        try {
          row = await tables.replace(UnitWorks, { ...row, ...change });
        } catch (error) {
          if (!isConflict(error)) throw error;
          clearInterval(timer);
          aborted.abort();
        }
      });
      writing = turn.catch(() => {});
      return turn;
    };
    // A renewal that fails needs no answer: at the worst another worker takes over.
    const timer = setInterval(() => void write({}).catch(() => {}), RENEWAL_MS);
    timer.unref();
    return {
      work: withoutKeys(taken),
      ...of,
      signal: aborted.signal,
      async end(change) {
        clearInterval(timer);
        await write({ ...change, worker: undefined });
      },
      async release() {
        clearInterval(timer);
        await write({ status: "waiting", worker: undefined });
      },
    };
  }

  return {
    find,
    works,

    async active() {
      const standing = await tables.get(ActiveRun, RUNS, ACTIVE_KEY);
      const run = standing && (await find(standing.runId));
      return run && !isOver(run) ? withoutKeys(run) : undefined;
    },

    async begin({ mode, trigger }, caller) {
      return await repeatOnConflict(async () => {
        const standing = await tables.get(ActiveRun, RUNS, ACTIVE_KEY);
        const under = standing && (await find(standing.runId));
        if (under && !isOver(under)) return { run: withoutKeys(under), isNew: false };
        const now = clock.now();
        const run: RunRecord = {
          runId: randomness.ulid(now),
          mode,
          trigger,
          requestedBy: caller.actor,
          requestId: caller.requestId,
          status: "queued",
          createdAt: now.toISOString(),
          failures: [],
        };
        const one = { runId: run.runId };
        await tables.transaction(TABLE, RUNS, [
          standing ? replace(ActiveRun, ACTIVE_KEY, one, standing.etag) : insert(ActiveRun, ACTIVE_KEY, one),
          put(Runs, keyOf(run.runId), run),
        ]);
        return { run, isNew: true };
      });
    },

    async get(runId) {
      const id = runId.toUpperCase();
      const run = isUlid(id) ? await find(id) : undefined;
      if (!run) throw notFound(`The run ${runId.slice(0, 64)}`);
      return withoutKeys(run);
    },

    async plan(run, planned, failures) {
      const planId = randomness.ulid(clock.now());
      const rows = planned.map((work, index) => put(UnitWorks, workKey(planId, index), work));
      await tables.write(TABLE, runPartition(run.runId), rows);
      const change = { status: "running", planId, units: planned.length, failures } as const;
      try {
        await tables.replace(Runs, { ...run, ...change });
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    },

    async next(run) {
      return await repeatOnConflict(async () => {
        const all = await works(run);
        const waiting = all.filter(({ status }) => status === "waiting");
        let alive = 0;
        for (const one of all.filter(({ status }) => status === "running")) {
          const lost = await lostUnit(one);
          if (!lost) {
            alive++;
            continue;
          }
          const held = await take(lost, run);
          if (held) return held;
        }
        if (alive >= UNITS_AT_ONCE) return "busy";
        while (waiting.length > 0) {
          // Workers who look at the same moment choose differently.
          const [chosen] = waiting.splice(Math.floor(randomness.number() * waiting.length), 1);
          const held = await take(chosen!, run);
          if (held) return held;
        }
        return alive > 0 ? "busy" : undefined;
      }, 20);
    },

    change: async (run, change) => await tables.replace(Runs, { ...run, ...change }),

    async end(run, change) {
      await tables.transaction(TABLE, RUNS, [
        replace(Runs, run.rowKey, { ...withoutKeys(run), ...change }, run.etag),
        remove(ActiveRun, ACTIVE_KEY),
      ]);
    },

    async removeOld() {
      // Keys count down: what is older comes after.
      const from = newestFirst(encodeTime(Math.max(0, clock.now().getTime() - KEEP_MS)) + "0".repeat(16));
      const range = { partitionKey: RUNS, from, before: ACTIVE_KEY, select: ["runId"] as const };
      for await (const rows of tables.pages(Runs, range)) {
        for (const { runId } of rows) {
          const partitionKey = runPartition(runId);
          for await (const works of tables.pages(UnitWorks, { partitionKey, select: [] }))
            await tables.write(
              TABLE,
              partitionKey,
              works.map(({ rowKey }) => remove(UnitWorks, rowKey)),
            );
        }
        // The runs last: those that are left name what else is.
        await tables.write(
          TABLE,
          RUNS,
          rows.map(({ rowKey }) => remove(Runs, rowKey)),
        );
      }
    },
  };
}
