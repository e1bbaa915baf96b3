import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ResourceManager } from "../platform/azure/resource-manager.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import { licenseRequired } from "../platform/http/admission.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller, Tier } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { HistoryStore } from "../settings/retention.ts";
import { createConfigurations, type ProviderConfigurations } from "./configurations.ts";
import type { Planned } from "./decide.ts";
import { createHistory } from "./history.ts";
import { createIndexes, removalOperations } from "./indexes.ts";
import { createPlans, INSPECT_MS } from "./inspect.ts";
import { changeLease, deletionWorker, isLeased, leaseEnd, takeRecordLease } from "./leases.ts";
import { entryOfUnreadable } from "./outcomes.ts";
import { providerDependencies } from "./providers/provider-dependencies.ts";
import {
  isRecordId,
  Leases,
  leaseKey,
  Records,
  recordKey,
  SYNC,
  type SyncEntry,
  type SyncRecordRow,
  sourceOf,
  targetOf,
} from "./record.ts";
import { createSyncVaults } from "./record-vaults.ts";
import {
  createRecords,
  type RecordFilter,
  recordTarget,
  type SyncRecords,
  type Tampered,
  tampered,
} from "./records.ts";
import { createRules } from "./rules.ts";
import { failRun, type RunDeps, runRecord } from "./run.ts";
import { RunFailed } from "./run-failure.ts";
import { createSchedule } from "./schedule.ts";
import { createSources } from "./sources.ts";

/**
 * Keeps copies of vault secrets in other stores up to date. A sync record defines one copy: a source secret in a key vault, and
 * a target in another vault or at a provider such as AWS. Without a PRO license nothing can be created or run, but existing
 * records can be read and deleted.
 */
export interface Sync {
  records: Pick<SyncRecords, "create" | "change">;
  /** Configurations of the providers. */
  configurations: Pick<ProviderConfigurations, "find" | "all" | "check" | "save" | "remove" | "expiring">;
  /**
   * @throws {Problem} notFound; licenseRequired for an unknown record without a license; conflict if the record was tampered
   * with
   */
  get(recordId: string): Promise<SyncRecordRow>;
  /** @throws {Problem} invalidCursor; licenseRequired without a license and without any record */
  list(filter: RecordFilter, request: PageRequest): Promise<Page<SyncRecordRow>>;
  /** Returns a record and whether a run is in progress. @throws {Problem} as `get` */
  status(recordId: string): Promise<{ record: SyncRecordRow; running: boolean }>;
  /**
   * Lists the history of a record, newest first, also of a deleted one. @throws {Problem} as `get` if there is none;
   * invalidCursor
   */
  history(recordId: string, request: PageRequest): Promise<Page<SyncEntry>>;
  /** Returns what a run would do now. @throws {Problem} notFound */
  plan(recordId: string): Promise<Planned>;
  /** Requests an immediate run. @throws {Problem} notFound; conflict for a paused record */
  trigger(recordId: string, caller: Caller): Promise<SyncRecordRow>;
  /**
   * Deletes a record.
   *
   * @param removeTarget - Also deletes the target, recoverably if the provider can. Only possible for a target that belongs to
   * the record.
   * @throws {Problem} notFound; preconditionFailed; unavailable during a run; conflict if the target does not belong to the
   * record, or is unknown because the record was tampered with
   */
  remove(recordId: string, removeTarget: boolean, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Called after a vault secret got a new version: runs its records immediately. Does nothing without a license. */
  runFor(vault: string, secret: string): Promise<void>;
  /** Handles a message of the queue: runs a record. */
  run(recordId: string): Promise<void>;
  /** Records a run whose message failed five times. */
  failRun(recordId: string): Promise<void>;
  /** Called by a timer: sends a message for each record that is due. */
  sendDueRecords(): Promise<void>;
  /** Called after a provider's configuration changed: starts the records that failed because of it. */
  retryFailedRecords(provider: string): Promise<void>;
  /** Called by a timer once a day: deletes secrets that no provider's configuration names anymore. */
  cleanUp(caller: Caller): Promise<void>;
  /**
   * Lists all records in the order of their creation, with or without a license. Leaves out tampered ones. Makes one request
   * per 1,000.
   */
  everyRecord(): AsyncGenerator<SyncRecordRow>;
  /** Lists history entries of all records after the given one, oldest first, for alerts. */
  entriesSince(entryId: string | undefined): AsyncGenerator<SyncEntry>;
  historyStore(): HistoryStore;
}

export interface SyncDependencies {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  config: Pick<
    Config,
    | "SERVICE_KEY_VAULT_URL"
    | "cloud"
    | "PRIVATE_TARGET_HOSTS"
    | "AWS_ENDPOINT_URL"
    | "GITHUB_API_URL"
    | "GOOGLE_SECRET_MANAGER_ENDPOINT"
  >;
  licensing: { tier(): Promise<Tier> };
  /** The service's own key vault, for credentials of providers. Undefined if there is none. */
  vault: ServiceKeyVault | undefined;
  vaultSecrets: VaultSecretsClients;
  resourceManager: Pick<ResourceManager, "vault">;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

export function createSync(deps: SyncDependencies): Sync {
  const { tables, audit, config, licensing, clock } = deps;
  const vaults = createSyncVaults({ ...deps, clients: deps.vaultSecrets });
  const providers = providerDependencies(config, clock);
  const configurations = createConfigurations({ ...deps, providers });
  const sources = createSources({ vaults, clock });
  const plans = createPlans({ configurations, sources, vaults, providers });
  const indexes = createIndexes(deps);
  const records = createRecords({
    ...deps,
    indexes,
    rules: createRules({ tables, config, vaults, configurations, canSign: deps.vault !== undefined }),
  });
  const history = createHistory(tables);
  const runDeps: RunDeps = { ...deps, indexes, records, plans, sources, history };
  const schedule = createSchedule({ ...deps, records });

  const isLicensed = async () => (await licensing.tier()) === "pro";

  /** Returns a record. Without a license, existing records stay readable, and an unknown ID gives `licenseRequired`. */
  async function get(recordId: string): Promise<SyncRecordRow> {
    const record = await records.find(recordId);
    if (!record && !(await isLicensed())) throw licenseRequired();
    return record ?? (await records.get(recordId));
  }

  /** Deletes the target of a record, if it belongs to the record. */
  async function removeTarget(record: SyncRecordRow): Promise<void> {
    const signal = AbortSignal.timeout(INSPECT_MS);
    const { opened, target, state } = await plans.inspectTarget(record, signal);
    if (!state.exists) return;
    // Undefined: the provider stores no owner. Then the record knows whether it created the target or took it over.
    const isOwned = state.ownedBy === undefined ? record.targetOwned : state.ownedBy === record.recordId;
    if (!isOwned)
      throw new Problem(
        "conflict",
        "The target does not belong to this record. Delete the record without removeTarget.",
      );
    await plans.onTarget(record, { opened }, () => target.remove(record.targetName, signal));
  }

  /** Deletes a tampered record. Its target stays, because only the index rows identify the record. */
  async function removeTampered(broken: Tampered, ifMatch: string | undefined, caller: Caller): Promise<void> {
    const { recordId } = broken;
    requireMatch(broken.etag, ifMatch, THE_RECORD);
    const details = { removeTarget: false, tampered: true };
    const event = { type: "syncRecord.deleted", caller, target: recordTarget(recordId), details };
    await audited(audit, event, () =>
      repeatOnConflict(async () => {
        const now = await records.readRow(recordId);
        if (now.row) throw new Problem("conflict", "The sync record was changed at the same time. Repeat the request.");
        if (!now.broken) return;
        const { etag } = now.broken;
        requireMatch(etag, ifMatch, THE_RECORD);
        const removed = await entryOfUnreadable(recordId, { kind: "removed" }, runDeps);
        // Deleted first, because there may be more rows than one transaction takes. Without its lease, a run in progress writes
        // nothing more.
        const indexRows = [...(await indexes.deletionsOf(recordId)), remove(Leases, leaseKey(recordId))];
        await tables.write(Records.table, SYNC, indexRows);
        await tables.transaction(Records.table, SYNC, [remove(Records, recordKey(recordId), etag), ...removed]);
      }),
    );
  }

  return {
    records,
    configurations,
    get,

    async list(filter, request) {
      if (!(await isLicensed()) && !(await records.any())) throw licenseRequired();
      return await records.list(filter, request);
    },

    async status(recordId) {
      const record = await get(recordId);
      return { record, running: await isLeased(tables, recordId) };
    },

    async history(recordId, request) {
      // The history of a deleted record stays readable until its retention ends.
      const isKept = isRecordId(recordId) && (await history.last(recordId)) !== undefined;
      if (!isKept) await get(recordId);
      return await history.list(recordId, request);
    },

    plan: async (recordId) => await plans.plan(await records.get(recordId)),

    async trigger(recordId, caller) {
      await records.get(recordId);
      const event = { type: "syncRecord.runRequested", caller, target: recordTarget(recordId) };
      return await audited(audit, event, async () => {
        const record = await records.request(recordId);
        if (!record) throw new Problem("conflict", "The record is paused. Set enabled to true to run it immediately.");
        return record;
      });
    },

    async remove(recordId, withTarget, ifMatch, caller) {
      const { broken } = await records.readRow(recordId);
      if (broken && withTarget) throw tampered(recordId, "Delete it without removeTarget.");
      if (broken) return await removeTampered(broken, ifMatch, caller);
      const first = await get(recordId);
      requireMatch(first.etag, ifMatch, THE_RECORD);
      const target = recordTarget(recordId);
      const details = { removeTarget: withTarget };
      const event = { type: "syncRecord.deleted", caller, target, before: withoutKeys(first), details };
      await audited(audit, event, async () => {
        // Takes over an interrupted deletion immediately if it keeps the target. A deletion of the target calls the provider
        // and may still be in progress, so its lease must expire first.
        const lease = await takeRecordLease(tables, recordId, deletionWorker(caller.requestId, withTarget));
        if ("waitMs" in lease) {
          throw retryLater(
            "unavailable",
            "A run of the record, or its deletion, is in progress. Repeat the request later.",
            lease.waitMs / SECOND_MS,
          );
        }
        try {
          if (withTarget) await removeTarget(first).catch(asProblem);
          await repeatOnConflict(async () => {
            const row = await records.find(recordId);
            if (!row) return;
            requireMatch(row.etag, ifMatch, THE_RECORD);
            const now = clock.now();
            const entry = {
              entryId: deps.randomness.ulid(now),
              recordId,
              kind: "removed",
              at: now.toISOString(),
            } as const;
            const removed = history.entryOperations({ ...entry, source: sourceOf(row), target: targetOf(row) });
            await indexes.submit([leaseEnd(lease), ...removalOperations(row), ...removed]);
          });
        } catch (error) {
          await undefinedIfChanged(changeLease(lease, { type: "released" }));
          throw error;
        }
      });
    },

    async runFor(vault, secret) {
      const recordIds = await indexes.recordsOfSource(vault, secret);
      if (recordIds.length === 0 || !(await isLicensed())) return;
      for (const recordId of recordIds) await records.request(recordId);
    },

    run: (recordId) => runRecord(recordId, runDeps),
    failRun: (recordId) => failRun(recordId, runDeps),
    sendDueRecords: schedule.sendDueRecords,
    retryFailedRecords: schedule.retryFailedRecords,
    cleanUp: configurations.cleanUp,
    everyRecord: records.every,
    entriesSince: history.since,
    historyStore: history.store,
  };
}

const THE_RECORD = "The sync record";

/** Converts the failure to delete a target into a problem. */
function asProblem(error: unknown): never {
  if (!(error instanceof RunFailed)) throw error;
  const { failure, retryAfterSeconds = 10, isTransient } = error;
  const detail = `The record was not deleted. ${failure.message} ${failure.remedy}`;
  if (isTransient) throw retryLater("unavailable", detail, retryAfterSeconds);
  throw new Problem("conflict", detail, { members: { failure: failure.code } });
}
