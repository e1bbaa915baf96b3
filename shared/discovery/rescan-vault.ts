/** Runs the re-scan of one vault: reads it from the cloud, updates the inventory, and records changes in the audit log. */
import type { Audit } from "../audit/audit.ts";
import { assetId } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { AssetChange } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import type { Randomness } from "../platform/runtime.ts";
import { listVaults, planSubscriptionVaults } from "./plan-vaults.ts";
import { type RescanRecord, resourceIdsOf } from "./rescan-rows.ts";
import type { PlannedVault } from "./scan.ts";
import { hasSameComparedFields, type ScanVaultDeps, scanVault } from "./scan-vault.ts";

/** Maximum number of changed assets that an audit entry names. The counts include all. */
const MAX_NAMED_ASSETS = 100;

export interface RescanVaultDeps extends ScanVaultDeps {
  audit: Pick<Audit, "append">;
  /** Returns whether the subscription is in scope. */
  watched: (subscriptionId: string) => Promise<boolean>;
  randomness: Randomness;
}

/**
 * Re-scans one vault and records the changes in the audit log. Does nothing if the vault is not in scope, or is neither in the
 * inventory nor in the cloud.
 *
 * @returns whether anything changed.
 * @throws {VaultBusy} while another worker writes the vault.
 * @throws {CloudFailure} when the vault's description can't be read. Failures to read its contents are part of the outcome.
 */
export async function rescanVault(
  row: RescanRecord,
  options: { workerId: string; requestId: string; signal: AbortSignal },
  deps: RescanVaultDeps,
): Promise<boolean> {
  const { workerId, requestId, signal } = options;
  const storedVault = await deps.writer.find(row.vaultName);
  const planned = await planRescan(row, storedVault, signal, deps);
  if (!planned) return false;
  let hasChanged = false;

  async function recordChange(id: string, change: VaultChange, changes: AssetChange[]): Promise<void> {
    await deps.audit.append({
      id,
      type: "vault.changed",
      caller: { actor: "system", requestId },
      outcome: "success",
      target: { type: "vault", id: change.vault.id },
      details: { trigger: "event", ...detailsOf(change, changes) },
    });
    hasChanged = true;
  }

  const prepareChange: ScanVaultDeps["prepareChange"] = async (change) => {
    const writeDerivedData = await deps.prepareChange(change);
    // All attempts use the same entry ID, because the returned function may be called again after a conflict.
    let entryId: string | undefined;
    // `confirm` throws if another worker has claimed the vault meanwhile.
    return async (changes, confirm) => {
      await writeDerivedData(changes, confirm);
      if (changes.length === 0 && !changeKindOf(change)) return;
      entryId ??= deps.randomness.ulid(deps.clock.now());
      await recordChange(entryId, change, changes);
    };
  };
  const eventAt = row.want.fromVault ? row.want.at : undefined;
  // The first read of a vault also reads its diagnostic settings.
  const mode = storedVault ? "delta" : "full";
  await scanVault(planned, { mode, workerId, signal, rescan: { eventAt } }, { ...deps, prepareChange });
  return hasChanged;
}

/**
 * Returns the plan for the vault, from the inventory or from the resource manager's current description. Undefined if no
 * subscription in scope has the vault; other subscriptions are not queried.
 */
async function planRescan(
  { want }: RescanRecord,
  storedVault: VaultRecord | undefined,
  signal: AbortSignal,
  { resourceManager, watched, clock }: RescanVaultDeps,
): Promise<PlannedVault | undefined> {
  for (const id of resourceIdsOf(want)) {
    const resourceId = parseResourceId(id);
    if (!resourceId || !(await watched(resourceId.subscriptionId.toLowerCase()))) continue;
    const listedAt = clock.now().toISOString();
    try {
      const resource = await resourceManager.vault(id, signal);
      const { name, subscriptionId } = resource;
      return { name, subscriptionId, action: "scan", listedAt, resource: { ...resource } };
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "notFound") throw error;
    }
  }
  if (!storedVault || !(await watched(storedVault.subscriptionId))) return undefined;
  const { name, subscriptionId } = storedVault;
  // The events concern only the vault's objects, so the stored description is used.
  if (want.vaultId === undefined) {
    return { name, subscriptionId, action: "scan", listedAt: storedVault.describedAt, resource: { ...storedVault } };
  }
  // Only a complete listing proves that a vault was deleted.
  const listedAt = clock.now().toISOString();
  const listed = await listVaults(resourceManager, subscriptionId, signal);
  // The key is the vault's name, the value would be the end of its back-off. A re-scan ignores the back-off.
  const thisVault = new Map([[name.toLowerCase(), undefined]]);
  const { vaults } = planSubscriptionVaults(subscriptionId, listed, thisVault, "force", listedAt);
  return vaults.find((one) => one.name.toLowerCase() === name.toLowerCase() && one.action !== "fail");
}

type VaultChange = Parameters<ScanVaultDeps["prepareChange"]>[0];

/** Returns how the vault itself changed, apart from its assets. */
function changeKindOf({ vault, vaultBefore, vaultGone }: VaultChange): "added" | "removed" | "updated" | undefined {
  if (vaultGone) return "removed";
  if (!vaultBefore) return "added";
  return hasSameComparedFields(vaultBefore, vault) ? undefined : "updated";
}

function detailsOf(change: VaultChange, changes: AssetChange[]): object {
  const { name: vaultName } = change.vault;
  const ids = (assetChanges: AssetChange[]) =>
    assetChanges.slice(0, MAX_NAMED_ASSETS).map(({ type, name }) => assetId({ vaultName, type, name }));
  const added = changes.filter(({ before, after }) => !before && after);
  const removed = changes.filter(({ before, after }) => before && !after);
  const updated = changes.filter(({ before, after }) => before && after && before.content !== after.content);
  const vault = changeKindOf(change);
  return {
    ...(vault ? { vault } : {}),
    counts: { added: added.length, updated: updated.length, removed: removed.length },
    added: ids(added),
    updated: ids(updated),
    removed: ids(removed),
  };
}
