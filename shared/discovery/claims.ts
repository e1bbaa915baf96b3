import { withoutKeys } from "../storage/entity.ts";
import { RowMissing } from "../storage/errors.ts";
import type { Queues } from "../storage/queues.ts";
import { insert, merge, type Operation, remove, type Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import {
  CLAIMED,
  claimedKey,
  DONE,
  indexOf,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  scanPartition,
  WAITING,
} from "./scan.ts";

/** How many waiting vaults a worker looks at to choose its next: enough that workers rarely choose the same. */
const CANDIDATES = 200;
/** A planned vault with more bytes of JSON than this stays out of its message, which may hold 48 KiB. */
const MAX_VAULT_IN_MESSAGE = 40_000;
/** How often a worker renews the claim of the vault it has in hand. A claim not renewed for long is a dead worker's. */
export const RENEWAL_MS = 20 * SECOND_MS;

/** A vault that a worker has claimed. */
export interface Claim {
  index: string;
  vault: PlannedVault;
}

/** A waiting vault, and the operations that claim it, for a transaction in the scan's partition. */
export interface Next extends Claim {
  operations: Operation[];
}

/** The vaults of a scan that wait, and those that are claimed. A claim lives by its row's age, which only storage counts. */
export interface Claims {
  /**
   * A vault to claim. Each chain of messages looks at another place among the first ones, so that workers who look at the
   * same moment choose differently. Undefined when none waits.
   */
  next(scanId: string, chain: number, begun: boolean): Promise<Next | undefined>;
  /**
   * Sends a claimed vault's message. It holds the planned vault itself, so that its worker need not read what was just
   * written.
   */
  send(scanId: string, claim: Claim): Promise<void>;
  /** Sends the messages of all claimed vaults, and says how many. Sending one twice does no harm. */
  sendAll(scanId: string): Promise<number>;
  /** Marks that a worker begins with a claimed vault. False when it is claimed no longer: it is done. */
  begin(scanId: string, index: string): Promise<boolean>;
  /** Marks that its message waits in the queue again. */
  putBack(scanId: string, index: string): Promise<void>;
  /** Renews a claim again and again until the answered function is called. */
  keep(scanId: string, index: string): () => void;
  claimed(scanId: string, index: string): Promise<PlannedVault | undefined>;
  anyClaimed(scanId: string): Promise<boolean>;
}

export function createClaims({ tables, queues }: { tables: Tables; queues: Queues }): Claims {
  async function mark(scanId: string, index: string, begun: boolean): Promise<boolean> {
    try {
      const operation = merge(PlannedVaults, claimedKey(index), { begun });
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), [operation]);
      return true;
    } catch (error) {
      if (error instanceof RowMissing) return false;
      throw error;
    }
  }

  const claims: Claims = {
    async next(scanId, chain, begun) {
      const range = { partitionKey: scanPartition(scanId), from: WAITING, before: CLAIMED, pageSize: CANDIDATES };
      for await (const rows of tables.pages(PlannedVaults, range)) {
        const row = rows[chain % rows.length]!;
        const index = indexOf(row.rowKey);
        const vault = { ...withoutKeys(row), chain, begun };
        const take = remove(PlannedVaults, row.rowKey, row.etag);
        return { index, vault, operations: [take, insert(PlannedVaults, claimedKey(index), vault)] };
      }
      return undefined;
    },

    async send(scanId, { index, vault }) {
      const small = Buffer.byteLength(JSON.stringify(vault)) <= MAX_VAULT_IN_MESSAGE;
      await queues.send(QUEUES.vaults, { scanId, index, ...(small ? { vault } : {}) });
    },

    async sendAll(scanId) {
      let sent = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
      for await (const rows of tables.pages(PlannedVaults, range)) {
        for (const row of rows) await claims.send(scanId, { index: indexOf(row.rowKey), vault: withoutKeys(row) });
        sent += rows.length;
      }
      return sent;
    },

    begin: (scanId, index) => mark(scanId, index, true),

    async putBack(scanId, index) {
      await mark(scanId, index, false);
    },

    keep(scanId, index) {
      // A renewal that fails needs no answer: at the worst the vault is given to another worker too, and written once.
      const timer = setInterval(() => {
        mark(scanId, index, true).catch(() => clearInterval(timer));
      }, RENEWAL_MS);
      return () => clearInterval(timer);
    },

    async claimed(scanId, index) {
      const row = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
      return row && withoutKeys(row);
    },

    async anyClaimed(scanId) {
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, pageSize: 1 };
      for await (const _ of tables.pages(PlannedVaults, { ...range, select: ["name"] })) return true;
      return false;
    },
  };
  return claims;
}
