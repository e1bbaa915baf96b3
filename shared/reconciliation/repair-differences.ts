import { setTimeout as delay } from "node:timers/promises";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { Rescans } from "../discovery/rescans.ts";
import { type AssetRecord, Assets, type AssetType, contentHash } from "../inventory/asset.ts";
import { announcedKeys, nameKey, partitions } from "../inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import {
  type AssetChange,
  type IndexEntry,
  type InventoryWriter,
  type Restored,
  VaultBusy,
} from "../inventory/write.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { inspectResults, rangeOfVault, removeUnreadable, resultsVersion } from "./compliance.ts";
import { type Fault, inspectVault, isConsistent, recheckRows } from "./inventory.ts";
import { findLostVault } from "./lost-vault.ts";
import { parseIndexKey, readRowOrCorrupt, type SuspectedDifference } from "./suspected-differences.ts";
import { copyFault, repairVaultRow, restoreVaultRow } from "./vault-row.ts";
import { type FaultCounts, noFaults } from "./walk-record.ts";

/**
 * Checks suspected differences of one vault again and repairs them, for a walk of the reconciliation. (A walk is one pass over
 * all stored rows.) Assets' own rows are their rows by name in the vault's partition. All other rows of assets are copies of
 * them.
 */

/** Maximum number of attempts to check a vault that a scan is writing. */
const MAX_ATTEMPTS = 3;
/** Maximum number of rows that an audit entry names. Its counts include all. */
const MAX_NAMED_ROWS = 20;

/** The parts of other modules with which the reconciliation repairs rows. */
export interface Restorers {
  readonly writer: Pick<
    InventoryWriter,
    "readForUpdate" | "apply" | "restore" | "forgetListings" | "purgeFencesAndMarkers"
  >;
  readonly compliance: Pick<Compliance, "restore" | "removeOldFences" | "renewTotals" | "findTotalsFault">;
  readonly rescans: Pick<Rescans, "requestForLostVault">;
}

/** Identifies the walk in audit entries (`walkId`, `caller`) and its worker in the leases of vaults (`workerId`). */
export interface WalkIdentity {
  readonly walkId: string;
  readonly workerId: string;
  readonly caller: Caller;
}

/** Result of checking and repairing one vault. */
export interface RepairResult {
  readonly mended: FaultCounts;
  /** Number of wrong rows that are repaired only when the next scan lists the vault. */
  readonly awaiting: number;
  /** Why the vault is left to the next walk, completely or in part. Undefined if it was checked completely. */
  readonly left: string | undefined;
}

/** Thrown if the vault is being written, or was written between the reads of a check. */
class Disturbed extends Error {
  override readonly name = "Disturbed";
}

/**
 * Creates the function that checks a vault's suspected differences again while no scan writes the vault, repairs them, and
 * records the repairs in the audit log. If assets' own rows are wrong, the next scan lists the vault again.
 */
export function createRepairer(
  deps: {
    tables: Tables;
    audit: Pick<Audit, "append">;
    /** Milliseconds between attempts at a vault that a scan is writing. */
    pauseMs: number;
  } & Restorers,
) {
  const { tables, audit, writer } = deps;
  const { undisturbed, resultsProblem } = createChecks(tables);
  const repairRows = createRowRepairer(deps);

  return async function repairVault(
    vault: string,
    suspected: readonly SuspectedDifference[],
    walk: WalkIdentity,
  ): Promise<RepairResult> {
    const mended = noFaults();
    for (let attempt = 1; ; attempt++) {
      try {
        const awaiting = await repairOnce(vault, suspected, walk, mended);
        return { mended, awaiting, left: undefined };
      } catch (error) {
        // A vault that can't be repaired does not stop the walk. The walk's record names it, and the next walk checks it again.
        const busy = error instanceof Disturbed || error instanceof VaultBusy || isConflict(error);
        if (!busy || attempt === MAX_ATTEMPTS)
          return { mended, awaiting: 0, left: busy ? "it was being written" : reasonOf(error) };
        await delay(deps.pauseMs);
      }
    }
  };

  /**
   * Checks and repairs a vault, and adds the repaired faults to `mended`. The order follows from what is needed: the vault's
   * own row, its copies, the rows of its assets, and last the compliance results, which are compared with these rows.
   *
   * @param name - Lower-case name of the vault. Empty for rows with an invalid key, which belong to no vault.
   * @returns The number of wrong rows that are repaired only when the next scan lists the vault.
   */
  async function repairOnce(
    name: string,
    suspected: readonly SuspectedDifference[],
    walk: WalkIdentity,
    mended: FaultCounts,
  ): Promise<number> {
    const eventOf = (type: string, details: Record<string, unknown>) => ({
      type,
      caller: walk.caller,
      target: { type: "vault", id: name },
      details: { walkId: walk.walkId, ...details },
    });
    const repairAudited = (type: string, details: Record<string, unknown>, effect: () => Promise<unknown>) =>
      audited(audit, eventOf(type, details), effect);
    const isSuspected = (about: SuspectedDifference["about"]) =>
      suspected.some((difference) => difference.about === about);

    if (isSuspected("vault") && (await readRowOrCorrupt(tables, Vaults, VAULTS, vaultKey(name))).unreadable) {
      await repairAudited("inventory.mended", { vaultRow: "unreadable" }, () => repairVaultRow(tables, name));
      mended.unreadable++;
    }

    const lost = name === "" ? undefined : await findLostVault(tables, name, suspected, deps.rescans);
    if (lost) {
      const { copy, isRequested } = lost;
      const restore = async () => {
        if (copy) await restoreVaultRow(tables, copy);
        // The evaluation after the re-scan writes the results again. Until then, unreadable ones would keep all totals from being
        // renewed.
        if (isSuspected("compliance")) await removeUnreadable(tables, name);
      };
      if (copy || isRequested) {
        const details = { vaultRow: "missing", restored: copy !== undefined, rescan: isRequested };
        await repairAudited("inventory.mended", details, restore);
        mended.missing++;
      }
      return suspected.filter((difference) => difference.about === "row").length;
    }

    for (const { key } of suspected.filter((difference) => difference.about === "copy")) {
      const fault = await undisturbed(name, (vault) => copyFault(tables, vault, key));
      if (!fault) continue;
      await repairAudited("inventory.mended", { vaultCopy: fault.kind, rows: [key] }, fault.repair);
      mended[fault.kind]++;
    }

    const rows = suspected.filter((difference) => difference.about === "row");
    const { vault, recheck, typesToList } = await undisturbed(name, async (row) => ({
      vault: row,
      recheck: await recheckRows(tables, row, rows),
      typesToList: row && isSuspected("listings") ? (await inspectVault(tables, row)).types : [],
    }));
    // The next scan rewrites the rows of assets whose list it reads again. `broken` are assets whose own row is wrong.
    const isListedAgain = ({ key }: Fault): boolean => {
      const type = parseIndexKey(key)?.type;
      return vault !== undefined && type !== undefined && (typesToList.includes(type) || isListingDue(vault, type));
    };
    const repairable = recheck.faults.filter((fault) => !isListedAgain(fault));
    if (repairable.length + recheck.broken.length > 0) {
      const readAgain = recheck.broken.map(({ type, name: asset }) => `${type}.${asset}`);
      const details = {
        ...countsOf(repairable),
        ...(readAgain.length > 0 ? { readAgain } : {}),
        rows: repairable.slice(0, MAX_NAMED_ROWS).map(({ partitionKey, key }) => `${partitionKey} ${key}`),
      };
      const event = eventOf("inventory.mended", details);
      const repair = () => repairRows(name, vault, repairable, recheck.broken, walk.workerId);
      await audited(audit, event, repair, (restored) => ({ details: { ...event.details, ...restored } }));
      for (const { kind } of repairable) mended[kind]++;
      mended.stale += recheck.broken.length;
    }
    if (vault && typesToList.length > 0) {
      await repairAudited("inventory.mended", { listedAgain: typesToList }, () =>
        writer.forgetListings(vault.name, typesToList),
      );
      mended.listings += typesToList.length;
    }

    const problem = isSuspected("compliance") ? await resultsProblem(name) : undefined;
    if (problem !== undefined) {
      await repairAudited("compliance.mended", { problem }, async () => {
        await removeUnreadable(tables, name);
        await deps.compliance.restore(name);
      });
      mended.compliance++;
    }
    return recheck.faults.length - repairable.length;
  }
}

/** Creates the checks that need a vault that is not written meanwhile. */
function createChecks(tables: Tables) {
  return { undisturbed, resultsProblem };

  /**
   * Returns the result of a check if the vault was not written during the check: its row is not pending, and unchanged
   * afterwards. The name is empty for rows with an invalid key, which belong to no vault.
   *
   * @throws {Disturbed} if the vault is or was being written. StorageCorrupt if the vault's row can't be read.
   */
  async function undisturbed<T>(name: string, check: (vault: Row<VaultRecord> | undefined) => Promise<T>): Promise<T> {
    const read = async () => (name === "" ? undefined : await tables.get(Vaults, VAULTS, vaultKey(name)));
    const before = await read();
    if (before?.pending) throw new Disturbed();
    const result = await check(before);
    if ((await read())?.etag !== before?.etag) throw new Disturbed();
    return result;
  }

  /** Returns the problem of a vault's compliance results. Undefined if they are right. */
  async function resultsProblem(name: string): Promise<string | undefined> {
    return await undisturbed(name, async (vault) => {
      const versionBefore = await resultsVersion(tables, name);
      if (versionBefore === undefined) throw new Disturbed();
      const existing = new Map(vault ? [[name, { vault, assets: (await inspectVault(tables, vault)).assets }]] : []);
      const problem = (await inspectResults(tables, rangeOfVault(name), existing, new Set())).get(name);
      if ((await resultsVersion(tables, name)) !== versionBefore) throw new Disturbed();
      return problem;
    });
  }
}

/** Creates the function that repairs wrong rows of a vault's assets. */
function createRowRepairer({ tables, writer }: { tables: Tables } & Pick<Restorers, "writer">) {
  return repairRows;

  /**
   * Repairs rows with the inventory's writer, whose fences (rows that order the writes of one vault) protect them from late
   * writes. A row with a key that no asset of its partition can have is removed directly, by its ETag. Returns the writer's
   * counts. They include rows that were correct, because all rows of an asset are rewritten together.
   */
  async function repairRows(
    name: string,
    vault: Row<VaultRecord> | undefined,
    faults: readonly Fault[],
    broken: readonly { type: AssetType; name: string }[],
    workerId: string,
  ): Promise<Restored> {
    const entries: IndexEntry[] = [];
    let restored: Restored = { written: 0, removed: 0 };
    for (const fault of faults) {
      const entry = entryOf(fault, name);
      if (entry) entries.push(entry);
      else await tables.remove(Assets, fault.partitionKey, fault.key, fault.etag);
    }
    if (entries.length > 0) restored = await writer.restore(vault?.name ?? name, entries, workerId);
    if (vault && broken.length > 0) await readAgain(vault, broken, workerId);
    return restored;
  }

  /**
   * Restores assets whose own row is wrong from a copy, without the hash of their list entry. Removes the fingerprints of their
   * lists, so that the next scan reads the lists and the assets again.
   */
  async function readAgain(
    vault: Row<VaultRecord>,
    broken: readonly { type: AssetType; name: string }[],
    workerId: string,
  ): Promise<void> {
    const changes: AssetChange[] = [];
    for (const { type, name } of broken) {
      const key = nameKey(type, name, vault.name);
      const ownRow = await readRowOrCorrupt(tables, Assets, partitions.vault(vault.name), key);
      const copies = [];
      for (const partition of [partitions.all, partitions.subscription(vault.subscriptionId)])
        copies.push((await readRowOrCorrupt(tables, Assets, partition, key)).row);
      const rightCopy = copies.find((copy) => copy && isConsistent(copy, { type, name }, vault));
      // Without a right copy, the own row's content stays until the next scan corrects it.
      const source = rightCopy ?? (ownRow.row && { ...ownRow.row, type, vaultName: vault.name });
      const after = source && withoutListing(withoutKeys(source));
      changes.push({ type, name, before: ownRow.row && withoutKeys(ownRow.row), after });
    }
    const stored = await writer.readForUpdate(vault.name);
    if (!stored.row || stored.row.pending) throw new Disturbed();
    const record = withoutKeys(stored.row);
    const noFingerprints = Object.fromEntries(broken.map(({ type }) => [type, ""]));
    const next = {
      ...record,
      listings: { ...record.listings, ...noFingerprints },
      contents: { ...record.contents, ...noFingerprints },
    };
    // No compliance results are derived here. The next scan evaluates the assets that it reads.
    await writer.apply(stored, next, changes, workerId, async () => async () => {});
  }
}

/** Returns whether the next scan reads the list of a type again: the vault's row has no fingerprint of the list. */
const isListingDue = (vault: VaultRecord, type: AssetType): boolean =>
  vault.listedAt[type] !== undefined && !vault.listings[type] && !vault.contents[type] && !vault.failures[type];

/**
 * Returns the row in the form that the inventory's writer needs. Undefined if the writer would not write a row with this key.
 */
function entryOf({ partitionKey, key }: Fault, vault: string): IndexEntry | undefined {
  const index = parseIndexKey(key);
  if (!index) return undefined;
  const { kind, type, name, expiresOn } = index;
  const keys = kind === "name" ? [nameKey(type, name, vault)] : announcedKeys(type, expiresOn ?? null, name, vault);
  if (!keys.includes(key)) return undefined;
  if (partitionKey === partitions.all || partitionKey === partitions.vault(vault)) return { type, name, expiresOn };
  const subscriptionId = subscriptionOf(partitionKey);
  return subscriptionId === undefined ? undefined : { type, name, expiresOn, subscriptionId };
}

const subscriptionOf = (partitionKey: string): string | undefined => {
  const prefix = partitions.subscription("");
  return partitionKey.startsWith(prefix) ? partitionKey.slice(prefix.length) : undefined;
};

/** Returns the asset without the hash of its list entry, with a matching hash of its content. */
function withoutListing(asset: AssetRecord): AssetRecord {
  const { firstSeenAt, content: _content, ...facts } = { ...asset, listing: "" };
  return { ...facts, firstSeenAt, content: contentHash(facts) };
}

function countsOf(faults: readonly Fault[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of faults) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** Returns the reason for the walk's record. The error's own text is not used, because it may contain untrusted data. */
function reasonOf(error: unknown): string {
  if (error instanceof StorageCorrupt) return `a row of ${error.table} can't be read`;
  return error instanceof Error ? error.name : "unknown";
}
