/** Reads one vault from the cloud and updates the inventory. Workers of scans and re-scans call this. */
import { ASSET_TYPES, type AssetRecord, assetId } from "../inventory/asset.ts";
import { packExpiries } from "../inventory/expiries.ts";
import {
  DiagnosticSetting,
  expiriesColumn,
  ScanResults,
  VaultDescription,
  type VaultRecord,
} from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, StoredVault, WriteDerivedData } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { HOUR_MS, MINUTE_MS } from "../platform/time.ts";
import { failureRecord } from "./read-list.ts";
import { type ReadTypesDeps, type ReadTypesOptions, readTypes, type TypeResult } from "./read-types.ts";
import { emptyTally, MAX_NAMED_CHANGES, type PlannedVault, type VaultOutcome } from "./scan.ts";

/** First back-off of a failed vault for scans other than `force`. It doubles with each failure up to `MAX_BACK_OFF_MS`. */
const FIRST_BACK_OFF_MS = 5 * MINUTE_MS;
const MAX_BACK_OFF_MS = 6 * HOUR_MS;

export interface ScanVaultDeps extends ReadTypesDeps {
  writer: InventoryWriter;
  resourceManager: ResourceManager;
  clock: Clock;
  /**
   * Called before a changed vault is claimed. Returns the function that writes data derived from the change, such as compliance
   * results.
   */
  prepareChange: (change: {
    vault: VaultRecord;
    vaultBefore: VaultRecord | undefined;
    /** True when the vault itself is removed. */
    vaultGone: boolean;
  }) => Promise<WriteDerivedData>;
}

/** Options of a vault's scan. */
interface ScanVaultOptions extends ReadTypesOptions {
  /** Identifies this attempt of the worker in the vault's row. */
  workerId: string;
  /** Set for a re-scan: this vault alone is read, after an event. */
  rescan?: Rescan;
}

interface Rescan {
  /** When an event of the vault arrived, if it sent one. */
  eventAt: string | undefined;
}

/**
 * Returns the planned vault, with a newer state if there is one. A re-scan or another scan may have queried the resource
 * manager after this plan was created. Then its result applies: a newer description of the vault, or that the vault no longer
 * exists.
 */
async function withNewerDescription(
  planned: PlannedVault,
  { row }: StoredVault,
  { writer }: Pick<ScanVaultDeps, "writer">,
): Promise<PlannedVault> {
  const describedLater = row ? row.describedAt : await writer.removedAt(planned.name);
  if (describedLater === undefined || describedLater <= (planned.listedAt ?? "")) return planned;
  if (!row) return { ...planned, action: "remove" };
  const { subscriptionId, describedAt: listedAt } = row;
  return { ...planned, action: "scan", subscriptionId, listedAt, resource: { ...row } };
}

/** A vault that was read and is not written yet. */
export interface VaultRead {
  /** Number of assets that differ from the inventory. */
  changes: number;
  /**
   * Updates the inventory and returns the vault's outcome.
   *
   * @throws {VaultBusy} when another worker has written the vault since it was read.
   */
  write(): Promise<VaultOutcome>;
}

/** Reads a vault and writes the result. */
export async function scanVault(...args: Parameters<typeof readVault>): Promise<VaultOutcome> {
  const { write } = await readVault(...args);
  return await write();
}

/**
 * Reads one vault and compares it with the inventory. Failures of the cloud become part of the outcome. All other errors
 * (storage, a bug) are thrown, so that the queue redelivers the message.
 *
 * @param plan - The vault as the scan's plan describes it. A newer stored description takes precedence.
 * @throws {VaultBusy} while another worker has claimed the vault in order to write it.
 */
export async function readVault(
  plan: PlannedVault,
  options: ScanVaultOptions,
  deps: ScanVaultDeps,
): Promise<VaultRead> {
  const { writer, clock } = deps;
  if (plan.action === "skip") {
    const row = await writer.find(plan.name);
    // If a crashed worker left the vault partly written, the vault is read although it is in back-off.
    if (row && !row.pending) return noChanges(skippedOutcome(plan, row, clock));
  }
  const storedVault = await writer.readForUpdate(plan.name);
  const planned = await withNewerDescription(plan, storedVault, deps);
  const hasMoved =
    storedVault.row && storedVault.row.subscriptionId.toLowerCase() !== planned.subscriptionId.toLowerCase();
  // If another scan has found the vault in a different subscription, this plan must not remove it from there. Then nothing is
  // removed.
  if (planned.action === "remove") {
    const write = () => removeVault(planned, hasMoved ? undefined : storedVault, options.workerId, deps);
    // 0, so that a removal is never handed off: how many assets it removes is only known when they are read.
    return { changes: 0, write };
  }

  if (hasMoved) {
    // The vault's rows are stored under the old subscription. Remove them there and add the vault as a new one. Without
    // `listedAt`, the removal stores no row that says that the vault no longer exists.
    await removeVault({ ...planned, listedAt: undefined }, storedVault, options.workerId, deps);
    return await readVault(planned, options, deps);
  }
  const nowText = clock.now().toISOString();
  const storedRecord = storedVault.row && withoutKeys(storedVault.row);
  // The plan of a vault to scan has its description.
  const description = describe(planned.resource!);
  const vault: VaultRecord = {
    ...description,
    // A copy, because this scan changes its own results and compares them with the stored ones.
    ...(storedRecord ? ScanResults.parse(storedRecord) : noResults(nowText)),
    describedAt: planned.listedAt,
    pending: false,
  };
  const failures: VaultOutcome["failures"] = [];
  const addFailure = (list: string, failure: CloudFailure) =>
    failures.push({ list, ...failureRecord(failure, nowText) });

  if (options.mode !== "delta") {
    try {
      const settings = await deps.resourceManager.diagnosticSettings(description.id, options.signal);
      // Parsing drops fields that are not stored. Otherwise the comparison with the stored record would find a difference.
      vault.diagnostics = settings.map((setting) => DiagnosticSetting.parse(setting));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      addFailure("diagnosticSettings", error);
    }
  }
  const results = await readTypes(vault, storedVault, options, deps, nowText);
  for (const { type, list, owners, packedPlans, failure, policyFailure } of results) {
    if (policyFailure) addFailure("rotationPolicies", policyFailure);
    if (failure) {
      addFailure(LIST_NAMES[type], failure);
      vault.failures[type] = failureRecord(failure, nowText);
    } else delete vault.failures[type];
    if (!list) continue;
    vault.listedAt[type] = nowText;
    vault.listings[type] = list.listing;
    vault.contents[type] = list.contents;
    if (list.details && type !== "secret") vault.details = { ...vault.details, [type]: list.details };
    vault.answers = { ...vault.answers, [type]: list.answers };
    if (packedPlans) vault.certificateRenewals = packedPlans;
    if (list.assets) vault[expiriesColumn(type)] = packExpiries(list.assets.map((asset) => asset.expiresOn));
    if (owners) vault.owners = { ...vault.owners, [type]: owners };
    if (list.renewalChecks) vault.renewalChecks = list.renewalChecks;
  }
  if (options.rescan?.eventAt !== undefined) vault.lastEventAt = options.rescan.eventAt;
  updateBackOff(vault, failures, clock, options.rescan !== undefined);

  const changes = results.flatMap((result) => result.changes);
  return {
    changes: changes.length,
    async write() {
      // Only the vault's own row is written if nothing changed, or only fields from which no other module derives data. If a
      // crashed worker left a partial write (`interrupted`), `apply` completes that write.
      if (
        changes.length === 0 &&
        storedRecord &&
        hasSameComparedFields(storedRecord, vault) &&
        !storedVault.interrupted
      )
        await writer.writeVaultOnly(storedVault, vault);
      else {
        const prepare = () => deps.prepareChange({ vault, vaultBefore: storedRecord, vaultGone: false });
        await writer.apply(storedVault, vault, changes, options.workerId, prepare);
      }
      return outcomeOf(planned, vault, results, failures, nowText);
    },
  };
}

/** Returns a read without changes: writing it stores nothing. */
export const noChanges = (outcome: VaultOutcome): VaultRead => ({ changes: 0, write: async () => outcome });

const LIST_NAMES = { certificate: "certificates", key: "keys", secret: "secrets" } as const;

/** Removes a vault and its assets from the inventory. `storedVault` is undefined if there is nothing to remove. */
async function removeVault(
  planned: PlannedVault,
  storedVault: StoredVault | undefined,
  workerId: string,
  deps: ScanVaultDeps,
): Promise<VaultOutcome> {
  const nowText = deps.clock.now().toISOString();
  let removedAssets: AssetRecord[] = [];
  if (storedVault?.row) {
    const vault = withoutKeys(storedVault.row);
    const prepare = () => deps.prepareChange({ vault, vaultBefore: vault, vaultGone: true });
    removedAssets = await deps.writer.forget(storedVault, workerId, prepare, planned.listedAt);
  }
  const removedIds = removedAssets.map(assetId);
  return {
    vaultName: planned.name,
    subscriptionId: planned.subscriptionId,
    outcome: "removed",
    failures: [],
    tally: { ...emptyTally(), removed: removedAssets.length },
    added: [],
    updated: [],
    removed: removedIds.slice(0, MAX_NAMED_CHANGES),
    finishedAt: nowText,
  };
}

function skippedOutcome(planned: PlannedVault, row: VaultRecord, clock: Clock): VaultOutcome {
  const failures = ASSET_TYPES.flatMap((type) => {
    const failure = row.failures[type];
    return failure ? [{ list: LIST_NAMES[type], ...failure }] : [];
  });
  return {
    vaultName: planned.name,
    subscriptionId: planned.subscriptionId,
    outcome: "skipped",
    failures,
    tally: emptyTally(),
    added: [],
    updated: [],
    removed: [],
    finishedAt: clock.now().toISOString(),
  };
}

function outcomeOf(
  planned: PlannedVault,
  vault: VaultRecord,
  results: TypeResult[],
  failures: VaultOutcome["failures"],
  nowText: string,
): VaultOutcome {
  const changes = results.flatMap((result) => result.changes);
  const idsOf = (assetChanges: AssetChange[]) =>
    assetChanges.map(({ type, name }) => assetId({ vaultName: vault.name, type, name })).slice(0, MAX_NAMED_CHANGES);
  const added = changes.filter((change) => !change.before && change.after);
  const removed = changes.filter((change) => change.before && !change.after);
  const updated = changes.filter(({ before, after }) => before && after && before.content !== after.content);
  const tally = emptyTally();
  for (const { type, list } of results) tally.found[type] = list?.found ?? 0;
  const listed = results.filter((result) => result.list).length;
  return {
    vaultName: planned.name,
    subscriptionId: planned.subscriptionId,
    outcome: failures.length === 0 ? "succeeded" : listed === 0 ? "failed" : "partial",
    failures,
    tally: { ...tally, added: added.length, updated: updated.length, removed: removed.length },
    added: idsOf(added),
    updated: idsOf(updated),
    removed: idsOf(removed),
    finishedAt: nowText,
  };
}

/**
 * Updates a vault's back-off after a scan. If no list could be read, doubles the back-off up to its maximum. Otherwise clears
 * it. A failed re-scan does not change the back-off.
 */
function updateBackOff(vault: VaultRecord, failures: VaultOutcome["failures"], clock: Clock, isRescan: boolean): void {
  const isUnreadable = Object.values(LIST_NAMES).every((list) => failures.some((failure) => failure.list === list));
  if (isUnreadable && isRescan) return;
  vault.failedScans = isUnreadable ? vault.failedScans + 1 : 0;
  if (!isUnreadable) {
    delete vault.retryAt;
    return;
  }
  const wait = Math.min(MAX_BACK_OFF_MS, FIRST_BACK_OFF_MS * 2 ** (vault.failedScans - 1));
  vault.retryAt = new Date(clock.now().getTime() + wait).toISOString();
}

/** Returns the stored part of a vault's description. */
function describe(resource: VaultDescription): VaultDescription {
  const { tags, ...others } = VaultDescription.parse(resource);
  return { ...others, ...(tags && Object.keys(tags).length > 0 ? { tags } : {}) };
}

/** Returns the results of a vault of which nothing was listed yet. */
const noResults = (nowText: string): ScanResults => ({
  firstSeenAt: nowText,
  listedAt: {},
  failures: {},
  failedScans: 0,
  listings: {},
  contents: {},
});

/** Whether other modules derive data from a field, such as compliance results. Every field needs an entry. */
const IS_COMPARED: Record<keyof (VaultDescription & ScanResults), boolean> = {
  name: true,
  id: false,
  vaultUri: false,
  location: false,
  subscriptionId: true,
  resourceGroup: false,
  tenantId: false,
  sku: false,
  tags: true,
  softDelete: true,
  softDeleteRetentionDays: true,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: true,
  networkDefaultAction: true,
  privateEndpoints: true,
  diagnostics: true,
  firstSeenAt: false,
  listedAt: false,
  failures: false,
  failedScans: false,
  retryAt: false,
  lastEventAt: false,
  listings: false,
  contents: false,
  details: false,
  answers: false,
  certificateExpiries: false,
  keyExpiries: false,
  secretExpiries: false,
  certificateRenewals: false,
  owners: false,
  renewalChecks: false,
};
const COMPARED = (Object.keys(IS_COMPARED) as (keyof typeof IS_COMPARED)[]).filter((field) => IS_COMPARED[field]);

/** Returns whether both records agree in all fields from which other modules derive data, such as compliance results. */
export const hasSameComparedFields = (before: VaultRecord, vault: VaultRecord): boolean =>
  COMPARED.every((field) => JSON.stringify(before[field]) === JSON.stringify(vault[field]));
