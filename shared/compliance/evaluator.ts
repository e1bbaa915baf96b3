/**
 * Evaluates one vault at a time, or some of its assets, and writes the results. Scans, queue messages and the reconciliation
 * call it.
 */
import type { AssetRecord } from "../inventory/asset.ts";
import type { AssetChange } from "../inventory/asset-row-changes.ts";
import { removeOldRow, subscriptionsOfVaults } from "../inventory/repair.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { readUnclaimedVault } from "../inventory/vault-claim.ts";
import type { WriteDerivedData } from "../inventory/write.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { undefinedIfNotPacked } from "../platform/storage/packed-members.ts";
import { RowExists, type Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import type { Context } from "./check.ts";
import { EDITION } from "./checks/all.ts";
import {
  DetailsRangeRows,
  detailsRange,
  ResultFences,
  STATE,
  THRESHOLDS_KEY,
  ThresholdsRows,
  vaultOfFence,
} from "./compliance-rows.ts";
import { createResultWriter } from "./evaluate-and-write.ts";
import { assetKey } from "./packed-results.ts";
import {
  type AssetUse,
  affectedAssets,
  type Reference,
  summarizeReferences,
  unpackReferences,
  type VaultReferences,
} from "./references.ts";
import { readAssetsByKey, readAssetsOfVault } from "./vault-assets.ts";
import { emptyState, type OpenedState, openState } from "./vault-state.ts";
import { removeState } from "./write-state.ts";

/** Up to this number of assets are read one by one. To evaluate more, all assets of the vault are read. */
const MAX_POINT_READS = 20;

const DEFAULT_OWNER_TAG = "owner";

/**
 * Returns the version of everything that affects results besides time and policy. If it changes, everything is evaluated again.
 */
export const editionOf = (ownerTag = DEFAULT_OWNER_TAG): string => `${EDITION}/${ownerTag}`;

/** A vault that changed or is removed. */
export interface VaultChange {
  vault: VaultRecord;
  /** The previous state. Undefined for a vault that the inventory does not have yet. */
  vaultBefore: VaultRecord | undefined;
  vaultGone: boolean;
}

/** Evaluates vaults, one at a time. No other code writes results; exemptions.ts also writes to a vault's own row. */
export interface Evaluator {
  /**
   * Prepares the evaluation of changes that a scan found. The scan calls this before it claims the vault, and calls the
   * returned function before it writes the vault's rows in the inventory. The returned function writes the results. It may be
   * called twice.
   */
  prepareChange(change: VaultChange): Promise<WriteDerivedData>;
  /**
   * Evaluates a vault and all its assets, or removes its results if the inventory no longer has it. Returns the number of
   * assets.
   *
   * @throws {VaultBusy} while a scan writes the vault.
   */
  evaluateWholeVault(vaultName: string, evaluationId?: string): Promise<number>;
  /**
   * Evaluates a vault and some of its assets (`<type>.<name>`), or those assets whose age changes a result. If the stored
   * results can't be updated, evaluates all assets. Returns the number of evaluated assets.
   *
   * @param options - `references`: true reads the references to the vault again; otherwise the stored ones are used.
   * @throws {VaultBusy} while a scan writes the vault.
   */
  evaluateAssets(
    vaultName: string,
    requestedAssets: readonly string[] | "due",
    options?: { references?: boolean },
  ): Promise<number>;
  /**
   * Evaluates a vault like `evaluateWholeVault`, rewrites all rows of its results, and removes rows that should not exist.
   * Removes every row of a vault that the inventory does not have. Returns the number of evaluated assets.
   *
   * @throws {VaultBusy} while a scan writes the vault.
   */
  restore(vaultName: string): Promise<number>;
  /**
   * Removes the fence rows of vaults that the inventory no longer has, a day after their last use. A fence is a row whose ETag
   * each write of a vault's results requires, so that a slower concurrent writer fails. Returns the number of removed rows.
   * Reads the keys of all details and all vaults: one request per 1,000, and two for each removed fence.
   */
  removeOldFences(): Promise<number>;
  /** Returns the time and the policy. Undefined while evaluation is turned off. */
  readContext(): Promise<Context | undefined>;
  /**
   * Before the first evaluation, stores the time from which passed thresholds are searched. Usually one request per process.
   */
  ensureThresholds(checkContext: Context): Promise<void>;
}

export function createEvaluator(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  /** Returns the known references to a vault and its assets. */
  references?: (vaultName: string) => Promise<(Reference | AssetUse)[]>;
  /** Returns whether a PRO license is present. Only with one are the references to a new vault read. */
  licensed?: () => Promise<boolean>;
  /** Name of the tag whose value is a resource's owner. */
  ownerTag?: string;
  clock: Clock;
  log: Logger;
}): Evaluator {
  const { tables, settings, references = async () => [], licensed = async () => true, clock, log } = deps;
  const { ownerTag = DEFAULT_OWNER_TAG } = deps;

  const { commitAll, commitSome } = createResultWriter(ownerTag);

  const currentReferences = async (vaultName: string) => summarizeReferences(await references(vaultName));
  /** Returns the stored references of a vault. For a new vault, reads them if a license allows dependency discovery. */
  async function storedReferences({ row }: OpenedState, vaultName: string): Promise<VaultReferences> {
    if (row && !row.gone) {
      const previous = undefinedIfNotPacked(() => unpackReferences(row.references));
      // Stored references that can't be unpacked are ignored.
      return previous ?? (await currentReferences(vaultName));
    }
    return (await licensed()) ? await currentReferences(vaultName) : new Map();
  }

  async function readContext(): Promise<Context | undefined> {
    const values = await settings.values();
    if (!values.enableComplianceScanning) return undefined;
    return {
      now: clock.now().getTime(),
      criticalDays: values.criticalExpiryDays,
      warningDays: values.warningExpiryDays,
    };
  }

  let thresholdsStored: Promise<void> | undefined;
  function ensureThresholds({ now, criticalDays, warningDays }: Context): Promise<void> {
    thresholdsStored ??= (async () => {
      if (await tables.get(ThresholdsRows, STATE, THRESHOLDS_KEY)) return;
      const evaluatedAt = new Date(now).toISOString();
      const record = { at: evaluatedAt, criticalDays, warningDays, paused: false, edition: editionOf(ownerTag) };
      try {
        await tables.insert(ThresholdsRows, STATE, THRESHOLDS_KEY, record);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
      }
    })().catch((error: unknown) => {
      thresholdsStored = undefined;
      throw error;
    });
    return thresholdsStored;
  }

  async function prepareChange(change: VaultChange): Promise<WriteDerivedData> {
    const { vault, vaultBefore, vaultGone } = change;
    if (!vaultGone && !(await readContext())) return async () => {};
    const isNew = vaultBefore === undefined && !vaultGone;
    // Used by the first attempt only. After a conflict, the stored results are read again.
    let prepared: OpenedState | undefined = isNew
      ? emptyState(tables, vault.name)
      : await openState(tables, vault.name);
    // `confirm` throws if the scan's worker no longer has the claim of the vault.
    return async (assets, confirm) =>
      await repeatOnConflict(async () => {
        const previous = prepared ?? (await openState(tables, vault.name));
        // Another worker may have claimed the vault and written these results.
        if (!prepared) await confirm();
        prepared = undefined;
        if (vaultGone) return await removeState(previous, vault.name, clock.now().toISOString());
        const evaluated = await evaluateChange(previous, change, assets);
        log.debug("A vault was evaluated", { vault: vault.name, kind: "scan", evaluated });
      });
  }

  async function evaluateChange(
    previous: OpenedState,
    { vault, vaultBefore }: VaultChange,
    assets: AssetChange[],
  ): Promise<number> {
    const checkContext = await readContext();
    if (!checkContext) return 0;
    await ensureThresholds(checkContext);
    const facts = await storedReferences(previous, vault.name);
    if (canUpdate(previous, vault)) {
      const changedAssets = new Map(assets.map(({ type, name, after }) => [assetKey(type, name), after]));
      await commitSome(previous, vault, checkContext, changedAssets, facts);
      return changedAssets.size;
    }
    const allAssets = vaultBefore ? await readAssetsOfVault(tables, vault.name) : new Map<string, AssetRecord>();
    for (const { type, name, after } of assets) {
      if (after) allAssets.set(assetKey(type, name), after);
      else allAssets.delete(assetKey(type, name));
    }
    await commitAll(previous, vault, checkContext, allAssets, facts);
    return allAssets.size;
  }

  const evaluateWholeVault = (vaultName: string, evaluationId?: string) => evaluateAll(vaultName, { evaluationId });
  const restore = (vaultName: string) => evaluateAll(vaultName, { repair: true });

  async function evaluateAll(vaultName: string, options: { evaluationId?: string | undefined; repair?: boolean }) {
    const checkContext = await readContext();
    if (!checkContext) return 0;
    await ensureThresholds(checkContext);
    return await withoutConcurrentScan(vaultName, options, async (vault, previous) => {
      const assets = await readAssetsOfVault(tables, vaultName);
      await commitAll(previous, vault, checkContext, assets, await currentReferences(vaultName), options.evaluationId);
      return assets.size;
    });
  }

  const evaluateAssets: Evaluator["evaluateAssets"] = async (vaultName, requestedAssets, options = {}) => {
    const checkContext = await readContext();
    if (!checkContext) return 0;
    return await withoutConcurrentScan(vaultName, {}, async (vault, previous) => {
      const isUpdatable = canUpdate(previous, vault);
      const keys =
        requestedAssets === "due"
          ? assetsDueByAge(previous, checkContext)
          : options.references
            ? affectedAssets(requestedAssets)
            : requestedAssets;
      if (isUpdatable && keys.length === 0 && !options.references) return 0;
      const facts = await (options.references ? currentReferences(vaultName) : storedReferences(previous, vaultName));
      const assets =
        isUpdatable && keys.length <= MAX_POINT_READS
          ? await readAssetsByKey(tables, vaultName, keys)
          : await readAssetsOfVault(tables, vaultName);
      if (!isUpdatable) {
        await commitAll(previous, vault, checkContext, assets, facts);
        return assets.size;
      }
      await commitSome(previous, vault, checkContext, new Map(keys.map((key) => [key, assets.get(key)])), facts);
      return keys.length;
    });
  };

  /**
   * Runs `work` on a vault that no scan is writing, or removes the results if the inventory no longer has the vault. This reads
   * the stored results before the vault's row in the inventory. A scan that claims the vault later also writes results. Then
   * the write of `work` fails with a conflict, and the reads and `work` are repeated.
   */
  async function withoutConcurrentScan(
    vaultName: string,
    options: { repair?: boolean },
    work: (vault: Row<VaultRecord>, previous: OpenedState) => Promise<number>,
  ): Promise<number> {
    return await repeatOnConflict(async () => {
      const previous = await openState(tables, vaultName, options);
      const vault = await readUnclaimedVault(tables, vaultName);
      if (vault) return await work(vault, previous);
      await removeState(previous, vaultName, clock.now().toISOString());
      return 0;
    });
  }

  async function removeOldFences(): Promise<number> {
    const vaults = await subscriptionsOfVaults(tables);
    let removed = 0;
    for await (const rows of tables.pages(DetailsRangeRows, { ...detailsRange, select: [] })) {
      for (const { rowKey } of rows) {
        const vaultName = vaultOfFence(rowKey);
        if (vaultName === undefined || vaults.has(vaultName)) continue;
        if (await removeOldRow(tables, ResultFences, STATE, rowKey)) removed++;
      }
    }
    return removed;
  }

  return { prepareChange, evaluateWholeVault, evaluateAssets, restore, removeOldFences, readContext, ensureThresholds };
}

/**
 * Returns whether the results of some assets can be replaced. Otherwise all assets must be evaluated, such as after a change of
 * the vault's access model, on which checks of assets depend.
 */
const canUpdate = ({ row, isComplete }: OpenedState, vault: VaultRecord): boolean =>
  row !== undefined && !row.gone && isComplete && row.rbac === vault.rbacAuthorization;

/** Returns the keys of assets whose age has changed a result. */
const assetsDueByAge = ({ assets }: OpenedState, { now }: Context): string[] =>
  [...assets].filter(([, { dueAt }]) => dueAt !== undefined && dueAt * 1000 <= now).map(([key]) => key);
