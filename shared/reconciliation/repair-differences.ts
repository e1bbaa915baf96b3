import { setTimeout as delay } from "node:timers/promises";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Compliance } from "../compliance/compliance.ts";
import { type AssetRecord, Assets, type AssetType, contentOf } from "../inventory/asset.ts";
import { expiryKey, nameKey, partitions } from "../inventory/asset-keys.ts";
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
import { type Fault, inspectVault, isItself, lookAgain } from "./inventory.ts";
import { parseIndexKey, readRowOrCorrupt, type SuspectedDifference } from "./suspected-differences.ts";
import { copyFault, repairVaultRow } from "./vault-row.ts";
import { type FaultCounts, noFaults } from "./walk-record.ts";

/** Attempts at a vault that a scan is writing. */
const LOOKS = 3;
/** Rows named in an audit entry. Its counts are complete. */
const MAX_NAMED_ROWS = 20;

/** Actor of the repairs in the audit log. */
export interface Restorers {
  readonly writer: Pick<
    InventoryWriter,
    "readForUpdate" | "apply" | "restore" | "forgetListings" | "purgeFencesAndMarkers"
  >;
  readonly compliance: Pick<Compliance, "restore" | "removeOldFences" | "renewTotals" | "faultOfTotals">;
}

/** ID of the walk in audit entries and leases. */
export interface WalkIdentity {
  readonly walkId: string;
  readonly owner: string;
  readonly caller: Caller;
}

/** Result for one vault. */
export interface Settled {
  readonly mended: FaultCounts;
  /** Rows that are repaired after the vault is listed again. */
  readonly awaiting: number;
  /** Why the vault is left to the next walk, completely or in part. */
  readonly left: string | undefined;
}

/** Thrown if the vault was written between the reads of a check. */
class Disturbed extends Error {
  override readonly name = "Disturbed";
}

/**
 * Checks a vault's suspected differences again while no scan writes it, repairs them, and records that in the audit log. All
 * other rows follow from the vault's own rows by name. If those are wrong, the vault is listed again.
 */
export function createMender(
  deps: {
    tables: Tables;
    audit: Pick<Audit, "append">;
    /** Milliseconds between attempts at a vault that a scan is writing. */
    pauseMs: number;
  } & Restorers,
) {
  const { tables, audit, writer } = deps;

  return async function settle(
    vault: string,
    suspected: readonly SuspectedDifference[],
    walk: WalkIdentity,
  ): Promise<Settled> {
    const mended = noFaults();
    for (let look = 1; ; look++) {
      try {
        const awaiting = await settleOnce(vault, suspected, walk, mended);
        return { mended, awaiting, left: undefined };
      } catch (error) {
        // A vault that can't be repaired does not stop the walk. The walk's record names it, and the next walk checks it again.
        const busy = error instanceof Disturbed || error instanceof VaultBusy || isConflict(error);
        if (!busy || look === LOOKS)
          return { mended, awaiting: 0, left: busy ? "it was being written" : reasonOf(error) };
        await delay(deps.pauseMs);
      }
    }
  };

  /** Adds to the counts as it repairs. Returns the number of rows that wait for the vault to be listed again. */
  async function settleOnce(
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
    const enter = (type: string, details: Record<string, unknown>, effect: () => Promise<unknown>) =>
      audited(audit, eventOf(type, details), effect);
    const hasDoubt = (about: SuspectedDifference["about"]) =>
      suspected.some((difference) => difference.about === about);

    if (hasDoubt("vault") && (await readRowOrCorrupt(tables, Vaults, VAULTS, vaultKey(name))).unreadable) {
      await enter("inventory.mended", { vaultRow: "unreadable" }, () => repairVaultRow(tables, name));
      mended.unreadable++;
    }

    for (const { key } of suspected.filter((difference) => difference.about === "copy")) {
      const fault = await undisturbed(name, (vault) => copyFault(tables, vault, key));
      if (!fault) continue;
      await enter("inventory.mended", { vaultCopy: fault.kind, rows: [key] }, fault.repair);
      mended[fault.kind]++;
    }

    const rows = suspected.filter((difference) => difference.about === "row");
    const { vault, looked, types } = await undisturbed(name, async (row) => ({
      vault: row,
      looked: await lookAgain(tables, row, rows),
      types: row && hasDoubt("listings") ? (await inspectVault(tables, row)).types : [],
    }));
    const awaits = ({ key }: Fault): boolean => {
      const type = parseIndexKey(key)?.type;
      return vault !== undefined && type !== undefined && (types.includes(type) || isAwaited(vault, type));
    };
    const due = looked.faults.filter((fault) => !awaits(fault));
    if (due.length + looked.broken.length > 0) {
      const readAgain = looked.broken.map(({ type, name: asset }) => `${type}.${asset}`);
      const details = {
        ...countsOf(due),
        ...(readAgain.length > 0 ? { readAgain } : {}),
        rows: due.slice(0, MAX_NAMED_ROWS).map(({ partitionKey, key }) => `${partitionKey} ${key}`),
      };
      const event = eventOf("inventory.mended", details);
      const repair = () => repairRows(name, vault, due, looked.broken, walk.owner);
      await audited(audit, event, repair, (restored) => ({ details: { ...event.details, ...restored } }));
      for (const { kind } of due) mended[kind]++;
      mended.stale += looked.broken.length;
    }
    if (vault && types.length > 0) {
      await enter("inventory.mended", { listedAgain: types }, () => writer.forgetListings(vault.name, types));
      mended.listings += types.length;
    }

    const problem = hasDoubt("compliance") ? await resultsProblem(name) : undefined;
    if (problem !== undefined) {
      await enter("compliance.mended", { problem }, async () => {
        await removeUnreadable(tables, name);
        await deps.compliance.restore(name);
      });
      mended.compliance++;
    }
    return looked.faults.length - due.length;
  }

  /**
   * Returns the result of `look` if the vault was not written meanwhile: its row is not pending, and unchanged after the check.
   *
   * @throws {Disturbed} or StorageCorrupt when the vault's row can't be read.
   */
  async function undisturbed<T>(name: string, look: (vault: Row<VaultRecord> | undefined) => Promise<T>): Promise<T> {
    const read = async () => (name === "" ? undefined : await tables.get(Vaults, VAULTS, vaultKey(name)));
    const before = await read();
    if (before?.pending) throw new Disturbed();
    const found = await look(before);
    if ((await read())?.etag !== before?.etag) throw new Disturbed();
    return found;
  }

  /**
   * Repairs rows with the inventory's writer, under the fences. A row under a key that no asset of its partition can have is
   * removed by its ETag, since no other code ever writes it. Returns the writer's counts, which include right rows, because all
   * rows of an asset are rewritten together.
   */
  async function repairRows(
    name: string,
    vault: Row<VaultRecord> | undefined,
    faults: readonly Fault[],
    broken: readonly { type: AssetType; name: string }[],
    owner: string,
  ): Promise<Restored> {
    const entries: IndexEntry[] = [];
    let restored: Restored = { written: 0, removed: 0 };
    for (const fault of faults) {
      const entry = entryOf(fault, name);
      if (entry) entries.push(entry);
      else await tables.remove(Assets, fault.partitionKey, fault.key, fault.etag);
    }
    if (entries.length > 0) restored = await writer.restore(vault?.name ?? name, entries, owner);
    if (vault && broken.length > 0) await readAgain(vault, broken, owner);
    return restored;
  }

  /**
   * Writes these assets from their remaining rows, without the hash of their list entry, and removes the fingerprints of their
   * lists, so that the next scan reads them again.
   */
  async function readAgain(
    vault: Row<VaultRecord>,
    broken: readonly { type: AssetType; name: string }[],
    owner: string,
  ): Promise<void> {
    const changes: AssetChange[] = [];
    for (const { type, name } of broken) {
      const key = nameKey(type, name, vault.name);
      const own = await readRowOrCorrupt(tables, Assets, partitions.vault(vault.name), key);
      const copies = [];
      for (const partition of [partitions.all, partitions.subscription(vault.subscriptionId)])
        copies.push((await readRowOrCorrupt(tables, Assets, partition, key)).row);
      const whole = copies.find((copy) => copy && isItself(copy, { type, name }, vault));
      const kept = whole ?? (own.row && { ...own.row, type, name: own.row.name, vaultName: vault.name });
      changes.push({ type, name, before: own.row && withoutKeys(own.row), after: kept && unlisted(withoutKeys(kept)) });
    }
    const known = await writer.readForUpdate(vault.name);
    if (!known.row || known.row.pending) throw new Disturbed();
    const record = withoutKeys(known.row);
    const forgotten = Object.fromEntries(broken.map(({ type }) => [type, ""]));
    const next = {
      ...record,
      listings: { ...record.listings, ...forgotten },
      contents: { ...record.contents, ...forgotten },
    };
    // No data is derived here. The next scan evaluates what it reads.
    await writer.apply(known, next, changes, owner, async () => async () => {});
  }

  async function resultsProblem(name: string): Promise<string | undefined> {
    return await undisturbed(name, async (vault) => {
      const before = await resultsVersion(tables, name);
      if (before === undefined) throw new Disturbed();
      const known = new Map(vault ? [[name, { vault, assets: (await inspectVault(tables, vault)).assets }]] : []);
      const problem = (await inspectResults(tables, rangeOfVault(name), known, new Set())).get(name);
      if ((await resultsVersion(tables, name)) !== before) throw new Disturbed();
      return problem;
    });
  }
}

/** Returns whether the next scan will read its lists again. */
const isAwaited = (vault: VaultRecord, type: AssetType): boolean =>
  vault.listedAt[type] !== undefined && !vault.listings[type] && !vault.contents[type] && !vault.failures[type];

/**
 * Returns the row in the form that the inventory's writer needs. Undefined if the writer could not write a row with this key.
 */
function entryOf({ partitionKey, key }: Fault, vault: string): IndexEntry | undefined {
  const index = parseIndexKey(key);
  if (!index) return undefined;
  const { kind, type, name, expiresOn } = index;
  const written = kind === "name" ? nameKey(type, name, vault) : expiryKey(type, expiresOn, name, vault);
  if (key !== written) return undefined;
  if (partitionKey === partitions.all || partitionKey === partitions.vault(vault)) return { type, name, expiresOn };
  const subscriptionId = subscriptionOf(partitionKey);
  return subscriptionId === undefined ? undefined : { type, name, expiresOn, subscriptionId };
}

const subscriptionOf = (partitionKey: string): string | undefined => {
  const prefix = partitions.subscription("");
  return partitionKey.startsWith(prefix) ? partitionKey.slice(prefix.length) : undefined;
};

function unlisted(asset: AssetRecord): AssetRecord {
  const { firstSeenAt, content: _content, ...facts } = { ...asset, listing: "" };
  return { ...facts, firstSeenAt, content: contentOf(facts) };
}

function countsOf(faults: readonly Fault[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of faults) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** Never the error's own text, which may contain untrusted data. */
function reasonOf(error: unknown): string {
  if (error instanceof StorageCorrupt) return `a row of ${error.table} can't be read`;
  return error instanceof Error ? error.name : "unknown";
}
