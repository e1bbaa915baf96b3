/**
 * Claims: rows by which the workers of a scan take vaults, renew them and hand them off. Row keys are in scan.ts. A worker's
 * name is `plan` for the scan's first message, otherwise the vault's index in the worker's message.
 */
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { insert, merge, type Operation, remove, type Tables } from "../platform/storage/tables.ts";
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

/**
 * Interval at which a worker renews its claim of a vault. If a claim is not renewed for a minute, its worker has crashed
 * (scan-watch.ts).
 */
export const RENEWAL_MS = 20 * SECOND_MS;
/** Worker name in the claims of vaults that the planning invocation scans itself. */
export const PLAN_WORKER = "plan";

/** A vault of the plan. */
interface IndexedVault {
  index: string;
  vault: PlannedVault;
}

/** A vault that a worker has claimed. */
export interface Claim extends IndexedVault {
  /** Key of the vault's row in the scan's partition. */
  rowKey: string;
}

/** A waiting vault, as its row was read or written. */
export interface WaitingVault extends IndexedVault {
  etag: string;
}

/** A vault with the operations that claim it, for a transaction in the scan's partition. */
export interface NextVault extends Claim {
  operations: Operation[];
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
  findWaiting(scan: Pick<ScanRecord, "scanId" | "vaultsTotal">): Promise<WaitingVault | undefined>;
  /**
   * Returns the operations that claim a waiting vault.
   *
   * @param worker - The worker that starts at once; undefined if a message is sent for the vault.
   */
  claimOperations(waiting: WaitingVault, worker: string | undefined): NextVault;
  /**
   * Returns the operations that hand a vault off: it is written in the background and no longer counts as its worker's vault.
   * They belong into the transaction that claims the worker's next vault.
   */
  handOff(claim: Claim): { handedOff: Claim; operations: Operation[] };
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
  /** Records that a worker starts a claimed vault. Returns false if another worker did so first, or if the vault is done. */
  start(scanId: string, claimed: Row<PlannedVault>, worker: string): Promise<boolean>;
  /** Records that no worker scans the claimed vault any more. The worker of its next message starts it again. */
  release(scanId: string, rowKey: string): Promise<void>;
  /** Starts renewing the row of a claimed vault. Call the returned function to stop. */
  startHeartbeat(scanId: string, rowKey: string): () => Promise<void>;
  /** Returns a claimed vault's row, also if it is handed off. One or two requests. */
  readClaimed(scanId: string, index: string): Promise<Row<PlannedVault> | undefined>;
  /** Returns whether the claim's row still exists: the vault is neither finished nor handed off. */
  exists(scanId: string, rowKey: string): Promise<boolean>;
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
  /** Updates a claimed vault's row. Returns false if the row has changed or was removed. */
  async function updateRow(
    scanId: string,
    rowKey: string,
    changes: Partial<PlannedVault>,
    etag?: string,
  ): Promise<boolean> {
    try {
      const operation = merge(PlannedVaults, rowKey, changes, etag);
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), [operation]);
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  }

  async function readFirstWaiting(scanId: string, from: string): Promise<WaitingVault | undefined> {
    const range = {
      partitionKey: scanPartition(scanId),
      from,
      before: CLAIMED,
      pageSize: 1,
      onCorrupt: skipUnreadable,
    };
    for await (const [row] of tables.pages(PlannedVaults, range)) {
      if (row) return { index: indexOf(row.rowKey), vault: withoutKeys(row), etag: row.etag };
    }
    return undefined;
  }

  const claims: Claims = {
    async findWaiting({ scanId, vaultsTotal }) {
      const startIndex = Math.floor(randomness.number() * vaultsTotal);
      const waitingVault = await readFirstWaiting(scanId, waitingKey(indexText(startIndex)));
      return waitingVault ?? (startIndex > 0 ? await readFirstWaiting(scanId, WAITING) : undefined);
    },

    claimOperations({ index, vault, etag }, worker) {
      const claimed = { ...vault, ...(worker === undefined ? { begun: false } : { begun: true, worker }) };
      const rowKey = claimedKey(index);
      const operations = [remove(PlannedVaults, waitingKey(index), etag), insert(PlannedVaults, rowKey, claimed)];
      return { index, rowKey, vault: claimed, operations };
    },

    handOff(claim) {
      const rowKey = handedOffKey(claim.index);
      const operations = [remove(PlannedVaults, claim.rowKey), insert(PlannedVaults, rowKey, claim.vault)];
      return { handedOff: { ...claim, rowKey }, operations };
    },

    send: (scanId, index, options) => queues.send(QUEUES.vaults, { scanId, index }, options),

    async resendClaimed(scanId, worker, options) {
      let claimed = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, onCorrupt: skipUnreadable };
      for await (const rows of tables.pages(PlannedVaults, range)) {
        claimed += rows.length;
        for (const row of rows) {
          // A vault that no worker has started yet has no worker's name. The scan's first message is responsible for it.
          const sender = row.worker ?? (row.begun ? undefined : PLAN_WORKER);
          const index = indexOf(row.rowKey);
          if (sender !== worker || index === options?.exceptIndex) continue;
          if (row.begun) await claims.release(scanId, row.rowKey);
          await claims.send(scanId, index);
        }
      }
      return claimed;
    },

    start: (scanId, { rowKey, etag }, worker) => updateRow(scanId, rowKey, { begun: true, worker }, etag),

    async release(scanId, rowKey) {
      await updateRow(scanId, rowKey, { begun: false });
    },

    startHeartbeat(scanId, rowKey) {
      // After failed renewals another worker may read the vault at the same time. Only one of them can write it: a write fails
      // if the ETag of the vault's fence row changed since the read.
      const renewals = startHeartbeat(RENEWAL_MS, () => updateRow(scanId, rowKey, { begun: true }));
      return () => renewals.stop();
    },

    async readClaimed(scanId, index) {
      const row = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
      return row ?? (await tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index)));
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
