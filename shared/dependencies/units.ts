import { HEARTBEAT_LEASE, type LeasedRow, takeLease, type WorkKind } from "../platform/runs/leased-row.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { type RunRecord, runPartition, TABLE, type UnitWork, UnitWorks, workPrefix } from "./rows.ts";
import { nextUnit } from "./run-states.ts";

/** The units of a run, each in a row that one worker leases. The states of a unit are in run-states.ts. */

/**
 * Number of units that all instances together read concurrently, because their requests count against limits of the tenant.
 * Workers that take a unit at the same moment can exceed the number.
 */
export const UNITS_AT_ONCE = 4;

const UNIT_KIND: WorkKind<UnitWork> = {
  ...HEARTBEAT_LEASE,
  entity: UnitWorks,
  isLeased: ({ status }) => status === "running",
  take: (unit, taker) => unit && nextUnit(unit, { type: "taken", ...taker }),
};

/** Returns all units of a run. Makes one request per 1,000. */
export async function readWorks({ runId, planId }: RunRecord, tables: Tables): Promise<Row<UnitWork>[]> {
  const found: Row<UnitWork>[] = [];
  if (planId === undefined) return found;
  const prefix = workPrefix(planId);
  const range = { partitionKey: runPartition(runId), from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(UnitWorks, range)) found.push(...rows);
  return found;
}

/**
 * Leases a unit to work on. Returns "busy" if other workers have the maximum number of units or all remaining ones, and
 * undefined if all units have ended.
 */
export async function takeNextUnit(
  run: RunRecord,
  { tables, clock, randomness }: { tables: Tables; clock: Clock; randomness: Randomness },
): Promise<LeasedRow<UnitWork> | "busy" | undefined> {
  const works = await readWorks(run, tables);
  const waiting = works.filter(({ status }) => status === "waiting");
  // Starts at a random unit, so that concurrent workers take different ones.
  const start = Math.floor(randomness.number() * waiting.length);
  const running = works.filter(({ status }) => status === "running");
  /** Number of units that other workers have. */
  let busy = 0;
  for (const work of [...running, ...waiting.slice(start), ...waiting.slice(0, start)]) {
    if (busy >= UNITS_AT_ONCE && work.status === "waiting") break;
    const worker = `dependencies/${run.runId}/${randomness.ulid(clock.now())}`;
    const leased = await takeLease(tables, UNIT_KIND, work, worker);
    if (leased === undefined) continue;
    if (!("waitMs" in leased)) return leased;
    busy++;
  }
  return busy > 0 ? "busy" : undefined;
}

/** Deletes the units of runs. */
export async function removeWorks(runIds: readonly string[], tables: Tables): Promise<void> {
  for (const partitionKey of runIds.map(runPartition)) {
    for await (const works of tables.pages(UnitWorks, { partitionKey, select: [] })) {
      const removals = works.map(({ rowKey }) => remove(UnitWorks, rowKey));
      await tables.write(TABLE, partitionKey, removals);
    }
  }
}
