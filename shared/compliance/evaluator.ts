import type { AssetRecord } from "../inventory/asset.ts";
import type { AssetChange } from "../inventory/asset-row-changes.ts";
import { ownersOf } from "../inventory/holder.ts";
import { removeOldRow, subscriptionsOfVaults } from "../inventory/repair.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { unclaimedVault } from "../inventory/vault-claim.ts";
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
  LINES_KEY,
  Lines,
  ResultFences,
  STATE,
  vaultOfFence,
} from "./compliance-rows.ts";
import { evaluateAsset, evaluateVault } from "./evaluate.ts";
import { keptOwners } from "./finding-facts.ts";
import { type AssetState, assetKey } from "./packed-results.ts";
import {
  type AssetUse,
  evaluatedWith,
  factsOf,
  factsOfAsset,
  factsOfVault,
  type Reference,
  unpackReferences,
  type VaultReferences,
} from "./references.ts";
import { assetsOf, readEach } from "./vault-assets.ts";
import { type KnownState, noState, openState } from "./vault-state.ts";
import { commitState, forgetState } from "./write-state.ts";

/** Up to this number, assets of a vault are read one by one. For more, all assets of the vault are read. */
const MAX_POINT_READS = 20;

/** The default owner tag. */
const DEFAULT_OWNER_TAG = "owner";

/**
 * Version of the checks and settings that affect results besides time and policy. If it changes, everything is evaluated again.
 */
export const editionOf = (ownerTag = DEFAULT_OWNER_TAG): string => `${EDITION}/${ownerTag}`;

/** A vault that changed or is removed. */
export interface VaultChange {
  vault: VaultRecord;
  /** The previous state. Undefined for a vault that the inventory does not have yet. */
  vaultBefore: VaultRecord | undefined;
  vaultGone: boolean;
}

/** Evaluates vaults, one at a time. It is the only writer of their results. */
export interface Evaluator {
  /**
   * Prepares the evaluation of a scan's changes, before the scan claims the vault. The returned function writes the results
   * before the vault's own rows are written. It may be called repeatedly.
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
   * Evaluates a vault and some of its assets (`<type>.<name>`), or the assets that are due because of their age. If the stored
   * results can't be updated, evaluates all assets. Returns the number of evaluated assets.
   *
   * @param options - `references`: true reads the references to the vault again; otherwise the stored ones are used.
   * @throws {VaultBusy} while a scan writes the vault.
   */
  evaluateAssets(
    vaultName: string,
    wanted: readonly string[] | "due",
    options?: { references?: boolean },
  ): Promise<number>;
  /**
   * Evaluates a vault like `evaluateWholeVault`, rewrites all rows of its results, and removes rows that should not exist. Removes
   * every row of a vault that the inventory does not have. Returns the number of evaluated assets.
   *
   * @throws {VaultBusy} while a scan writes the vault.
   */
  restore(vaultName: string): Promise<number>;
  /**
   * Removes the fences of vaults that the inventory no longer has, a day after their last use. Returns the number. Reads the
   * keys of all details and all vaults: one request per 1,000, and two for each removed fence.
   */
  removeOldFences(): Promise<number>;
  /** Returns the time and the policy. Undefined while evaluation is turned off. */
  context(): Promise<Context | undefined>;
  /** Before the first evaluation, stores the time from which passed thresholds count. One request per process. */
  ensureLines(at: Context): Promise<void>;
}

export function createEvaluator(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  /** Returns the known references to a vault and its assets. */
  references?: (vaultName: string) => Promise<(Reference | AssetUse)[]>;
  licensed?: () => Promise<boolean>;
  /** Returns the tag that names an owner. */
  ownerTag?: string;
  clock: Clock;
  log: Logger;
}): Evaluator {
  const { tables, settings, references = async () => [], licensed = async () => true, clock, log } = deps;
  const { ownerTag = DEFAULT_OWNER_TAG } = deps;

  const currentReferences = async (vaultName: string) => factsOf(await references(vaultName));
  /** Returns the stored references. For a new vault, reads them if a license allows dependency discovery. */
  async function knownReferences({ row }: KnownState, vaultName: string): Promise<VaultReferences> {
    if (row && !row.gone) {
      const known = undefinedIfNotPacked(() => unpackReferences(row.references));
      // Stored references that can't be unpacked are ignored.
      return known ?? (await currentReferences(vaultName));
    }
    return (await licensed()) ? await currentReferences(vaultName) : new Map();
  }

  async function context(): Promise<Context | undefined> {
    const values = await settings.values();
    if (!values.enableComplianceScanning) return undefined;
    return {
      now: clock.now().getTime(),
      criticalDays: values.criticalExpiryDays,
      warningDays: values.warningExpiryDays,
    };
  }

  let lines: Promise<void> | undefined;
  function ensureLines({ now, criticalDays, warningDays }: Context): Promise<void> {
    lines ??= (async () => {
      if (await tables.get(Lines, STATE, LINES_KEY)) return;
      const at = new Date(now).toISOString();
      const record = { at, criticalDays, warningDays, paused: false, edition: editionOf(ownerTag) };
      try {
        await tables.insert(Lines, STATE, LINES_KEY, record);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
      }
    })().catch((error: unknown) => {
      lines = undefined;
      throw error;
    });
    return lines;
  }

  async function prepareChange(change: VaultChange): Promise<WriteDerivedData> {
    const { vault, vaultBefore, vaultGone } = change;
    if (!vaultGone && !(await context())) return async () => {};
    const isNew = vaultBefore === undefined && !vaultGone;
    let prepared: KnownState | undefined = isNew ? noState(tables, vault.name) : await openState(tables, vault.name);
    return async (assets, confirm) =>
      await repeatOnConflict(async () => {
        const known = prepared ?? (await openState(tables, vault.name));
        // The data just read may have been written by another worker that has taken the vault over.
        if (!prepared) await confirm();
        prepared = undefined;
        if (vaultGone) return await forgetState(known, vault.name, clock.now().toISOString());
        const evaluated = await evaluateChange(known, change, assets);
        log.debug("A vault was evaluated", { vault: vault.name, kind: "scan", evaluated });
      });
  }

  async function evaluateChange(
    known: KnownState,
    { vault, vaultBefore }: VaultChange,
    assets: AssetChange[],
  ): Promise<number> {
    const at = await context();
    if (!at) return 0;
    await ensureLines(at);
    const facts = await knownReferences(known, vault.name);
    if (isCurrent(known, vault)) {
      const after = new Map(assets.map((change) => [assetKey(change.type, change.name), change.after]));
      await commitSome(known, vault, at, after, facts);
      return after.size;
    }
    const all = vaultBefore ? await assetsOf(tables, vault.name) : new Map<string, AssetRecord>();
    for (const { type, name, after } of assets) {
      if (after) all.set(assetKey(type, name), after);
      else all.delete(assetKey(type, name));
    }
    await commitAll(known, vault, at, all, facts);
    return all.size;
  }

  const evaluateWholeVault = (vaultName: string, evaluationId?: string) => evaluateAll(vaultName, { evaluationId });
  const restore = (vaultName: string) => evaluateAll(vaultName, { repair: true });

  async function evaluateAll(vaultName: string, options: { evaluationId?: string | undefined; repair?: boolean }) {
    const at = await context();
    if (!at) return 0;
    await ensureLines(at);
    return await withoutConcurrentScan(vaultName, options, async (vault, known) => {
      const all = await assetsOf(tables, vaultName);
      await commitAll(known, vault, at, all, await currentReferences(vaultName), options.evaluationId);
      return all.size;
    });
  }

  const evaluateAssets: Evaluator["evaluateAssets"] = async (vaultName, wanted, options = {}) => {
    const at = await context();
    if (!at) return 0;
    return await withoutConcurrentScan(vaultName, {}, async (vault, known) => {
      const current = isCurrent(known, vault);
      const keys = wanted === "due" ? dueOf(known, at) : options.references ? evaluatedWith(wanted) : wanted;
      if (current && keys.length === 0 && !options.references) return 0;
      const facts = await (options.references ? currentReferences(vaultName) : knownReferences(known, vaultName));
      const found =
        current && keys.length <= MAX_POINT_READS
          ? await readEach(tables, vaultName, keys)
          : await assetsOf(tables, vaultName);
      if (!current) {
        await commitAll(known, vault, at, found, facts);
        return found.size;
      }
      await commitSome(known, vault, at, new Map(keys.map((key) => [key, found.get(key)])), facts);
      return keys.length;
    });
  };

  const evaluateOne = (
    vault: VaultRecord,
    asset: AssetRecord,
    references: VaultReferences,
    at: Context,
    before: AssetState | undefined,
  ): AssetState => evaluateAsset(asset, inputsOf(vault, asset, references), at, before, ownerTag);

  /** Evaluates all assets again. */
  async function commitAll(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    all: ReadonlyMap<string, AssetRecord>,
    references: VaultReferences,
    evaluationId?: string,
  ): Promise<void> {
    const states = new Map<string, AssetState>();
    for (const [key, asset] of all) states.set(key, evaluateOne(vault, asset, references, at, known.assets.get(key)));
    await commit(known, vault, at, states, all, references, evaluationId);
  }

  /** Evaluates these assets, and removes the results of undefined ones. Results of the vault's other assets stay. */
  async function commitSome(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    some: ReadonlyMap<string, AssetRecord | undefined>,
    references: VaultReferences,
  ): Promise<void> {
    const states = new Map(known.assets);
    const evaluated = new Map<string, AssetRecord>();
    for (const [key, asset] of some) {
      if (asset) {
        states.set(key, evaluateOne(vault, asset, references, at, known.assets.get(key)));
        evaluated.set(key, asset);
      } else states.delete(key);
    }
    await commit(known, vault, at, states, evaluated, references);
  }

  async function commit(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    assets: Map<string, AssetState>,
    evaluated: ReadonlyMap<string, AssetRecord>,
    references: VaultReferences,
    evaluationId?: string,
  ): Promise<void> {
    await commitState(known, {
      vault,
      owners: keptOwners(ownersOf(vault, ownerTag)),
      results: { ...evaluateVault(vault, factsOfVault(references, assets), at, known.row?.failures), assets },
      evaluated,
      references,
      at: new Date(at.now).toISOString(),
      evaluationId,
    });
  }

  /**
   * Runs `work` on a vault that no scan is writing, or removes the results if the inventory no longer has the vault. The stored
   * results are read before the vault's row. A scan that claims the vault after these reads also writes results. Then the write of
   * `work` conflicts, and the reads and `work` are repeated.
   */
  async function withoutConcurrentScan(
    vaultName: string,
    options: { repair?: boolean },
    work: (vault: Row<VaultRecord>, known: KnownState) => Promise<number>,
  ): Promise<number> {
    return await repeatOnConflict(async () => {
      const known = await openState(tables, vaultName, options);
      const vault = await unclaimedVault(tables, vaultName);
      if (vault) return await work(vault, known);
      await forgetState(known, vaultName, clock.now().toISOString());
      return 0;
    });
  }

  async function removeOldFences(): Promise<number> {
    const vaults = await subscriptionsOfVaults(tables);
    let removed = 0;
    for await (const rows of tables.pages(DetailsRangeRows, { ...detailsRange, select: ["owner"] })) {
      for (const { rowKey } of rows) {
        const vaultName = vaultOfFence(rowKey);
        if (vaultName === undefined || vaults.has(vaultName)) continue;
        if (await removeOldRow(tables, ResultFences, STATE, rowKey)) removed++;
      }
    }
    return removed;
  }

  return { prepareChange, evaluateWholeVault, evaluateAssets, restore, removeOldFences, context, ensureLines };
}

const inputsOf = (vault: VaultRecord, asset: AssetRecord, references: VaultReferences) => ({
  vaultUsesRbac: vault.rbacAuthorization,
  references: factsOfAsset(references, asset),
});

/** Returns whether the stored results can be updated, rather than computed again for all assets. */
const isCurrent = ({ row, whole }: KnownState, vault: VaultRecord): boolean =>
  row !== undefined && !row.gone && whole && row.rbac === vault.rbacAuthorization;

const dueOf = ({ assets }: KnownState, { now }: Context): string[] =>
  [...assets].filter(([, { dueAt }]) => dueAt !== undefined && dueAt * 1000 <= now).map(([key]) => key);
