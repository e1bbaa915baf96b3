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
  indexAt,
  indexOf,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  type ScanRecord,
  scanPartition,
  WAITING,
  waitingKey,
} from "./scan.ts";

/**
 * Interval at which a worker renews its lease on a vault. A lease that is not renewed belongs to a crashed worker (see the scan
 * watch).
 */
export const RENEWAL_MS = 20 * SECOND_MS;
/** Worker name of the vaults that the plan's own invocation scans. */
export const PLAN_WORKER = "plan";

/** A vault of the plan. */
interface Planned {
  index: string;
  vault: PlannedVault;
}

/** A vault that a worker has claimed. */
export interface Claim extends Planned {
  /** Key of the vault's row in the scan's partition. */
  rowKey: string;
}

/** A waiting vault, as its row was read or written. */
export interface Waiting extends Planned {
  etag: string;
}

/** A vault with the operations that claim it, for a transaction in the scan's partition. */
export interface Next extends Claim {
  operations: Operation[];
}

/**
 * The waiting and claimed vaults of a scan. For a claimed vault, either a worker renews its lease or a message waits in the
 * queue. A lease is judged by the age of its row, which storage measures.
 */
export interface Claims {
  /**
   * Returns a waiting vault: the first one after a random position, so that concurrent workers choose different vaults. Reads
   * one row, or two near the end. Undefined if none is left.
   */
  waiting(scan: Pick<ScanRecord, "scanId" | "vaultsTotal">): Promise<Waiting | undefined>;
  /**
   * Returns the operations that claim a waiting vault.
   *
   * @param worker - The worker that starts at once; undefined if a message is sent for the vault.
   */
  take(waiting: Waiting, worker: string | undefined): Next;
  /**
   * Returns the operations that hand a vault off: it is still to be written, but no longer occupies its worker. Run them in the
   * transaction that claims the worker's next vault.
   */
  handOff(claim: Claim): { handedOff: Claim; operations: Operation[] };
  /** Sends the message of a claimed vault without an active worker. A duplicate does no harm: only one worker starts. */
  send(scanId: string, index: string, options?: { delaySeconds?: number }): Promise<void>;
  /**
   * Sends messages for the claimed vaults of a crashed or failed worker. For `plan`, these include all claimed vaults that no
   * worker has started. Vaults that another worker released are left to that worker: after an outage, all redelivered messages
   * would otherwise send one for each vault.
   *
   * @param except - Index of a vault that the caller is already scanning.
   * @returns the number of claimed vaults of the scan, by any worker.
   */
  resendClaimed(scanId: string, worker: string, except?: string): Promise<number>;
  /** Starts a claimed vault for a worker. False if another worker was faster or the vault is done. */
  start(scanId: string, claimed: Row<PlannedVault>, worker: string): Promise<boolean>;
  /** Releases a claimed vault. Its next message starts it again. */
  release(scanId: string, rowKey: string): Promise<void>;
  /** Starts renewing a lease. Call the returned function to stop. */
  startHeartbeat(scanId: string, rowKey: string): () => Promise<void>;
  /** Returns a claimed vault's row, also if it is handed off. One or two requests. */
  claimed(scanId: string, index: string): Promise<Row<PlannedVault> | undefined>;
  /** Returns whether the claim's row still exists: the vault is neither finished nor handed off. */
  exists(scanId: string, rowKey: string): Promise<boolean>;
  hasClaimed(scanId: string): Promise<boolean>;
}

interface ClaimsDeps {
  tables: Tables;
  queues: Queues;
  randomness: Randomness;
}

export function createClaims({ tables, queues, randomness }: ClaimsDeps): Claims {
  /** Updates a claimed vault's row. False if the row has changed or is no longer there. */
  async function updateRow(
    scanId: string,
    rowKey: string,
    part: Partial<PlannedVault>,
    etag?: string,
  ): Promise<boolean> {
    try {
      const operation = merge(PlannedVaults, rowKey, part, etag);
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), [operation]);
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  }

  async function firstWaiting(scanId: string, from: string): Promise<Waiting | undefined> {
    const range = { partitionKey: scanPartition(scanId), from, before: CLAIMED, pageSize: 1 };
    for await (const [row] of tables.pages(PlannedVaults, range)) {
      if (row) return { index: indexOf(row.rowKey), vault: withoutKeys(row), etag: row.etag };
    }
    return undefined;
  }

  const claims: Claims = {
    async waiting({ scanId, vaultsTotal }) {
      const place = Math.floor(randomness.number() * vaultsTotal);
      const found = await firstWaiting(scanId, waitingKey(indexAt(place)));
      return found ?? (place > 0 ? await firstWaiting(scanId, WAITING) : undefined);
    },

    take({ index, vault, etag }, worker) {
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

    async resendClaimed(scanId, worker, except) {
      let claimed = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
      for await (const rows of tables.pages(PlannedVaults, { ...range, select: ["begun", "worker"] })) {
        claimed += rows.length;
        for (const row of rows) {
          const sender = row.worker ?? (row.begun ? undefined : PLAN_WORKER);
          const index = indexOf(row.rowKey);
          if (sender !== worker || index === except) continue;
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
      // If a renewal fails, another worker may read the vault too. Only one of them can write it.
      const renewals = startHeartbeat(RENEWAL_MS, () => updateRow(scanId, rowKey, { begun: true }));
      return () => renewals.stop();
    },

    async claimed(scanId, index) {
      const row = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
      return row ?? (await tables.get(PlannedVaults, scanPartition(scanId), handedOffKey(index)));
    },

    async exists(scanId, rowKey) {
      return (await tables.get(PlannedVaults, scanPartition(scanId), rowKey)) !== undefined;
    },

    async hasClaimed(scanId) {
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, pageSize: 1 };
      for await (const _ of tables.pages(PlannedVaults, { ...range, select: ["begun"] })) return true;
      return false;
    },
  };
  return claims;
}
