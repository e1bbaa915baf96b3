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
import { nextResults } from "./evaluation-states.ts";
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
   * Reads the keys of all vaults and of their details (assets with results): one request per 1,000, and two for each removed
   * fence.
   */
  removeOldFences(): Promise<number>;
  /** Returns the time and the policy. Undefined while evaluation is turned off. */
  readContext(): Promise<Context | undefined>;
  /**
   * Before the first evaluation, stores the time from which passed thresholds are searched. Usually one request per process.
   */
  ensureThresholds(checkContext: Context): Promise<void>;
}

interface EvaluatorDeps {
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
}

/** The services and functions that the steps of an evaluation use. */
interface Evaluating extends Required<Omit<EvaluatorDeps, "ownerTag">>, ReturnType<typeof createResultWriter> {
  ensureThresholds(checkContext: Context): Promise<void>;
}

/** A request to evaluate a vault and some or all of its assets. */
interface EvaluationRequest {
  assets: "all" | "due" | readonly string[];
  /** Whether the references to the vault are read again. Then the vault itself is evaluated in any case. */
  references: boolean;
  evaluationId?: string | undefined;
  /** True to rewrite all rows of the vault's results. */
  repair?: boolean;
}

/** Creates the evaluator of vaults. */
export function createEvaluator(deps: EvaluatorDeps): Evaluator {
  const { tables, ownerTag = DEFAULT_OWNER_TAG, references = async () => [], licensed = async () => true } = deps;
  const ensureThresholds = createThresholds(tables, ownerTag);
  const evaluating = { ...deps, references, licensed, ...createResultWriter(ownerTag), ensureThresholds };
  return {
    prepareChange: (change) => prepareChange(evaluating, change),
    evaluateWholeVault: (vaultName, evaluationId) =>
      evaluateVault(evaluating, vaultName, { assets: "all", references: true, evaluationId }),
    evaluateAssets: (vaultName, assets, options = {}) =>
      evaluateVault(evaluating, vaultName, {
        // A reference to the secret of a certificate also counts for the certificate, so `affectedAssets` adds certificates.
        assets: options.references && assets !== "due" ? affectedAssets(assets) : assets,
        references: options.references === true,
      }),
    restore: (vaultName) => evaluateVault(evaluating, vaultName, { assets: "all", references: true, repair: true }),
    removeOldFences: () => removeOldFences(tables),
    readContext: () => readContext(deps),
    ensureThresholds,
  };
}

/** Returns the stored references of a vault. For a new vault, reads them if a license allows dependency discovery. */
async function storedReferences(
  { references, licensed }: Evaluating,
  { row }: OpenedState,
  vaultName: string,
): Promise<VaultReferences> {
  if (row && !row.gone) {
    const previous = undefinedIfNotPacked(() => unpackReferences(row.references));
    // Stored references that can't be unpacked are ignored.
    return previous ?? summarizeReferences(await references(vaultName));
  }
  return (await licensed()) ? summarizeReferences(await references(vaultName)) : new Map();
}

async function readContext({ settings, clock }: Pick<EvaluatorDeps, "settings" | "clock">) {
  const values = await settings.values();
  if (!values.enableComplianceScanning) return undefined;
  return { now: clock.now().getTime(), criticalDays: values.criticalExpiryDays, warningDays: values.warningExpiryDays };
}

/** Creates the method `ensureThresholds`. */
function createThresholds(tables: Tables, ownerTag: string): Evaluator["ensureThresholds"] {
  let stored: Promise<void> | undefined;
  async function store({ now, criticalDays, warningDays }: Context): Promise<void> {
    if (await tables.get(ThresholdsRows, STATE, THRESHOLDS_KEY)) return;
    const evaluatedAt = new Date(now).toISOString();
    const record = { at: evaluatedAt, criticalDays, warningDays, paused: false, edition: editionOf(ownerTag) };
    try {
      await tables.insert(ThresholdsRows, STATE, THRESHOLDS_KEY, record);
    } catch (error) {
      if (!(error instanceof RowExists)) throw error;
    }
  }
  return (checkContext) => {
    stored ??= store(checkContext).catch((error: unknown) => {
      stored = undefined;
      throw error;
    });
    return stored;
  };
}

async function prepareChange(deps: Evaluating, change: VaultChange): Promise<WriteDerivedData> {
  const { tables, clock, log } = deps;
  const { vault, vaultBefore, vaultGone } = change;
  if (!vaultGone && !(await readContext(deps))) return async () => {};
  const isNew = vaultBefore === undefined && !vaultGone;
  // Used by the first attempt only. After a conflict, the stored results are read again.
  let prepared: OpenedState | undefined = isNew ? emptyState(tables, vault.name) : await openState(tables, vault.name);
  // `confirm` throws if the scan's worker no longer has the claim of the vault.
  return async (assets, confirm) =>
    await repeatOnConflict(async () => {
      const previous = prepared ?? (await openState(tables, vault.name));
      // Another worker may have claimed the vault and written these results.
      if (!prepared) await confirm();
      prepared = undefined;
      if (vaultGone) return await removeState(previous, vault.name, clock.now().toISOString());
      const evaluated = await evaluateChange(deps, previous, change, assets);
      log.debug("A vault was evaluated", { vault: vault.name, kind: "scan", evaluated });
    });
}

async function evaluateChange(
  deps: Evaluating,
  previous: OpenedState,
  { vault, vaultBefore }: VaultChange,
  assets: AssetChange[],
): Promise<number> {
  const checkContext = await readContext(deps);
  if (!checkContext) return 0;
  await deps.ensureThresholds(checkContext);
  const vaultReferences = await storedReferences(deps, previous, vault.name);
  const changedAssets = new Map(assets.map(({ type, name, after }) => [assetKey(type, name), after]));
  const event = { type: "evaluated", assets: [...changedAssets.keys()], vaultItself: true } as const;
  const next = nextResults(previous, { ...event, rbac: vault.rbacAuthorization, now: checkContext.now });
  // The scan passes only changed assets. That is enough, unless the stored results are incomplete or follow another access model.
  if (next?.evaluate !== "all") {
    await deps.commitSome(previous, vault, checkContext, changedAssets, vaultReferences);
    return changedAssets.size;
  }
  const allAssets = vaultBefore ? await readAssetsOfVault(deps.tables, vault.name) : new Map<string, AssetRecord>();
  for (const [key, after] of changedAssets) {
    if (after) allAssets.set(key, after);
    else allAssets.delete(key);
  }
  await deps.commitAll(previous, vault, checkContext, allAssets, vaultReferences);
  return allAssets.size;
}

/** Evaluates a vault that no scan is writing. Returns the number of evaluated assets. */
async function evaluateVault(deps: Evaluating, vaultName: string, request: EvaluationRequest): Promise<number> {
  const { tables } = deps;
  const { assets: requested, references, evaluationId } = request;
  const checkContext = await readContext(deps);
  if (!checkContext) return 0;
  // An evaluation of single assets comes after one of whole vaults, or is followed by one when evaluation is turned on.
  if (requested === "all") await deps.ensureThresholds(checkContext);
  return await withoutConcurrentScan(deps, vaultName, request, async (vault, previous) => {
    const event = { type: "evaluated", assets: requested, vaultItself: references } as const;
    const next = nextResults(previous, { ...event, rbac: vault.rbacAuthorization, now: checkContext.now });
    if (!next?.evaluate) return 0;
    const { evaluate } = next;
    const vaultReferences = references
      ? summarizeReferences(await deps.references(vaultName))
      : await storedReferences(deps, previous, vaultName);
    const assets =
      evaluate !== "all" && evaluate.length <= MAX_POINT_READS
        ? await readAssetsByKey(tables, vaultName, evaluate)
        : await readAssetsOfVault(tables, vaultName);
    if (evaluate === "all") {
      await deps.commitAll(previous, vault, checkContext, assets, vaultReferences, evaluationId);
      return assets.size;
    }
    const evaluated = new Map(evaluate.map((key) => [key, assets.get(key)]));
    await deps.commitSome(previous, vault, checkContext, evaluated, vaultReferences);
    return evaluate.length;
  });
}

/**
 * Runs `work` on a vault that no scan is writing, or removes the results if the inventory no longer has the vault. This reads
 * the stored results before the vault's row in the inventory. A scan that claims the vault later also writes results. Then
 * the write of `work` fails with a conflict, and the reads and `work` are repeated.
 */
async function withoutConcurrentScan(
  { tables, clock }: Pick<Evaluating, "tables" | "clock">,
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

async function removeOldFences(tables: Tables): Promise<number> {
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
