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
  passed: number[];
  failed: Failure[];
  /** By `assetKey`. */
  assets: Map<string, AssetState>;
}

/** The previous results. A failure keeps its start time while it lasts. */
const since = (before: readonly Failure[] | undefined, code: number, now: number): number =>
  before?.find((failure) => failure.code === code)?.since ?? Math.floor(now / 1000);

/**
 * Returns the results of all checks for the asset's type.
 *
 * @param ownerTag - The tag that names an asset's owner.
 */
export function evaluateAsset(
  asset: AssetRecord,
  facts: Omit<AssetResource, "asset">,
  context: Context,
  before: AssetState | undefined,
  ownerTag: string,
): AssetState {
  const passed: number[] = [];
  const failed: Failure[] = [];
  let dueAt: number | undefined;
  const resource = { asset, ...facts };
  for (const check of ASSET_CHECKS) {
    if (check.resourceType !== asset.type || sourceOf(check) !== sourceOf(asset)) continue;
    const { result, evidence, changesAt } = check.evaluate(resource, context);
    if (result === "pass") passed.push(check.code);
    if (result === "fail")
      failed.push({ code: check.code, since: since(before?.failed, check.code, context.now), evidence });
    if (check.timed === "age" && changesAt !== undefined) dueAt = Math.min(dueAt ?? changesAt, changesAt);
  }
  const known = failed.length > 0 ? assetFactsOf(asset, ownerTag) : undefined;
  return {
    type: asset.type,
    name: asset.name,
    // Copies the arrays to their exact size, because each asset keeps two of them in memory.
    passed: passed.slice(),
    failed: failed.slice(),
    ...(dueAt === undefined ? {} : { dueAt }),
    ...(known ? { facts: known } : {}),
  };
}

export function evaluateVault(
  vault: VaultRecord,
  references: ReferenceFacts | undefined,
  context: Context,
  before: readonly Failure[] | undefined,
): Pick<VaultResults, "passed" | "failed"> {
  const passed: number[] = [];
  const failed: Failure[] = [];
  // A holder of credentials is no vault.
  for (const check of sourceOf(vault) === "keyVault" ? vaultChecks : []) {
    const { result, evidence } = check.evaluate(vault, references);
    if (result === "pass") passed.push(check.code);
    if (result === "fail") failed.push({ code: check.code, since: since(before, check.code, context.now), evidence });
  }
  return { passed, failed };
}

/** Returns the numbers of passed and failed pairs by check. */
export function tally(results: VaultResults): Map<number, Tally> {
  const tallies = new Map<number, Tally>();
  const of = (code: number): Tally => {
    const found = tallies.get(code) ?? { passed: 0, failed: 0 };
    tallies.set(code, found);
    return found;
  };
  for (const { passed, failed } of [results, ...results.assets.values()]) {
    for (const code of passed) of(code).passed++;
    for (const { code } of failed) of(code).failed++;
  }
  return tallies;
}

export const keyOf = (asset: Pick<AssetRecord, "type" | "name">): string => assetKey(asset.type, asset.name);
