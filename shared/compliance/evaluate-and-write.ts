import type { AssetRecord } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Context } from "./check.ts";
import { evaluateAsset, evaluateVault } from "./evaluate.ts";
import { storedOwners } from "./finding-facts.ts";
import type { AssetState } from "./packed-results.ts";
import { factsOfAsset, factsOfVault, type VaultReferences } from "./references.ts";
import type { OpenedState } from "./vault-state.ts";
import { commitState } from "./write-state.ts";

/**
 * Creates the functions that evaluate a vault with all or some of its assets, and write the results.
 *
 * @param ownerTag - Name of the tag whose value is a resource's owner.
 */
export function createResultWriter(ownerTag: string) {
  const evaluateOne = (
    vault: VaultRecord,
    asset: AssetRecord,
    references: VaultReferences,
    checkContext: Context,
    before: AssetState | undefined,
  ): AssetState => evaluateAsset(asset, checkInputsOf(vault, asset, references), checkContext, before, ownerTag);

  /** Evaluates the vault and all its assets, and writes the results. */
  async function commitAll(
    previous: OpenedState,
    vault: VaultRecord,
    checkContext: Context,
    assets: ReadonlyMap<string, AssetRecord>,
    references: VaultReferences,
    evaluationId?: string,
  ): Promise<void> {
    const states = new Map<string, AssetState>();
    for (const [key, asset] of assets)
      states.set(key, evaluateOne(vault, asset, references, checkContext, previous.assets.get(key)));
    await commit(previous, vault, checkContext, states, assets, references, evaluationId);
  }

  /**
   * Evaluates the vault and these assets, and writes the results. Removes results of undefined assets, and keeps those of
   * others.
   */
  async function commitSome(
    previous: OpenedState,
    vault: VaultRecord,
    checkContext: Context,
    changedAssets: ReadonlyMap<string, AssetRecord | undefined>,
    references: VaultReferences,
  ): Promise<void> {
    const states = new Map(previous.assets);
    const evaluated = new Map<string, AssetRecord>();
    for (const [key, asset] of changedAssets) {
      if (asset) {
        states.set(key, evaluateOne(vault, asset, references, checkContext, previous.assets.get(key)));
        evaluated.set(key, asset);
      } else states.delete(key);
    }
    await commit(previous, vault, checkContext, states, evaluated, references);
  }

  /**
   * Evaluates the vault itself, and writes its results with those of its assets.
   *
   * @param assets - The results of all assets, old ones included.
   * @param evaluated - The assets that were evaluated now.
   */
  async function commit(
    previous: OpenedState,
    vault: VaultRecord,
    checkContext: Context,
    assets: Map<string, AssetState>,
    evaluated: ReadonlyMap<string, AssetRecord>,
    references: VaultReferences,
    evaluationId?: string,
  ): Promise<void> {
    await commitState(previous, {
      vault,
      owners: storedOwners(ownersOf(vault, ownerTag)),
      results: {
        ...evaluateVault(vault, factsOfVault(references, assets), checkContext, previous.row?.failures),
        assets,
      },
      evaluated,
      references,
      evaluatedAt: new Date(checkContext.now).toISOString(),
      evaluationId,
    });
  }

  return { commitAll, commitSome };
}

const checkInputsOf = (vault: VaultRecord, asset: AssetRecord, references: VaultReferences) => ({
  vaultUsesRbac: vault.rbacAuthorization,
  references: factsOfAsset(references, asset),
});
