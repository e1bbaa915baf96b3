import { LEASE_MS, leaseRow } from "../platform/runs/leased-row.ts";
import { createRunStore, type RunStore } from "../platform/runs/run-store.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import {
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

/** Units read at once, all instances together: what they ask counts against limits of the whole tenant. */
export const UNITS_AT_ONCE = 4;
/** A unit that so many workers began and none ended is given up. */
const MAX_ATTEMPTS = 5;

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
  /** Lets go of a unit of which a part is done, for the next worker. */
  handOn(change: Required<Pick<UnitWork, "changed" | "readTo">>): Promise<void>;
  /** Lets go of a unit that is not done, so that the next worker finds it free. */
  release(): Promise<void>;
}

/** The runs, one at a time, and who has which of their units. */
export interface DependencyRuns extends RunStore<RunRecord> {
  /** Writes down a run's units. Of two plans made at once one holds. */
  plan(run: Row<RunRecord>, works: readonly UnitWork[], failures: RunRecord["failures"]): Promise<void>;
  /** A unit to work on; "busy" while as many as may be are in others' hands, or the last ones; undefined when all are done. */
  next(run: RunRecord): Promise<HeldUnit | "busy" | undefined>;
  /** All units of a run. A request per 1,000. */
  works(run: RunRecord): Promise<Row<UnitWork>[]>;
  /** Changes what a run says. @throws a conflict when another worker was faster. */
  change(run: Row<RunRecord>, change: Partial<RunRecord>): Promise<Row<RunRecord>>;
}

export function createRuns(deps: { tables: Tables; clock: Clock; randomness: Randomness }): DependencyRuns {
  const { tables, clock, randomness } = deps;
  const kept = createRunStore({ runs: Runs, partitionKey: RUNS }, deps, "run");

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
    const found = await tables.getWithAge(UnitWorks, partitionKey, rowKey);
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
    const held = leaseRow(tables, UnitWorks, taken);
    const end = async (change: Partial<UnitWork>) => {
      try {
        await held.end((row) => tables.replace(UnitWorks, { ...row, ...change, worker: undefined }));
      } catch (error) {
        // Another worker has it by now.
        if (!isConflict(error)) throw error;
      }
    };
    return {
      work: withoutKeys(taken),
      ...of,
      signal: held.signal,
      end,
      handOn: (change) => end({ ...change, status: "waiting", attempts: 0 }),
      release: () => end({ status: "waiting" }),
    };
  }

  /** What else there is of runs. */
  async function removeWorks(runIds: readonly string[]): Promise<void> {
    for (const partitionKey of runIds.map(runPartition)) {
      for await (const works of tables.pages(UnitWorks, { partitionKey, select: [] })) {
        const removals = works.map(({ rowKey }) => remove(UnitWorks, rowKey));
        await tables.write(TABLE, partitionKey, removals);
      }
    }
  }

  return {
    ...kept,
    works,
    removeOld: () => kept.removeOld(removeWorks),

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
  };
}
