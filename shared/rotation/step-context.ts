import type { AuditRecorder } from "../audit/event.ts";
import type { Graph } from "../platform/azure/graph.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { SignInOutcome } from "../platform/azure/sign-in-proof.ts";
import type { VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type { ConsumersOfSecrets } from "./consumer.ts";
import type { LoginServers } from "./database-logins/login-servers.ts";
import type { LoginRegistrations } from "./database-logins/registrations.ts";
import { withDirectoryLease } from "./directory-lease.ts";
import type { InventoryUpdates } from "./inventory-updates.ts";
import type { KeysClient } from "./resource-keys/keys-client.ts";
import type { KeyLinkStore } from "./resource-keys/links.ts";
import type { RotationRecord } from "./rotation.ts";
import type { RotationRows } from "./rows.ts";
import type { SecretUsage } from "./secret-usage.ts";
import { LeaseLost } from "./step-errors.ts";
import type { Matches } from "./targets.ts";

/** Interval at which a worker renews the lease during work that makes several calls. */
const HEARTBEAT_INTERVAL_MS = MINUTE_MS;

/** Signs in once with a client secret of an application, on a new connection. Stores nothing. */
export type SignIn = (appId: string, secret: string) => Promise<SignInOutcome>;

/** The services that the steps of a rotation use. */
export interface StepDependencies {
  tables: Tables;
  rows: RotationRows;
  graph: Graph;
  signIn: SignIn;
  vaults: VaultSecretsClients;
  /** The service's own key vault. It stores held copies: copies of new values until the rotation ends. */
  serviceVault: ServiceKeyVault;
  matches: Matches;
  /** Keys of Azure resources, and the vault secrets that store them. */
  keys: KeysClient;
  keyLinks: KeyLinkStore;
  /** Logins of databases: their servers, and the registrations of their users and vault secrets. */
  loginServers: LoginServers;
  logins: LoginRegistrations;
  inventory: InventoryUpdates;
  consumers: ConsumersOfSecrets;
  usage: SecretUsage;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Given to each step of a rotation: the rotation's record, the services, and the lease of the worker that runs the step. */
export interface StepContext {
  readonly deps: StepDependencies;
  readonly caller: Caller;
  /** The record as last read or written. */
  readonly record: RotationRecord;
  now(): Date;
  /**
   * Writes a change of the record. If a user changed the record at the same time, `change` is called again with the new record.
   *
   * @throws {LeaseLost} if another worker has taken over the rotation.
   */
  save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void>;
  /**
   * Runs work that makes several cloud calls, and renews the lease meanwhile, so that no other worker starts the same step. The
   * renewals do not change the content of the record.
   */
  withHeartbeat<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Runs a change of the tenant's applications while no other worker of this service changes one.
   *
   * @throws {ContinueLater} if another worker changes an application or did so in the last two seconds.
   */
  withDirectoryLease<T>(write: () => Promise<T>): Promise<T>;
}

/**
 * Creates the context of one run of a step.
 *
 * @param leased - The rotation as this worker wrote it when it took the lease.
 * @param workerId - ID of this worker, as stored in `working`.
 */
export function createStepContext(
  deps: StepDependencies,
  leased: Row<RotationRecord>,
  workerId: string,
  caller: Caller,
): StepContext {
  const { rows, clock } = deps;
  let row = leased;

  async function save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void> {
    for (;;) {
      try {
        row = await rows.save(row, { ...row, ...change(row) });
        return;
      } catch (error) {
        if (!(error instanceof RowChanged)) throw error;
        const current = await rows.get(row.rotationId);
        if (current?.working !== workerId) throw new LeaseLost();
        row = current;
      }
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
      // A renewal that fails does not stop the work. If another worker took over meanwhile, the next save throws `LeaseLost`.
      const renewals = startHeartbeat(HEARTBEAT_INTERVAL_MS, () => save(() => ({})));
      try {
        return await work();
      } finally {
        await renewals.stop();
      }
    },
    withDirectoryLease: (write) => withDirectoryLease(deps, workerId, write),
  };
}
