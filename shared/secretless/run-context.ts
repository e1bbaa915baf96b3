import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import type { Devops } from "../devops/devops.ts";
import type { Graph } from "../platform/azure/graph.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { withDirectoryLease } from "../rotation/directory-lease.ts";
import type { InventoryUpdates } from "../rotation/inventory-updates.ts";
import type { RunRecord } from "../rotation/secretless-run.ts";
import { LeaseLost } from "../rotation/step-errors.ts";
import type { SecretlessReport } from "./report.ts";
import type { RunRows } from "./run-rows.ts";

/** The services that the steps of a run use. */
export interface RunDependencies {
  tables: Tables;
  rows: RunRows;
  graph: Pick<
    Graph,
    | "findApplication"
    | "federatedCredentials"
    | "putFederatedCredential"
    | "removeFederatedCredential"
    | "removePassword"
  >;
  devops: Pick<Devops, "organization">;
  report: (appId: string) => Promise<SecretlessReport>;
  /** Reads the issuers and subjects that a consumer can present, from Azure: see workload-claims.ts. */
  claimsOf: (consumer: { id: string; kind: string }) => Promise<{ issuers?: string[]; subjects?: string[] }>;
  /** Returns the ID of the unfinished rotation of an application. */
  rotationOf: (appId: string) => Promise<string | undefined>;
  parseConnection: (id: string) => { projectId: string; connectionId: string } | undefined;
  inventory: Pick<InventoryUpdates, "applicationChanged">;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Given to each step: the run's record, the services, and the lease of the worker that runs the step. */
export interface RunContext {
  readonly deps: RunDependencies;
  /** The record as last read or written. */
  readonly record: RunRecord;
  now(): Date;
  /**
   * Writes a change of the record. If a user changed the record at the same time, `change` is called again with the new record.
   *
   * @throws {LeaseLost} if another worker has taken over the run.
   */
  save(change: (record: RunRecord) => Partial<RunRecord>): Promise<void>;
  /** Runs a change of the tenant's applications: see directory-lease.ts. */
  withDirectoryLease<T>(write: () => Promise<T>): Promise<T>;
  /** Runs one change outside of the run's own row, between two audit entries. `details` must not contain a secret value. */
  audited<T>(type: `secretless.${string}`, details: Record<string, unknown>, effect: () => Promise<T>): Promise<T>;
}

export function createRunContext(
  deps: RunDependencies,
  leased: Row<RunRecord>,
  workerId: string,
  caller: Caller,
): RunContext {
  let row = leased;
  return {
    deps,
    get record() {
      return row;
    },
    now: () => deps.clock.now(),
    async save(change) {
      for (;;) {
        try {
          row = await deps.rows.save(row, { ...row, ...change(row) });
          return;
        } catch (error) {
          if (!(error instanceof RowChanged)) throw error;
          const current = await deps.rows.get(row.runId);
          if (current?.working !== workerId) throw new LeaseLost();
          row = current;
        }
      }
    },
    withDirectoryLease: (write) => withDirectoryLease(deps, workerId, write),
    audited: (type, details, effect) =>
      audited(
        deps.audit,
        {
          type,
          caller,
          target: { type: "secretlessRun", id: row.runId },
          details: { appId: row.appId, keyId: row.keyId, ...details },
        },
        effect,
      ),
  };
}
