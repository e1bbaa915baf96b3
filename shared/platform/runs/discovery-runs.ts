import * as z from "zod";
import type { Caller } from "../http/endpoint.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import { HEARTBEAT_LEASE, type LeasedRow, takeLease, type WorkKind } from "./leased-row.ts";
import { createRunStore, type NewRun, type RunRows, type RunStore, runKey } from "./run-store.ts";

/** Discovery runs read another system, such as a directory. A run can take longer than the request that starts it. */

/**
 * `partial`: some lists could not be read, and `failures` names them. `failed`: none could be read, or the run was given up.
 */
export const RUN_STATUSES = ["running", "completed", "partial", "failed"] as const;

/** A list that could not be read, and the remedy. */
export const ListFailure = z.object({
  list: z.string(),
  code: z.string(),
  message: z.string(),
  remedy: z.string(),
  at: z.string(),
});
export type ListFailure = z.infer<typeof ListFailure>;

/** Fields of the record of every discovery run. Each module adds its own. */
export const DiscoveryRunFields = z.object({
  runId: z.string(),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  status: z.enum(RUN_STATUSES),
  createdAt: z.string(),
  finishedAt: z.string().optional(),
  failures: z.array(ListFailure),
  /** The worker that has leased the run. The lease expires `HEARTBEAT_LEASE.leaseMs` after the last write of this row. */
  worker: z.string().optional(),
  /** Number of workers that started the run. */
  attempts: z.int(),
});
export type DiscoveryRunFields = z.infer<typeof DiscoveryRunFields>;

/** Another worker has leased the run. Retry after `waitMs` milliseconds. */
export class RunBusy extends Error {
  override readonly name = "RunBusy";
  readonly waitMs: number;
  constructor(waitMs: number) {
    super(`Another worker has leased the discovery run. Try again in ${Math.ceil(waitMs / SECOND_MS)} s`);
    this.waitMs = waitMs;
  }
}

/** A run that this worker has leased. */
export interface LeasedRun<R extends DiscoveryRunFields> {
  readonly run: R;
  /** Unique id of the worker, new for each lease. */
  readonly worker: string;
  /** Aborted when another worker has taken over the run. */
  readonly signal: AbortSignal;
  /**
   * Verifies that this worker still has the lease.
   *
   * @throws a conflict if another worker has taken over the run.
   */
  confirm(): Promise<void>;
  /**
   * Changes fields of the run.
   *
   * @throws as `confirm`.
   */
  change(change: Partial<R>): Promise<void>;
  /**
   * Ends the run with this change, so that another run can start.
   *
   * @throws as `confirm`.
   */
  end(change: Partial<R>): Promise<void>;
  /** Releases the lease of an unfinished run, so that the next message can take the lease. */
  release(): Promise<void>;
}

/** Discovery runs, one at a time. */
export interface DiscoveryRuns<R extends DiscoveryRunFields> extends Pick<RunStore<R>, "get" | "active"> {
  /** Starts a run, or returns the run that is in progress. */
  start(
    ownFields: Omit<R, keyof DiscoveryRunFields> & Pick<R, "trigger">,
    caller: Caller,
  ): Promise<{ run: R; isNew: boolean }>;
  /**
   * Takes the lease of a run. Returns undefined if the run has ended.
   *
   * @throws {RunBusy} while another worker has the lease.
   */
  lease(runId: string): Promise<LeasedRun<R> | undefined>;
  /** Ends a run that no worker finished. */
  fail(runId: string, failure: ListFailure): Promise<R | undefined>;
  removeOld(): Promise<void>;
}

/** Creates the store of a module's discovery runs, with leases. */
export function createDiscoveryRuns<R extends DiscoveryRunFields>(
  rows: RunRows<R>,
  deps: { tables: Tables; clock: Clock; randomness: Randomness },
): DiscoveryRuns<R> {
  const { tables, clock, randomness } = deps;
  const { runs: Runs, partitionKey } = rows;
  const runStore = createRunStore(rows, deps, "discovery");
  const recordOf = (row: Row<R>) => withoutKeys(row) as unknown as R;
  /** Change that ends the lease: a run without a worker can be leased at once. */
  const released = { worker: undefined } as Partial<R>;
  /** A run is leased while it has a worker, and can't be leased after its end. */
  const kind: WorkKind<R> = {
    ...HEARTBEAT_LEASE,
    entity: Runs,
    isLeased: ({ status, worker }) => status === "running" && worker !== undefined,
    take: (run, { worker, abandoned }) =>
      run?.status !== "running" || (run.worker !== undefined && !abandoned)
        ? undefined
        : { ...run, worker, attempts: run.attempts + 1 },
  };

  return {
    get: runStore.get,
    active: runStore.active,
    removeOld: () => runStore.removeOld(),

    async start(ownFields, caller) {
      const initialFields = { status: "running", failures: [], attempts: 0 } satisfies Partial<DiscoveryRunFields>;
      return await runStore.start({ ...ownFields, ...initialFields } as unknown as NewRun<R>, caller);
    },

    async lease(runId) {
      const worker = `discovery/${runId}/${randomness.ulid(clock.now())}`;
      const leased = await takeLease(tables, kind, { partitionKey, rowKey: runKey(runId) }, worker);
      if (leased && "waitMs" in leased) throw new RunBusy(leased.waitMs);
      return leased && leasedRun(leased, worker);
    },

    async fail(runId, failure) {
      const row = await runStore.find(runId);
      if (row?.status !== "running") return undefined;
      const change = {
        status: "failed" as const,
        finishedAt: clock.now().toISOString(),
        failures: [...row.failures, failure],
      } satisfies Partial<DiscoveryRunFields>;
      await runStore.end(row, { ...released, ...(change as Partial<R>) });
      return { ...recordOf(row), ...change };
    },
  };

  function leasedRun(leasedRow: LeasedRow<R>, worker: string): LeasedRun<R> {
    return {
      get run() {
        return recordOf(leasedRow.row);
      },
      worker,
      signal: leasedRow.signal,
      confirm: () => leasedRow.change({}),
      change: leasedRow.change,
      end: (change) => leasedRow.end((row) => runStore.end(row, { ...released, ...change })),
      async release() {
        const write = leasedRow.end((row) => tables.replace(Runs, { ...row, ...released }));
        await write.catch((error: unknown) => {
          // After a conflict another worker has the run, so nothing is left to release.
          if (!isConflict(error)) throw error;
        });
      },
    };
  }
}
