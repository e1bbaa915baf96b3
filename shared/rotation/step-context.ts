import type { AuditRecorder } from "../audit/event.ts";
import type { Graph } from "../platform/azure/graph.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { SignInOutcome } from "../platform/azure/sign-in-proof.ts";
import type { VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { ConsumersOfSecrets } from "./consumer.ts";
import { ROTATIONS, type RotationRecord, WriterLeases } from "./rotation.ts";
import type { RotationRows } from "./rows.ts";
import type { SecretUsage } from "./secret-usage.ts";
import { ContinueLater, LeaseLost } from "./step-errors.ts";
import type { Matches } from "./targets.ts";

/**
 * A worker that has not written for this time is considered crashed. Each write renews the lease. One call to the cloud ends
 * within 4 minutes, including its retries (`CALL_LIMITS`).
 */
export const LEASE_MS = 5 * MINUTE_MS;

/** Interval of the heartbeat during work of several calls. */
const RENEWED_MS = MINUTE_MS;

/**
 * Minimum time between two changes of the tenant's applications. Graph rejects two within 300 ms. The store's clock counts
 * seconds, so an age of two means more than one second. https://learn.microsoft.com/graph/throttling-limits
 */
const PAUSE_MS = 2 * SECOND_MS;
/** Wait while another worker changes an application. A change takes a second or two, unless the worker crashed. */
const BUSY_SECONDS = { least: 3, most: 30 };
const LEASE_ROW = "tenant";

/** Signs in once with a client secret of an application, on a new connection. Stores nothing. */
export type SignIn = (appId: string, secret: string) => Promise<SignInOutcome>;

/** The services that the steps of a rotation use. */
export interface StepDependencies {
  tables: Tables;
  rows: RotationRows;
  graph: Graph;
  signIn: SignIn;
  vaults: VaultSecretsClients;
  /** The service's own key vault, which stores held copies. */
  own: ServiceKeyVault;
  matches: Matches;
  consumers: ConsumersOfSecrets;
  usage: SecretUsage;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** The lease of one worker on a rotation, for one step, with the record and the services that the step needs. */
export interface StepContext {
  readonly deps: StepDependencies;
  readonly caller: Caller;
  /** The record as last read or written. */
  readonly record: RotationRecord;
  now(): Date;
  /**
   * Writes a change of the record. `change` may be called again, because users cancel and finish at the same time.
   *
   * @throws {TakenOver} if another worker has the rotation.
   */
  save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void>;
  /**
   * Runs work of several cloud calls and renews the lease meanwhile, so that no other worker starts the same step. Does not
   * change the record.
   */
  withHeartbeat<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Runs a change of the tenant's applications while no other worker of this service makes one.
   *
   * @throws {Later} if another worker does, or did a moment ago.
   */
  withDirectoryLease<T>(write: () => Promise<T>): Promise<T>;
}

export function createStepContext(
  deps: StepDependencies,
  claimed: Row<RotationRecord>,
  owner: string,
  caller: Caller,
): StepContext {
  const { tables, rows, clock, randomness } = deps;
  let row = claimed;

  async function save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void> {
    for (;;) {
      try {
        row = await rows.save(row, { ...row, ...change(row) });
        return;
      } catch (error) {
        if (!(error instanceof RowChanged)) throw error;
        const now = await rows.get(row.rotationId);
        if (now?.working !== owner) throw new LeaseLost();
        row = now;
      }
    }
  }

  /** @returns A function that releases the lease. */
  async function lease(): Promise<() => Promise<void>> {
    const found = await tables.getWithAge(WriterLeases, ROTATIONS, LEASE_ROW);
    if (found && found.row.owner !== "" && found.ageMs < LEASE_MS) {
      throw new ContinueLater(
        Math.min(BUSY_SECONDS.most, Math.max(BUSY_SECONDS.least, Math.ceil(found.ageMs / SECOND_MS))),
      );
    }
    if (found && found.row.owner === "" && found.ageMs < PAUSE_MS) throw new ContinueLater(PAUSE_MS / SECOND_MS);
    const write = (held: string) => ({ owner: held, writeId: randomness.ulid(clock.now()) });
    try {
      const taken =
        found === undefined
          ? await tables.insert(WriterLeases, ROTATIONS, LEASE_ROW, write(owner))
          : await tables.replace(WriterLeases, { ...found.row, ...write(owner) });
      return async () => void (await undefinedIfChanged(tables.replace(WriterLeases, { ...taken, ...write("") })));
    } catch (error) {
      if (isConflict(error)) throw new ContinueLater(BUSY_SECONDS.least);
      throw error;
    }
  }

  return {
    deps,
    caller,
    get record() {
      return row;
    },
    now: () => clock.now(),
    save,
    async withHeartbeat<T>(work: () => Promise<T>) {
      // If the lease was lost, the save after the work throws `TakenOver`.
      const renewals = startHeartbeat(RENEWED_MS, () => save(() => ({})));
      try {
        return await work();
      } finally {
        await renewals.stop();
      }
    },
    async withDirectoryLease<T>(write: () => Promise<T>) {
      const giveBack = await lease();
      try {
        return await write();
      } finally {
        await giveBack();
      }
    },
  };
}
