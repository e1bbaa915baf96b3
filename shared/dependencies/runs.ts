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

/** Number of units that all instances together read concurrently, because their requests count against limits of the tenant. */
export const UNITS_AT_ONCE = 4;
/** After this many workers started a unit and none finished it, the unit fails. */
const MAX_ATTEMPTS = 5;

/** A worker's lease on a unit of a run. */
export interface LeasedUnit {
  readonly work: UnitWork;
  readonly mode: RunRecord["mode"];
  readonly runId: string;
  /** Unique ID of the worker for this lease. */
  readonly worker: string;
  /** Aborted if another worker has taken the unit. */
  readonly signal: AbortSignal;
  /** Stores the result, unless another worker has taken the unit. */
  end(change: Pick<UnitWork, "status" | "changed" | "failure">): Promise<void>;
  /** Releases a partly read unit for the next worker. */
  handOff(change: Required<Pick<UnitWork, "changed" | "readTo">>): Promise<void>;
  /** Releases an unfinished unit, so that the next worker can take it immediately. */
  release(): Promise<void>;
}

/** Stores discovery runs, one at a time, and the leases on their units. */
export interface DependencyRuns extends RunStore<RunRecord> {
  /** Stores the units of a run. If two workers plan concurrently, one plan becomes valid. */
  plan(run: Row<RunRecord>, works: readonly UnitWork[], failures: RunRecord["failures"]): Promise<void>;
  /**
   * Leases a unit to work on. Returns "busy" if other workers have the maximum number of units or the last ones, and undefined
   * if all are done.
   */
  leaseNextUnit(run: RunRecord): Promise<LeasedUnit | "busy" | undefined>;
  /** Returns all units of a run. Makes one request per 1,000. */
  works(run: RunRecord): Promise<Row<UnitWork>[]>;
  /** Changes a run. @throws A conflict if another worker changed it first. */
  change(run: Row<RunRecord>, change: Partial<RunRecord>): Promise<Row<RunRecord>>;
}

export function createRuns(deps: { tables: Tables; clock: Clock; randomness: Randomness }): DependencyRuns {
  const { tables, clock, randomness } = deps;
  const store = createRunStore({ runs: Runs, partitionKey: RUNS }, deps, "run");

  async function works(run: RunRecord): Promise<Row<UnitWork>[]> {
    const found: Row<UnitWork>[] = [];
    if (run.planId === undefined) return found;
    const prefix = workPrefix(run.planId);
    const range = { partitionKey: runPartition(run.runId), from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(UnitWorks, range)) found.push(...rows);
    return found;
  }

  /** Returns the unit if the lease of its worker has expired. */
  const findExpired = async ({ partitionKey, rowKey }: Row<UnitWork>) => {
    const found = await tables.getWithAge(UnitWorks, partitionKey, rowKey);
    return found?.row.status === "running" && found.ageMs >= LEASE_MS ? found.row : undefined;
  };

  /** Leases a unit, or fails it and returns undefined if too many workers have tried it. */
  async function lease(row: Row<UnitWork>, { runId, mode }: RunRecord): Promise<LeasedUnit | undefined> {
    if (row.attempts >= MAX_ATTEMPTS) {
      const failure = {
        code: "internal",
        message: `The unit could not be completed in ${MAX_ATTEMPTS} attempts.`,
        remedy: "Check GET /system/failed-messages and the log. The next run tries again.",
      };
      await tables.replace(UnitWorks, { ...row, status: "failed", failure });
      return undefined;
    }
    const worker = `dependencies/${runId}/${randomness.ulid(clock.now())}`;
    const claimed = { ...row, status: "running", worker, attempts: row.attempts + 1 } as const;
    return leasedUnit(await tables.replace(UnitWorks, claimed), { worker, mode, runId });
  }

  function leasedUnit(row: Row<UnitWork>, owner: Pick<LeasedUnit, "worker" | "mode" | "runId">): LeasedUnit {
    const leased = leaseRow(tables, UnitWorks, row);
    const end = async (change: Partial<UnitWork>) => {
      try {
        await leased.end((row) => tables.replace(UnitWorks, { ...row, ...change, worker: undefined }));
      } catch (error) {
        // Another worker has taken the unit.
        if (!isConflict(error)) throw error;
      }
    };
    return {
      work: withoutKeys(row),
      ...owner,
      signal: leased.signal,
      end,
      // The unit made progress, so its attempts are counted anew.
      handOff: (change) => end({ ...change, status: "waiting", attempts: 0 }),
      release: () => end({ status: "waiting" }),
    };
  }

  /** Deletes the units of old runs. */
  async function removeWorks(runIds: readonly string[]): Promise<void> {
    for (const partitionKey of runIds.map(runPartition)) {
      for await (const works of tables.pages(UnitWorks, { partitionKey, select: [] })) {
        const removals = works.map(({ rowKey }) => remove(UnitWorks, rowKey));
        await tables.write(TABLE, partitionKey, removals);
      }
    }
  }

  return {
    ...store,
    works,
    removeOld: () => store.removeOld(removeWorks),

    async plan(run, planned, failures) {
      const planId = randomness.ulid(clock.now());
      const rows = planned.map((work, index) => put(UnitWorks, workKey(planId, index), work));
      await tables.write(TABLE, runPartition(run.runId), rows);
      const change = { status: "running", planId, units: planned.length, failures } as const;
      try {
        await tables.replace(Runs, { ...run, ...change });
      } catch (error) {
        // Another worker's plan became valid. The rows of this one are never read, because their keys contain its plan ID.
        if (!isConflict(error)) throw error;
      }
    },

    async leaseNextUnit(run) {
      return await repeatOnConflict(async () => {
        const all = await works(run);
        const waiting = all.filter(({ status }) => status === "waiting");
        /** Number of units whose worker still renews its lease. */
        let alive = 0;
        for (const running of all.filter(({ status }) => status === "running")) {
          const expired = await findExpired(running);
          if (!expired) {
            alive++;
            continue;
          }
          const leased = await lease(expired, run);
          if (leased) return leased;
        }
        if (alive >= UNITS_AT_ONCE) return "busy";
        while (waiting.length > 0) {
          // A random choice, so that concurrent workers take different units.
          const [chosen] = waiting.splice(Math.floor(randomness.number() * waiting.length), 1);
          const leased = await lease(chosen!, run);
          if (leased) return leased;
        }
        return alive > 0 ? "busy" : undefined;
        // 20 attempts, because several workers may lease units at the same time.
      }, 20);
    },

    change: async (run, change) => await tables.replace(Runs, { ...run, ...change }),
  };
}
