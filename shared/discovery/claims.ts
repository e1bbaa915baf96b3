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
  handedOnKey,
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

/** How often a worker renews the claim of the vault it has in hand. A claim not renewed for long is a dead worker's. */
export const RENEWAL_MS = 20 * SECOND_MS;
/** The worker of the vaults that the invocation of the plan has in hand. */
export const PLAN_WORKER = "plan";

/** A vault of the plan. */
interface Planned {
  index: string;
  vault: PlannedVault;
}

/** A vault that a worker has claimed and has in hand. */
export interface Claim extends Planned {
  /** Of its row. */
  rowKey: string;
}

/** A vault that waits, as its row was read or written. */
export interface Waiting extends Planned {
  etag: string;
}

/** A waiting vault, and the operations that claim it, for a transaction in the scan's partition. */
export interface Next extends Claim {
  operations: Operation[];
}

/**
 * The vaults of a scan that wait, and those that are claimed. A claimed one is in the hand of a worker, which renews it, or
 * its message waits in the queue. A claim lives by its row's age, which only storage counts.
 */
export interface Claims {
  /**
   * A waiting vault: the first one behind a random place, so that workers who look at the same moment choose differently.
   * One row is read, or two at the end. Undefined when none waits.
   */
  waiting(scan: Pick<ScanRecord, "scanId" | "vaultsTotal">): Promise<Waiting | undefined>;
  /** @param worker - Who takes it in hand; undefined where a message is sent for it. */
  take(waiting: Waiting, worker: string | undefined): Next;
  /** The vault is still to be written, but its worker's place is another's: for the transaction that claims that one. */
  handOn(claim: Claim): { handedOn: Claim; operations: Operation[] };
  /** Sends the message of a claimed vault that nobody has in hand. Twice does no harm: one of the two begins. */
  send(scanId: string, index: string, options?: { delaySeconds?: number }): Promise<void>;
  /**
   * After a worker died or failed: sends the messages of the vaults it had in hand. The plan's worker has sent those of the
   * vaults that nobody has begun. What another worker put back, that one sends: after an outage all of them come here, and
   * else each would send for all.
   * @param except - The index of one that it has in hand again.
   * @returns how many vaults are claimed, by whomever.
   */
  sendLeft(scanId: string, worker: string, except?: string): Promise<number>;
  /** Takes a claimed vault in hand. False when another worker was faster, or it is done. */
  begin(scanId: string, claimed: Row<PlannedVault>, worker: string): Promise<boolean>;
  /** Nobody has it in hand any more: its message will wait in the queue. */
  putBack(scanId: string, rowKey: string): Promise<void>;
  /** Renews a claim again and again until the answered function is called. */
  keep(scanId: string, rowKey: string): () => Promise<void>;
  /** A claimed vault's row, one that is handed on included. One request, or two. */
  claimed(scanId: string, index: string): Promise<Row<PlannedVault> | undefined>;
  /** Whether the claim is as it was: neither ended nor handed on. */
  stands(scanId: string, rowKey: string): Promise<boolean>;
  anyClaimed(scanId: string): Promise<boolean>;
}

interface ClaimsDeps {
  tables: Tables;
  queues: Queues;
  randomness: Randomness;
}

export function createClaims({ tables, queues, randomness }: ClaimsDeps): Claims {
  /** False when it is no longer as it was read, or no longer claimed. */
  async function mark(scanId: string, rowKey: string, part: Partial<PlannedVault>, etag?: string): Promise<boolean> {
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

    handOn(claim) {
      const rowKey = handedOnKey(claim.index);
      const operations = [remove(PlannedVaults, claim.rowKey), insert(PlannedVaults, rowKey, claim.vault)];
      return { handedOn: { ...claim, rowKey }, operations };
    },

    send: (scanId, index, options) => queues.send(QUEUES.vaults, { scanId, index }, options),

    async sendLeft(scanId, worker, except) {
      let claimed = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
      for await (const rows of tables.pages(PlannedVaults, { ...range, select: ["begun", "worker"] })) {
        claimed += rows.length;
        for (const row of rows) {
          const sender = row.worker ?? (row.begun ? undefined : PLAN_WORKER);
          const index = indexOf(row.rowKey);
          if (sender !== worker || index === except) continue;
          if (row.begun) await claims.putBack(scanId, row.rowKey);
          await claims.send(scanId, index);
        }
      }
      return claimed;
    },

    begin: (scanId, { rowKey, etag }, worker) => mark(scanId, rowKey, { begun: true, worker }, etag),

    async putBack(scanId, rowKey) {
      await mark(scanId, rowKey, { begun: false });
    },

    keep(scanId, rowKey) {
      // At the worst the vault is given to another worker too, and written once.
      const renewals = startHeartbeat(RENEWAL_MS, () => mark(scanId, rowKey, { begun: true }));
      return () => renewals.stop();
    },

    async claimed(scanId, index) {
      const row = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
      return row ?? (await tables.get(PlannedVaults, scanPartition(scanId), handedOnKey(index)));
    },

    async stands(scanId, rowKey) {
      return (await tables.get(PlannedVaults, scanPartition(scanId), rowKey)) !== undefined;
    },

    async anyClaimed(scanId) {
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, pageSize: 1 };
      for await (const _ of tables.pages(PlannedVaults, { ...range, select: ["begun"] })) return true;
      return false;
    },
  };
  return claims;
}
