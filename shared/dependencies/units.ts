import { HEARTBEAT_LEASE, type LeasedRow, takeLease, type WorkKind } from "../platform/runs/leased-row.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { type RunRecord, runPartition, TABLE, type UnitWork, UnitWorks, workPrefix } from "./rows.ts";
import { nextUnit } from "./run-states.ts";

/**
 * The units of a run: parts of a source, such as a subscription. Each is in a row that one worker leases. The states of a unit
 * are in run-states.ts.
 */

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

/**
 * Returns the units of a run. Makes one request per 1,000. Leaves out units whose rows can't be read, so that the others are
 * still read. At the end of the run these units count as failed.
 */
export async function readRunUnits({ runId, planId }: RunRecord, tables: Tables): Promise<Row<UnitWork>[]> {
  const found: Row<UnitWork>[] = [];
  if (planId === undefined) return found;
  const prefix = workPrefix(planId);
  const range = {
    partitionKey: runPartition(runId),
    from: prefix,
    before: keyEnd(prefix),
    onCorrupt: "leaveOut" as const,
  };
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
  const units = await readRunUnits(run, tables);
  const waiting = units.filter(({ status }) => status === "waiting");
  // Starts at a random unit, so that concurrent workers take different ones.
  const start = Math.floor(randomness.number() * waiting.length);
  const running = units.filter(({ status }) => status === "running");
  /** Number of units that other workers have. */
  let busy = 0;
  // Running units come first: their leases are tried, to count the live workers and to take over from crashed ones.
  for (const unit of [...running, ...waiting.slice(start), ...waiting.slice(0, start)]) {
    if (busy >= UNITS_AT_ONCE && unit.status === "waiting") break;
    const worker = `dependencies/${run.runId}/${randomness.ulid(clock.now())}`;
    const leased = await takeLease(tables, UNIT_KIND, unit, worker);
    if (leased === undefined) continue;
    if (!("waitMs" in leased)) return leased;
    busy++;
  }
  return busy > 0 ? "busy" : undefined;
}

/** Deletes the units of runs. */
export async function removeRunUnits(runIds: readonly string[], tables: Tables): Promise<void> {
  for (const partitionKey of runIds.map(runPartition)) {
    for await (const units of tables.pages(UnitWorks, { partitionKey, select: [] })) {
      const removals = units.map(({ rowKey }) => remove(UnitWorks, rowKey));
      await tables.write(TABLE, partitionKey, removals);
    }
  }
}
