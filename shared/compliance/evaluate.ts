/** Runs all checks on one vault or one asset. */
import { type AssetRecord, sourceOf } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { AssetResource, Context, ReferenceFacts } from "./check.ts";
import { ASSET_CHECKS } from "./checks/all.ts";
import { vaultChecks } from "./checks/vault.ts";
import type { Failure } from "./compliance-rows.ts";
import { assetFactsOf } from "./finding-facts.ts";
import { type AssetState, assetKey, type Tally } from "./packed-results.ts";

/** All results of one vault. */
export interface VaultResults {
  /** Codes of the checks that the vault itself passes. */
  passed: number[];
  failed: Failure[];
  /** Results of the vault's assets by `assetKey`. */
  assets: Map<string, AssetState>;
}

/** Returns since when a check fails, in Unix seconds: the time in the previous results, or now for a new failure. */
const failingSince = (previous: readonly Failure[] | undefined, code: number, now: number): number =>
  previous?.find((failure) => failure.code === code)?.since ?? Math.floor(now / 1000);

/**
 * Returns the results of all checks for the asset's type.
 *
 * @param otherInputs - What the checks need to know about the asset's vault and about references to the asset.
 * @param previous - The asset's stored results. Undefined for a new asset.
 * @param ownerTag - The tag that names an asset's owner.
 */
export function evaluateAsset(
  asset: AssetRecord,
  otherInputs: Omit<AssetResource, "asset">,
  context: Context,
  previous: AssetState | undefined,
  ownerTag: string,
): AssetState {
  const passed: number[] = [];
  const failed: Failure[] = [];
  let dueAt: number | undefined;
  const resource = { asset, ...otherInputs };
  for (const check of ASSET_CHECKS) {
    if (check.resourceType !== asset.type || sourceOf(check) !== sourceOf(asset)) continue;
    const { result, evidence, changesAt } = check.evaluate(resource, context);
    if (result === "pass") passed.push(check.code);
    if (result === "fail")
      failed.push({ code: check.code, since: failingSince(previous?.failed, check.code, context.now), evidence });
    // Results that change with the expiry need no time here: the inventory's index by expiry finds their assets.
    if (check.timed === "age" && changesAt !== undefined) dueAt = Math.min(dueAt ?? changesAt, changesAt);
  }
  const assetFacts = failed.length > 0 ? assetFactsOf(asset, ownerTag) : undefined;
  return {
    type: asset.type,
    name: asset.name,
    // Copies of exact size: arrays grown by push reserve more, and thousands of assets are in memory.
    passed: passed.slice(),
    failed: failed.slice(),
    ...(dueAt === undefined ? {} : { dueAt }),
    ...(assetFacts ? { facts: assetFacts } : {}),
  };
}

/** Returns the results of all checks for the vault itself. */
export function evaluateVault(
  vault: VaultRecord,
  references: ReferenceFacts | undefined,
  context: Context,
  previous: readonly Failure[] | undefined,
): Pick<VaultResults, "passed" | "failed"> {
  const passed: number[] = [];
  const failed: Failure[] = [];
  // Vault checks don't apply to a holder of credentials outside of key vaults.
  for (const check of sourceOf(vault) === "keyVault" ? vaultChecks : []) {
    const { result, evidence } = check.evaluate(vault, references);
    if (result === "pass") passed.push(check.code);
    if (result === "fail")
      failed.push({ code: check.code, since: failingSince(previous, check.code, context.now), evidence });
  }
  return { passed, failed };
}

/** Returns, for each check's code, how many of the vault and its assets pass and fail it. */
export function countResults(results: VaultResults): Map<number, Tally> {
  const tallies = new Map<number, Tally>();
  const tallyOf = (code: number): Tally => {
    const tally = tallies.get(code) ?? { passed: 0, failed: 0 };
    tallies.set(code, tally);
    return tally;
  };
  for (const { passed, failed } of [results, ...results.assets.values()]) {
    for (const code of passed) tallyOf(code).passed++;
    for (const { code } of failed) tallyOf(code).failed++;
  }
  return tallies;
}

export const assetKeyOf = (asset: Pick<AssetRecord, "type" | "name">): string => assetKey(asset.type, asset.name);
