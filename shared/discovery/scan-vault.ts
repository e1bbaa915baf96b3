import { CloudFailure } from "../azure/failure.ts";
import type { KeyVaults, ListedAsset } from "../azure/key-vault.ts";
import type { ResourceManager, VaultResource } from "../azure/resource-manager.ts";
import { ASSET_TYPES, type AssetRecord, type AssetType, assetId } from "../inventory/asset.ts";
import { packExpiries } from "../inventory/expiries.ts";
import { DiagnosticSetting, expiriesColumn, type VaultRecord } from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, KnownVault, RecordChanges } from "../inventory/write.ts";
import type { Clock } from "../runtime.ts";
import { withoutKeys } from "../storage/entity.ts";
import { HOUR_MS, MINUTE_MS } from "../time.ts";
import { contentsOf, failureRecord, listingsOf, readAssets, readListing } from "./read-vault.ts";
import { emptyTally, MAX_NAMED_CHANGES, type PlannedVault, type ScanMode, type VaultOutcome } from "./scan.ts";

/** First wait before a failed vault is tried again by scans other than `force`; it doubles up to the longest. */
const BACK_OFF_MS = 5 * MINUTE_MS;
const LONGEST_BACK_OFF_MS = 6 * HOUR_MS;

interface ScanVaultDeps {
  writer: InventoryWriter;
  keyVaults: KeyVaults;
  resourceManager: ResourceManager;
  clock: Clock;
  /** Run before a changed vault is claimed; what it answers writes what other rooms derive from the change. */
  prepareChange: (change: {
    vault: VaultRecord;
    vaultBefore: VaultRecord | undefined;
    /** True when the vault itself leaves. */
    vaultGone: boolean;
  }) => Promise<RecordChanges>;
}

type Outcome = Omit<VaultOutcome, "next">;

/** What one kind of a vault's assets came to in this scan. */
interface TypeResult {
  type: AssetType;
  /** Undefined when the list could not be read: what was known of it stays. */
  list?: { listing: string; contents: string; assets: AssetRecord[] | undefined; found: number };
  changes: AssetChange[];
  failure?: CloudFailure | undefined;
  /** Of keys: rotation policies that could not be read. */
  policyFailure?: CloudFailure | undefined;
}

/**
 * Brings the inventory of one vault up to date and says what came of it. Failures of the cloud are the outcome; anything
 * else (storage, a bug) is thrown, so that the message is delivered again.
 *
 * @throws {VaultBusy} while another worker holds the vault.
 */
export async function scanVault(
  planned: PlannedVault,
  options: { mode: ScanMode; owner: string; signal: AbortSignal },
  deps: ScanVaultDeps,
): Promise<Outcome> {
  const { writer, clock } = deps;
  if (planned.action === "skip") {
    const row = await writer.find(planned.name);
    // What a dead worker half wrote is not left alone with its vault.
    if (row && !row.pending) return skipped(planned, row, clock);
  }
  const known = await writer.known(planned.name);
  const moved = known.row && known.row.subscriptionId.toLowerCase() !== planned.subscriptionId.toLowerCase();
  // A vault that another scan found elsewhere in the meantime is no longer this subscription's to remove.
  if (planned.action === "remove") return await removeVault(planned, moved ? undefined : known, options.owner, deps);

  const resource = planned.resource as unknown as VaultResource;
  if (moved) {
    // Its rows stand under the old subscription: it leaves there and arrives here as a new one.
    await removeVault(planned, known, options.owner, deps);
    return await scanVault(planned, options, deps);
  }
  const now = clock.now().toISOString();
  const before = known.row && withoutKeys(known.row);
  const vault: VaultRecord = { ...fresh(resource, now), ...(before ? kept(before) : {}) };
  const failures: VaultOutcome["failures"] = [];
  const fail = (list: string, failure: CloudFailure) => failures.push({ list, ...failureRecord(failure, now) });

  if (options.mode !== "delta") {
    try {
      const settings = await deps.resourceManager.diagnosticSettings(resource.id, options.signal);
      // Only what is kept, so that what was kept before compares equal.
      vault.diagnostics = settings.map((setting) => DiagnosticSetting.parse(setting));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      fail("diagnosticSettings", error);
    }
  }
  const results = await readTypes(vault, known, options, deps, now);
  for (const { type, list, failure, policyFailure } of results) {
    if (policyFailure) fail("rotationPolicies", policyFailure);
    if (failure) {
      fail(LIST_NAMES[type], failure);
      vault.failures[type] = failureRecord(failure, now);
    } else delete vault.failures[type];
    if (!list) continue;
    vault.listedAt[type] = now;
    vault.listings[type] = list.listing;
    vault.contents[type] = list.contents;
    if (list.assets) vault[expiriesColumn(type)] = packExpiries(list.assets.map((asset) => asset.expiresOn));
  }
  backOff(vault, failures, clock);

  const changes = results.flatMap((result) => result.changes);
  const sameFacts = before !== undefined && JSON.stringify(facts(before)) === JSON.stringify(facts(vault));
  if (changes.length === 0 && sameFacts && !known.interrupted) await writer.touch(known, vault);
  else {
    const prepare = () => deps.prepareChange({ vault, vaultBefore: before, vaultGone: false });
    await writer.apply(known, vault, changes, options.owner, prepare);
  }
  return outcomeOf(planned, vault, results, failures, now);
}

const LIST_NAMES = { certificate: "certificates", key: "keys", secret: "secrets" } as const;

/** Reads the three kinds side by side; each succeeds or fails by itself. */
async function readTypes(
  vault: VaultRecord,
  known: KnownVault,
  options: { mode: ScanMode; signal: AbortSignal },
  deps: ScanVaultDeps,
  now: string,
): Promise<TypeResult[]> {
  return await Promise.all(
    ASSET_TYPES.map(async (type): Promise<TypeResult> => {
      const force = new Map(known.pending.filter(([of]) => of === type).map(([, name]) => [name, true]));
      let rows: Promise<Map<string, AssetRecord>> | undefined;
      const standing = () => {
        rows ??= known.row ? deps.writer.assetsOf(vault.name, type) : Promise.resolve(new Map());
        return rows;
      };
      let items: ListedAsset[];
      try {
        const client = deps.keyVaults.open(vault);
        items = await readListing(client, type, options.signal);
        const listing = listingsOf(items);
        const unchanged = known.row?.listings[type] === listing && force.size === 0;
        if (options.mode === "delta" && unchanged) {
          const contents = known.row?.contents[type] ?? "";
          return { type, changes: [], list: { listing, contents, assets: undefined, found: items.length } };
        }
        const refresh = options.mode !== "delta";
        const read = await readAssets(client, type, items, vault, {
          known: standing,
          refresh,
          now,
          signal: options.signal,
        });
        const contents = contentsOf(read.assets);
        const list = { listing: read.listing, contents, found: read.assets.length };
        const failure = { failure: read.failure, policyFailure: read.policyFailure };
        if (known.row?.contents[type] === contents && force.size === 0) {
          return { type, changes: [], list: { ...list, assets: undefined }, ...failure };
        }
        return {
          type,
          changes: diff(type, await standing(), read.assets, force),
          list: { ...list, assets: read.assets },
          ...failure,
        };
      } catch (error) {
        // Storage that fails is no failure of the vault: the message comes again.
        if (!(error instanceof CloudFailure)) throw error;
        return { type, changes: force.size > 0 ? stale(type, await standing(), force) : [], failure: error };
      }
    }),
  );
}

/** What differs between what stands and what was read; `force` names assets whose rows may be half written. */
function diff(
  type: AssetType,
  standing: Map<string, AssetRecord>,
  assets: AssetRecord[],
  force: Map<string, boolean>,
): AssetChange[] {
  const changes: AssetChange[] = [];
  const left = new Map(standing);
  for (const asset of assets) {
    const key = asset.name.toLowerCase();
    const before = left.get(key);
    left.delete(key);
    if (before) asset.firstSeenAt = before.firstSeenAt;
    if (before?.content !== asset.content || before.listing !== asset.listing || force.has(key)) {
      changes.push({ type, name: asset.name, before, after: asset });
    }
  }
  for (const before of left.values()) changes.push({ type, name: before.name, before, after: undefined });
  return changes;
}

/** Of a list that could not be read, only what a dead worker half wrote is put back to what stands. */
function stale(type: AssetType, standing: Map<string, AssetRecord>, force: Map<string, boolean>): AssetChange[] {
  return [...standing]
    .filter(([key]) => force.has(key))
    .map(([, asset]) => ({ type, name: asset.name, before: asset, after: asset }));
}

/** `known` is undefined where there is nothing to remove. */
async function removeVault(
  planned: PlannedVault,
  known: KnownVault | undefined,
  owner: string,
  deps: ScanVaultDeps,
): Promise<Outcome> {
  const now = deps.clock.now().toISOString();
  let gone: AssetRecord[] = [];
  if (known?.row) {
    const vault = withoutKeys(known.row);
    gone = await deps.writer.forget(known, owner, () =>
      deps.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
    );
  }
  const names = gone.map(assetId);
  return {
    vaultName: planned.name,
    subscriptionId: planned.subscriptionId,
    outcome: "removed",
    failures: [],
    tally: { ...emptyTally(), removed: gone.length },
    added: [],
    updated: [],
    removed: names.slice(0, MAX_NAMED_CHANGES),
    finishedAt: now,
  };
}

function skipped(planned: PlannedVault, row: VaultRecord, clock: Clock): Outcome {
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
  now: string,
): Outcome {
  const changes = results.flatMap((result) => result.changes);
  const names = (of: AssetChange[]) =>
    of.map(({ type, name }) => assetId({ vaultName: vault.name, type, name })).slice(0, MAX_NAMED_CHANGES);
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
    added: names(added),
    updated: names(updated),
    removed: names(removed),
    finishedAt: now,
  };
}

/** A vault none of whose lists could be read is left alone for a while, longer each time. */
function backOff(vault: VaultRecord, failures: VaultOutcome["failures"], clock: Clock): void {
  const failed = Object.values(LIST_NAMES).every((list) => failures.some((failure) => failure.list === list));
  vault.failedScans = failed ? vault.failedScans + 1 : 0;
  if (!failed) {
    delete vault.retryAt;
    return;
  }
  const wait = Math.min(LONGEST_BACK_OFF_MS, BACK_OFF_MS * 2 ** (vault.failedScans - 1));
  vault.retryAt = new Date(clock.now().getTime() + wait).toISOString();
}

/** A vault as the resource manager describes it, nothing listed yet. */
function fresh(resource: VaultResource, now: string): VaultRecord {
  return {
    name: resource.name,
    id: resource.id,
    vaultUri: resource.vaultUri,
    location: resource.location,
    subscriptionId: resource.subscriptionId,
    resourceGroup: resource.resourceGroup,
    tenantId: resource.tenantId,
    sku: resource.sku,
    ...(resource.tags && Object.keys(resource.tags).length > 0 ? { tags: resource.tags } : {}),
    softDelete: resource.softDelete,
    softDeleteRetentionDays: resource.softDeleteRetentionDays,
    purgeProtection: resource.purgeProtection,
    rbacAuthorization: resource.rbacAuthorization,
    publicNetworkAccess: resource.publicNetworkAccess,
    networkDefaultAction: resource.networkDefaultAction,
    privateEndpoints: resource.privateEndpoints,
    firstSeenAt: now,
    listedAt: {},
    failures: {},
    failedScans: 0,
    listings: {},
    contents: {},
    pending: false,
  };
}

/** What the scans know of a vault, beside what the resource manager says. */
function kept(before: VaultRecord): Partial<VaultRecord> {
  const { firstSeenAt, diagnostics, failedScans, retryAt } = before;
  return {
    firstSeenAt,
    diagnostics,
    failedScans,
    retryAt,
    listedAt: { ...before.listedAt },
    failures: { ...before.failures },
    listings: { ...before.listings },
    contents: { ...before.contents },
    certificateExpiries: before.certificateExpiries,
    keyExpiries: before.keyExpiries,
    secretExpiries: before.secretExpiries,
  };
}

/** What other rooms could derive something from: all but the scans' own bookkeeping. */
function facts(vault: VaultRecord): unknown {
  const { name, subscriptionId, softDelete, softDeleteRetentionDays, purgeProtection, rbacAuthorization } = vault;
  const { publicNetworkAccess, networkDefaultAction, privateEndpoints, diagnostics, tags } = vault;
  return [
    name,
    subscriptionId,
    softDelete,
    softDeleteRetentionDays,
    purgeProtection,
    rbacAuthorization,
    publicNetworkAccess,
    networkDefaultAction,
    privateEndpoints,
    diagnostics ?? null,
    tags ?? null,
  ];
}
