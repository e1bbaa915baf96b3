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
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { HistoryStore } from "../settings/retention.ts";
import { createConfigurations, type ProviderConfigurations } from "./configurations.ts";
import { RunFailed } from "./failure.ts";
import { createHistory } from "./history.ts";
import { createIndexes, removal } from "./indexes.ts";
import { isHeld, takeLease } from "./leases.ts";
import { createOutcomes } from "./outcomes.ts";
import type { Planned } from "./plan.ts";
import { createPlans, LOOK_MS } from "./plans.ts";
import { providerDependencies } from "./providers/dependencies.ts";
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
import {
  createRecords,
  type RecordFilter,
  recordTarget,
  type SyncRecords,
  type Tampered,
  tampered,
} from "./records.ts";
import { createRules } from "./rules.ts";
import { createRuns } from "./run.ts";
import { createSchedule } from "./schedule.ts";
import { createSources } from "./source.ts";
import { createSyncVaults } from "./vaults.ts";

/**
 * Keeps copies of vault secrets elsewhere true. Without a PRO licence nothing begins; what there is can still be looked at
 * and deleted.
 */
export interface Sync {
  records: Pick<SyncRecords, "create" | "change">;
  /** What the providers are configured with. */
  configurations: Pick<ProviderConfigurations, "find" | "all" | "save" | "remove" | "expiring">;
  /** @throws {Problem} notFound; licenseRequired without a licence while there is no such record; conflict: tampered with */
  get(recordId: string): Promise<SyncRecordRow>;
  /** @throws {Problem} invalidCursor; licenseRequired without a licence while there is no record */
  list(filter: RecordFilter, request: PageRequest): Promise<Page<SyncRecordRow>>;
  /** A record, and whether a run of it is under way. @throws {Problem} as `get` */
  status(recordId: string): Promise<{ record: SyncRecordRow; running: boolean }>;
  /** Newest first; of a deleted record too. @throws {Problem} as `get` where there is none; invalidCursor */
  history(recordId: string, request: PageRequest): Promise<Page<SyncEntry>>;
  /** What a run would do now. @throws {Problem} notFound */
  plan(recordId: string): Promise<Planned>;
  /** Has a record run at once. @throws {Problem} notFound; conflict for a paused one */
  trigger(recordId: string, caller: Caller): Promise<SyncRecordRow>;
  /**
   * @param removeTarget - Deletes the target as well, recoverably where the provider can; only one that is ours.
   * @throws {Problem} notFound; preconditionFailed; unavailable while it runs; conflict for a target that is not ours, or is
   * not known since the record was tampered with
   */
  remove(recordId: string, removeTarget: boolean, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** A secret of a vault has a new version: its records are run at once. Nothing happens without a licence. */
  runFor(vault: string, secret: string): Promise<void>;
  /** For the queues and timers of sync. */
  run(recordId: string): Promise<void>;
  gaveUp(recordId: string): Promise<void>;
  tick(): Promise<void>;
  configured(provider: string): Promise<void>;
  cleanUp(caller: Caller): Promise<void>;
  /** All records in the order they were made, licence or not; one that was tampered with is left out. One request per 1,000. */
  everyRecord(): AsyncGenerator<SyncRecordRow>;
  /** What happened to all records after an entry, the oldest first; for the alerts. */
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
  /** The service's own key vault, for the providers' credentials; undefined while it has none. */
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
  const outcomes = createOutcomes({ ...deps, indexes, records, history });
  const runs = createRuns({ ...deps, indexes, records, plans, sources, outcomes });
  const schedule = createSchedule({ ...deps, records });

  const licensed = async () => (await licensing.tier()) === "pro";

  /** What there is stays to be seen; who never had a licence is told what this needs. */
  async function get(recordId: string): Promise<SyncRecordRow> {
    const record = await records.find(recordId);
    if (!record && !(await licensed())) throw licenseRequired();
    return record ?? (await records.get(recordId));
  }

  /** Deletes the target of a record, if it is ours. */
  async function removeTarget(record: SyncRecordRow): Promise<void> {
    const signal = AbortSignal.timeout(LOOK_MS);
    const { opened, target, state } = await plans.lookAtTarget(record, signal);
    if (!state.exists) return;
    const ours = state.ownedBy === undefined ? record.targetOwned : state.ownedBy === record.recordId;
    if (!ours)
      throw new Problem("conflict", "The target is not this record's: delete the record without removeTarget.");
    await plans.onTarget({ opened }, () => target.remove(record.targetName, signal));
  }

  /** Only its places in the indexes tell what it was: its target stays as it is. */
  async function removeTampered(broken: Tampered, ifMatch: string | undefined, caller: Caller): Promise<void> {
    const { recordId } = broken;
    requireMatch(broken.etag, ifMatch, THE_RECORD);
    const details = { removeTarget: false, tampered: true };
    const event = { type: "syncRecord.deleted", caller, target: recordTarget(recordId), details };
    await audited(audit, event, () =>
      repeatOnConflict(async () => {
        const now = await records.look(recordId);
        if (now.row) throw new Problem("conflict", "The sync record was changed at the same time. Repeat the request.");
        if (!now.broken) return;
        const { etag } = now.broken;
        requireMatch(etag, ifMatch, THE_RECORD);
        const removed = await outcomes.enteredUnseen(recordId, { kind: "removed" });
        // First, since they may be more than one transaction takes. Without its lease a run under way writes nothing more.
        const places = [...(await indexes.placesOf(recordId)), remove(Leases, leaseKey(recordId))];
        await tables.write(Records.table, SYNC, places);
        await tables.transaction(Records.table, SYNC, [remove(Records, recordKey(recordId), etag), ...removed]);
      }),
    );
  }

  return {
    records,
    configurations,
    get,

    async list(filter, request) {
      if (!(await licensed()) && !(await records.any())) throw licenseRequired();
      return await records.list(filter, request);
    },

    async status(recordId) {
      const record = await get(recordId);
      return { record, running: await isHeld(tables, recordId) };
    },

    async history(recordId, request) {
      // That of a record that was deleted stays to be read for the retention.
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
        if (!record) throw new Problem("conflict", "The record is paused. Set enabled to true: it then runs at once.");
        return record;
      });
    },

    async remove(recordId, withTarget, ifMatch, caller) {
      const { broken } = await records.look(recordId);
      if (broken && withTarget) throw tampered(recordId, "Delete it without removeTarget.");
      if (broken) return await removeTampered(broken, ifMatch, caller);
      const first = await get(recordId);
      requireMatch(first.etag, ifMatch, THE_RECORD);
      const target = recordTarget(recordId);
      const details = { removeTarget: withTarget };
      const event = { type: "syncRecord.deleted", caller, target, before: withoutKeys(first), details };
      await audited(audit, event, async () => {
        const owner = withTarget ? `delete target ${caller.requestId}` : `${DELETION}${caller.requestId}`;
        // One that was cut off when storage went is gone on with at once: it writes nothing but rows, under its lease.
        const held = await takeLease(tables, recordId, owner, (holder) => holder.startsWith(DELETION));
        if (!held.lease) {
          throw retryLater(
            "unavailable",
            "A run of the record, or its deletion, is in progress. Repeat the request later.",
            held.waitMs / SECOND_MS,
          );
        }
        const { lease } = held;
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
            const removed = history.enter({ ...entry, source: sourceOf(row), target: targetOf(row) });
            await indexes.submit([lease.end(), ...removal(row), ...removed]);
          });
        } catch (error) {
          await lease.release();
          throw error;
        }
      });
    },

    async runFor(vault, secret) {
      const found = await indexes.ofSource(vault, secret);
      if (found.length === 0 || !(await licensed())) return;
      for (const recordId of found) await records.request(recordId);
    },

    run: runs.run,
    gaveUp: runs.gaveUp,
    tick: schedule.tick,
    configured: schedule.configured,
    cleanUp: configurations.cleanUp,
    everyRecord: records.every,
    entriesSince: history.since,
    historyStore: history.store,
  };
}

const THE_RECORD = "The sync record";

/** The owner of a lease, before the request's id, that deletes a record and not its target. */
const DELETION = "delete record ";

/** What a person who waits is told of a target that can't be deleted now. */
function asProblem(error: unknown): never {
  if (!(error instanceof RunFailed)) throw error;
  const { failure, retryAfterSeconds = 10, passing } = error;
  const detail = `The record was not deleted. ${failure.message} ${failure.remedy}`;
  if (passing) throw retryLater("unavailable", detail, retryAfterSeconds);
  throw new Problem("conflict", detail, { members: { failure: failure.code } });
}
