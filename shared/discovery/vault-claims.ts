/**
 * Claims: rows by which the workers of a scan take vaults, renew them and hand them off (states: vault-states.ts). A worker's name
 * is `plan` for the scan's first message, otherwise the vault's index in the worker's message.
 */
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import {
  CLAIMED,
  claimedKey,
  DONE,
  handedOffKey,
  indexOf,
  indexText,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  type ScanRecord,
  scanPartition,
  WAITING,
  waitingKey,
} from "./scan.ts";
import { nextVault, type ScanVault, type VaultEvent, vaultOperations, vaultState } from "./vault-states.ts";

/**
 * Interval at which a worker renews its claim of a vault. If a claim is not renewed for a minute, its worker has crashed
 * (scan-watch.ts).
 */
export const RENEWAL_MS = 20 * SECOND_MS;
/** A vault of the plan as its row was read or written. */
export interface StoredVault extends ScanVault {
  etag: string;
}

/**
 * The waiting and claimed vaults of a scan. Each claimed vault has a worker that renews its row, or a message in the queue. The
 * age of the row, measured by storage, shows whether its worker is active.
 */
export interface Claims {
  /**
   * Returns a waiting vault, or undefined if none is left. Takes the first one after a random position, so that concurrent
   * workers usually choose different vaults. Reads one row, or two near the end.
   */
  findWaiting(scan: Pick<ScanRecord, "scanId" | "vaultsTotal">): Promise<StoredVault | undefined>;
  /** Sends the message of a claimed vault without an active worker. A duplicate does no harm: only one worker starts. */
  send(scanId: string, index: string, options?: { delaySeconds?: number }): Promise<void>;
  /**
   * Sends messages for the claimed vaults of a crashed or failed worker. For the worker `plan`, these include all claimed
   * vaults that no worker has started. Vaults of other workers are left to the messages of those. Otherwise, after an outage,
   * each redelivered message would send a message for every vault.
   *
   * @param options.exceptIndex - Index of a vault that the caller is already scanning.
   * @returns the number of claimed vaults of the scan, by any worker.
   */
  resendClaimed(scanId: string, worker: string, options?: { exceptIndex: string }): Promise<number>;
  /**
   * Records that the worker of a message starts a claimed vault. Returns undefined if another worker scans it.
   *
   * @param redelivered - Whether the message's worker crashed or failed before.
   */
  start(scanId: string, claimed: StoredVault, worker: string, redelivered: boolean): Promise<ScanVault | undefined>;
  /** Records that no worker scans the claimed vault any more. The worker of its next message starts it again. */
  release(scanId: string, claim: ScanVault): Promise<void>;
  /** Starts renewing the row of a claimed vault. Call the returned function to stop. */
  startHeartbeat(scanId: string, claim: ScanVault): () => Promise<void>;
  /** Returns a claimed vault's row, also if it is handed off. One or two requests. */
  readClaimed(scanId: string, index: string): Promise<StoredVault | undefined>;
  /** Returns whether the claim's row still exists: the vault is neither finished nor handed off. */
  exists(scanId: string, rowKey: string): Promise<boolean>;
  /** Returns whether any worker has claimed a vault of the scan. */
  hasClaimed(scanId: string): Promise<boolean>;
}

/** No worker can scan a vault whose row can't be read. When the scan ends, the vault counts as failed (scan-end.ts). */
export const skipUnreadable = (): void => {};

interface ClaimsDeps {
  tables: Tables;
  queues: Queues;
  randomness: Randomness;
}

export function createClaims({ tables, queues, randomness }: ClaimsDeps): Claims {
  /**
   * Writes a claimed vault's state after an event. Returns the vault, or undefined if the event is rejected, or if the row has
   * changed or was removed.
   */
  async function update<V extends ScanVault>(
    scanId: string,
    claim: V,
    event: VaultEvent,
    etag?: string,
  ): Promise<V | undefined> {
    const next = nextVault(claim, event);
    if (!next) return undefined;
    try {
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), vaultOperations(claim, next, etag));
      return next;
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  }

  async function readFirstWaiting(scanId: string, from: string): Promise<StoredVault | undefined> {
    const range = {
      partitionKey: scanPartition(scanId),
      from,
      before: CLAIMED,
      pageSize: 1,
      onCorrupt: skipUnreadable,
    };
    for await (const [row] of tables.pages(PlannedVaults, range)) {
      if (row) return storedVault(row);
    }
    return undefined;
  }

  const claims: Claims = {
    async findWaiting({ scanId, vaultsTotal }) {
      const startIndex = Math.floor(randomness.number() * vaultsTotal);
      const waitingVault = await readFirstWaiting(scanId, waitingKey(indexText(startIndex)));
      return waitingVault ?? (startIndex > 0 ? await readFirstWaiting(scanId, WAITING) : undefined);
    },

    send: (scanId, index, options) => queues.send(QUEUES.vaults, { scanId, index }, options),

    async resendClaimed(scanId, worker, options) {
      let claimed = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, onCorrupt: skipUnreadable };
      for await (const rows of tables.pages(PlannedVaults, range)) {
        claimed += rows.length;
        for (const row of rows) {
          const claim = storedVault(row);
          const failed = { type: "workerFailed", worker } as const;
          if (claim.index === options?.exceptIndex || !nextVault(claim, failed)) continue;
          if (vaultState(claim) === "scanning") await update(scanId, claim, failed);
          await claims.send(scanId, claim.index);
        }
      }
      return claimed;
    },

    start: (scanId, claimed, worker, redelivered) =>
      update(scanId, claimed, { type: "started", worker, redelivered }, claimed.etag),

    async release(scanId, claim) {
      await update(scanId, claim, { type: "released" });
    },

    startHeartbeat(scanId, claim) {
      // After failed renewals another worker may read the vault at the same time. Only one of them can write it: a write fails
      // if the ETag of the vault's fence row changed since the read.
      const renewals = startHeartbeat(RENEWAL_MS, () => update(scanId, claim, { type: "renewed" }));
      return () => renewals.stop();
    },

    async readClaimed(scanId, index) {
      const row = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
      const claimed = row ?? (await tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index)));
      return claimed && storedVault(claimed);
    },

    async exists(scanId, rowKey) {
      return (await tables.get(PlannedVaults, scanPartition(scanId), rowKey)) !== undefined;
    },

    async hasClaimed(scanId) {
      const range = {
        partitionKey: scanPartition(scanId),
        from: CLAIMED,
        before: DONE,
        pageSize: 1,
        onCorrupt: skipUnreadable,
      };
      for await (const rows of tables.pages(PlannedVaults, range)) if (rows.length > 0) return true;
      return false;
    },
  };
  return claims;
}

/** Returns the vault of a row in the scan's partition. */
export const storedVault = (row: Row<PlannedVault>): StoredVault => ({
  index: indexOf(row.rowKey),
  rowKey: row.rowKey,
  vault: withoutKeys(row),
  etag: row.etag,
});
