import { encodeTime } from "ulid";
import { audited } from "../audit/audited.ts";
import { type AssetRecord, assetId, fingerprint, locationsOf, sourceOf } from "../inventory/asset.ts";
import type { Moment } from "../inventory/asset-status.ts";
import type { AssetQueries } from "../inventory/query.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { RotationPolicy } from "../platform/azure/key-vault.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { KeyVersion, VaultKeys } from "../platform/azure/vault-keys.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, remove, replace } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import { conflict, throwAsProblem } from "../rotation/problems.ts";
import type { Settings } from "../settings/settings.ts";
import type { KeyConsumers } from "./consumers.ts";
import {
  ActiveRuns,
  activeKey,
  activeRange,
  isOver,
  KEY_ROTATIONS,
  type KeyRotationMessage,
  type RunRecord,
  type RunStatus,
  Runs,
  runKey,
  runRange,
} from "./run.ts";
import { createWorker, type WorkerDeps } from "./worker.ts";

/** What a rotation of a key would do. */
export interface KeyRotationPlan extends KeyConsumers {
  key: Pick<RunRecord, "vaultName" | "vaultUri" | "vaultId" | "subscriptionId" | "name">;
  current: KeyVersion;
  /** Why the rotation can't start now. Empty if it can. */
  obstacles: Problem[];
}

export interface RunFilter {
  status?: RunStatus | undefined;
  assetId?: string | undefined;
}

/**
 * Rotations of keys of key vaults. A rotation adds a version by the key's own rotation policy, and then waits until the resources
 * that encrypt data with the key (consumers of a customer-managed key) use it. The service never disables a version, and never
 * changes a consumer.
 */
export interface KeyRotation {
  /**
   * Returns what a rotation would do, without any change.
   *
   * @throws {Problem} notFound; notRotatable for an asset that is no key; serviceVault; unavailable if the vault can't be read.
   */
  plan(assetId: string): Promise<KeyRotationPlan>;
  /**
   * Starts a rotation. Queue messages and a timer continue it. A late rotation of the key ends as `superseded`.
   *
   * @throws {Problem} as `plan`; rotationUnfinished with the ID of the unfinished rotation; notRotatable; conflict
   */
  begin(assetId: string, caller: Caller): Promise<RunRecord>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<RunRecord>;
  /** Lists rotations, the newest first. @throws {Problem} invalidCursor */
  list(filter: RunFilter, request: PageRequest): Promise<Page<RunRecord>>;
  /** Yields all rotations that were created after this time, the newest first. */
  since(from: Date): AsyncGenerator<RunRecord[]>;
  /** Returns the rotation policy of a key as Key Vault has it now. @throws {Problem} as `plan` */
  policy(assetId: string): Promise<{ assetId: string; policy: RotationPolicy }>;
  /** Replaces the rotation policy. @throws {Problem} as `plan`; invalidRequest if Key Vault rejects it */
  setPolicy(
    assetId: string,
    policy: RotationPolicy,
    caller: Caller,
  ): Promise<{ assetId: string; policy: RotationPolicy }>;
  /** Handles a message of the queue. */
  handle(message: KeyRotationMessage, caller: Caller): Promise<void>;
  /** Handles a message whose last delivery failed. */
  failed(message: KeyRotationMessage, caller: Caller): Promise<void>;
  /** Sends a message for each run that is due, and deletes old runs. A timer calls it. */
  continueDue(): Promise<void>;
}

export function createKeyRotation(
  deps: WorkerDeps & {
    config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
    inventory: { assets: Pick<AssetQueries, "get">; moment(): Promise<Moment> };
    settings: Pick<Settings, "values">;
  },
): KeyRotation {
  const { tables, audit, config, inventory, clock, randomness, log } = deps;
  const worker = createWorker(deps);

  /**
   * Returns a key and its vault from the inventory.
   *
   * @throws {Problem} notFound, serviceVault, notRotatable
   */
  async function requireKey(id: string): Promise<{ asset: AssetRecord; vault: VaultRecord }> {
    const [location] = locationsOf(id);
    if (location !== undefined && isServiceVault(config, location.vaultName))
      throw new Problem(
        "serviceVault",
        `${location.vaultName} is the service's own key vault, which is never rotated.`,
      );
    const asset = (await inventory.assets.get(id, await inventory.moment()))?.asset;
    const vault = asset && (await tables.get(Vaults, VAULTS, vaultKey(asset.vaultName)));
    if (asset === undefined || vault === undefined) throw notFound(`The key ${id.slice(0, 300)}`);
    if (asset.type !== "key" || sourceOf(asset) !== "keyVault")
      throw new Problem("notRotatable", `${assetId(asset)} is no key of a key vault.`);
    return { asset, vault };
  }

  /** Opens the vault of a key. @throws {Problem} serviceVault; unavailable if the vault's address is not of this cloud. */
  function openVault({ name, vaultUri, subscriptionId, location }: VaultRecord): VaultKeys {
    try {
      return deps.vaults.open({ name, vaultUri, subscriptionId, location });
    } catch (error) {
      return throwAsProblem(error);
    }
  }

  async function plan(id: string): Promise<KeyRotationPlan> {
    const { asset, vault } = await requireKey(id);
    const current = await openVault(vault).current(asset.name).catch(throwAsProblem);
    if (current === undefined) throw notFound(`The key ${asset.name} in ${vault.name}`);
    const { name: vaultName, vaultUri } = vault;
    const { name, vaultId, subscriptionId } = asset;
    const key = { vaultName, vaultUri, vaultId, subscriptionId, name };
    const consumers = await deps.consumers.read(key);
    const obstacles: Problem[] = [];
    if (config.SERVICE_KEY_VAULT_URL === undefined)
      obstacles.push(
        conflict("Rotations are signed with a key in the service's own key vault. Set SERVICE_KEY_VAULT_URL."),
      );
    if (current.managed)
      obstacles.push(notRotatable(`${name} belongs to a certificate. Renew the certificate instead.`));
    if (!current.enabled) obstacles.push(notRotatable(`The current version of ${name} is disabled. Enable it first.`));
    const unfinished = config.SERVICE_KEY_VAULT_URL === undefined ? undefined : await unfinishedRun(key);
    if (unfinished !== undefined && !isReplaceable(unfinished)) obstacles.push(unfinishedProblem(unfinished));
    return { key, current, ...consumers, obstacles };
  }

  /** Returns the run of a key that has not ended. @throws {StorageCorrupt} if its row can't be read. */
  async function unfinishedRun(key: Pick<RunRecord, "vaultName" | "name">): Promise<Row<RunRecord> | undefined> {
    const active = await tables.get(ActiveRuns, KEY_ROTATIONS, activeKey(key));
    const run = active && (await tables.get(Runs, KEY_ROTATIONS, runKey(active.runId)));
    return run && !isOver(run.status) ? run : undefined;
  }

  /** Stores a new run. Ends a late run of the key in the same transaction. @throws {Problem} rotationUnfinished */
  async function insertRun(record: RunRecord): Promise<void> {
    await repeatOnConflict(async () => {
      const pointerKey = activeKey(record);
      const pointer = await tables.get(ActiveRuns, KEY_ROTATIONS, pointerKey);
      const earlier = await unfinishedRun(record);
      if (earlier !== undefined && !isReplaceable(earlier)) throw unfinishedProblem(earlier);
      const { runId } = record;
      const superseded = earlier && {
        ...withoutKeys(earlier),
        status: "superseded" as const,
        endedAt: record.createdAt,
        worker: undefined,
      };
      await tables.transaction(Runs.table, KEY_ROTATIONS, [
        insert(Runs, runKey(runId), record),
        pointer ? replace(ActiveRuns, pointerKey, { runId }, pointer.etag) : insert(ActiveRuns, pointerKey, { runId }),
        ...(superseded ? [replace(Runs, earlier.rowKey, superseded, earlier.etag)] : []),
      ]);
    });
  }

  /** Deletes runs that ended before the retention period of rotations. */
  async function removeOld(): Promise<void> {
    const { rotationRetentionDays } = await deps.settings.values();
    const oldest = Math.max(0, clock.now().getTime() - rotationRetentionDays * DAY_MS);
    // IDs count down, so older runs have higher keys.
    const range = { ...runRange, from: `r|${newestFirst(encodeTime(oldest) + "0".repeat(16))}` };
    for await (const rows of tables.pages(Runs, { ...range, onCorrupt: "leaveOut" })) {
      const removals = rows
        .filter(({ endedAt }) => endedAt !== undefined && Date.parse(endedAt) < oldest)
        .map(({ rowKey }) => remove(Runs, rowKey));
      await tables.write(Runs.table, KEY_ROTATIONS, removals);
    }
  }

  async function get(runId: string): Promise<RunRecord> {
    const id = runId.toUpperCase();
    const run = isUlid(id) ? await tables.get(Runs, KEY_ROTATIONS, runKey(id)) : undefined;
    if (run === undefined) throw notFound(`The rotation ${runId.slice(0, 64)}`);
    return withoutKeys(run);
  }

  return {
    plan,
    get,

    async begin(id, caller) {
      const { key, current, consumers, incompleteReason, obstacles } = await plan(id);
      if (obstacles[0] !== undefined) throw obstacles[0];
      const now = clock.now();
      const record: RunRecord = {
        ...key,
        runId: randomness.ulid(now),
        status: "rotating",
        requestedBy: caller.actor,
        requestId: caller.requestId,
        createdAt: now.toISOString(),
        oldVersion: current.version,
        consumers,
        ...(incompleteReason && { incompleteReason }),
        dueAt: now.toISOString(),
        failures: 0,
      };
      const { runId, oldVersion } = record;
      const event = {
        type: "keyRotation.started",
        caller,
        target: { type: "keyRotation", id: runId },
        details: { vaultName: key.vaultName, key: key.name, oldVersion, consumers: consumers.length },
      };
      await audited(audit, event, () => insertRun(record));
      await worker.schedule(record);
      return await get(runId);
    },

    async list({ status, assetId: id }, request) {
      const location = id === undefined ? undefined : locationsOf(id)[0];
      const isOfKey = ({ vaultName, name }: RunRecord) =>
        location !== undefined &&
        location.type === "key" &&
        vaultName.toLowerCase() === location.vaultName.toLowerCase() &&
        name.toLowerCase() === location.name.toLowerCase();
      const page = await filteredPage<Row<RunRecord>>(request, {
        filters: fingerprint([status ?? "", id?.toLowerCase() ?? ""]),
        matches:
          status === undefined && id === undefined
            ? undefined
            : (run) => (status === undefined || run.status === status) && (id === undefined || isOfKey(run)),
        pages: (range) => tables.pages(Runs, { ...runRange, ...range }),
      });
      return { ...page, items: page.items.map((run) => withoutKeys(run)) };
    },

    async *since(from) {
      // IDs count down, so the newest run has the lowest key.
      const before = `r|${newestFirst(encodeTime(Math.max(0, from.getTime())) + "0".repeat(16))}`;
      for await (const rows of tables.pages(Runs, { ...runRange, before, onCorrupt: "leaveOut" }))
        yield rows.map((row) => withoutKeys(row));
    },

    async policy(id) {
      const { asset, vault } = await requireKey(id);
      const policy = await openVault(vault).policy(asset.name).catch(throwAsProblem);
      return { assetId: assetId(asset), policy };
    },

    async setPolicy(id, policy, caller) {
      const { asset, vault } = await requireKey(id);
      const keys = openVault(vault);
      const before = await keys.policy(asset.name).catch(throwAsProblem);
      const event = {
        type: "keyRotation.policyChanged",
        caller,
        target: { type: "asset", id: assetId(asset) },
        before,
        after: policy,
      };
      const after = await audited(audit, event, async () => {
        try {
          return await keys.setPolicy(asset.name, policy);
        } catch (error) {
          if (error instanceof CloudFailure && error.status === 400)
            throw invalidBody("lifetimeActions", "must be a policy that Key Vault accepts: see docs/key-rotation.md");
          throw error;
        }
      }).catch(throwUnclearAsProblem);
      await deps.vaultChanged(vault.name);
      return { assetId: assetId(asset), policy: after };
    },

    handle: ({ runId }, caller) => worker.work(runId, caller),
    failed: ({ runId }, caller) => worker.giveUp(runId, caller),

    async continueDue() {
      if (config.SERVICE_KEY_VAULT_URL === undefined) return;
      const onCorrupt = ({ message }: { message: string }) =>
        log.error("A rotation of a key was skipped", { row: message });
      for await (const rows of tables.pages(ActiveRuns, { ...activeRange, onCorrupt })) {
        for (const { runId } of rows) {
          const run = await tables.get(Runs, KEY_ROTATIONS, runKey(runId), { onCorrupt });
          if (run !== undefined && Date.parse(run.dueAt) <= clock.now().getTime()) await worker.schedule(run);
        }
      }
      await removeOld();
    },
  };
}

const notRotatable = (detail: string): Problem => new Problem("notRotatable", detail);

/** A late run has its new version. A new rotation of the key can replace it, because nothing else would end it. */
const isReplaceable = ({ status, ending }: RunRecord): boolean => status === "late" && ending === undefined;

const unfinishedProblem = ({ runId }: RunRecord): Problem =>
  new Problem(
    "rotationUnfinished",
    `Rotation ${runId} of this key has not ended. Wait until its consumers use the new version.`,
    { members: { rotationId: runId } },
  );

/** Converts a failure of a change into a 503. Unlike `throwAsProblem`, it does not say that nothing was changed. */
function throwUnclearAsProblem(error: unknown): never {
  if (error instanceof CloudFailure && error.unclear) {
    const detail = `The change may or may not have been made. ${error.message} ${error.remedy} Send the request again: it is safe to repeat.`;
    throw new Problem("unavailable", detail, { headers: { "Retry-After": "10" } });
  }
  return throwAsProblem(error);
}
