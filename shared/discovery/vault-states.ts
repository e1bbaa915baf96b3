import { insert, merge, type Operation, remove } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import {
  claimedKey,
  doneKey,
  handedOffKey,
  isHandedOff,
  type PlannedVault,
  PlannedVaults,
  type VaultOutcome,
  VaultOutcomes,
  WAITING,
  waitingKey,
} from "./scan.ts";

/**
 * States of a vault of a scan: pure functions of its row, for plan.ts, vault-claims.ts, scan-worker.ts and scan-watch.ts.
 *
 * The state (`vaultState`) is the prefix of the row's key, and `begun`. A vault that is handed off has the prefix `2~` instead of
 * `2!`, in the same states: it was read, and is written while its worker has claimed another vault. An event is rejected in any
 * state for which this table has no row.
 *
 * | state | row | event | next state | written |
 * |---|---|---|---|---|
 * | `waiting` | `1!` | claimed by a worker | `scanning` | worker |
 * | `waiting` | `1!` | claimed for a message | `queued` | |
 * | `queued` | `2!`, `2~`, not `begun` | started | `scanning` | worker of the message |
 * | `scanning` | `2!`, `2~`, `begun` | started by the redelivered message of its worker, which crashed | `scanning` | the row's age starts again |
 * | `scanning` | `2!` | handedOff | `scanning` | prefix `2~`; in the same transaction the worker claims another vault |
 * | `scanning`, `queued` | | renewed | `scanning` | the row's age starts again |
 * | `scanning`, `queued` | | released | `queued` | a message is sent |
 * | `scanning`, `queued` | | workerFailed, by this worker; `queued` without a worker: by the scan's first message | `queued` | a message is sent |
 * | `scanning`, not renewed for `LEASE_MS` | | watched | `queued` | a message is sent |
 * | `queued`, unchanged for `LOST_MESSAGE_MS` | | watched | `queued` | a message is sent; the row's age starts again |
 * | `scanning`, `queued` | | ended | `done` | prefix `3!`, the outcome; mostly the worker claims another vault in the same transaction |
 *
 * Workers write `renewed`, `released`, `handedOff` and `ended` without the row's ETag. So a late worker can change the state of a
 * vault that another worker has started. Both then scan the vault, but only one of them moves the row to another key, and the
 * other one stops (`continuedElsewhere`).
 */
export type VaultEvent =
  /** `worker`: undefined if a message is sent for the vault. */
  | { type: "claimed"; worker: string | undefined }
  | { type: "started"; worker: string; redelivered: boolean }
  | { type: "renewed" | "released" | "handedOff" | "ended" }
  | { type: "workerFailed"; worker: string }
  | { type: "watched"; ageMs: number };

/** A vault of a scan's plan. */
export interface ScanVault {
  /** Position in the plan, six digits. */
  index: string;
  /** Key of the vault's row in the scan's partition. */
  rowKey: string;
  vault: PlannedVault;
}

/** Worker name in the claims of vaults that the planning invocation scans itself. */
export const PLAN_WORKER = "plan";

/**
 * If a claim's row is not renewed for this time (three missed renewals), its worker has crashed. Also the minimum age of a
 * scan's row before its messages are checked.
 */
export const LEASE_MS = 60 * SECOND_MS;
/**
 * If no worker has started a claimed vault after this time, the vault's message is lost. The platform redelivers the message of
 * a crashed process after ten minutes.
 */
export const LOST_MESSAGE_MS = 11 * MINUTE_MS;

export function vaultState({ index, rowKey, vault }: ScanVault): "waiting" | "queued" | "scanning" | "done" {
  if (rowKey.startsWith(WAITING)) return "waiting";
  if (rowKey === doneKey(index)) return "done";
  return vault.begun ? "scanning" : "queued";
}

/** Returns a vault of a new plan. */
export const plannedVault = (index: string, vault: PlannedVault): ScanVault => ({
  index,
  rowKey: waitingKey(index),
  vault,
});

/** Returns the vault after an event; undefined if the event is rejected. */
export function nextVault<V extends ScanVault>(before: V, event: VaultEvent): V | undefined {
  const state = vaultState(before);
  const { index, rowKey, vault } = before;
  if (event.type === "claimed") {
    if (state !== "waiting") return undefined;
    const { worker } = event;
    return {
      ...before,
      rowKey: claimedKey(index),
      vault: { ...vault, begun: worker !== undefined, ...(worker && { worker }) },
    };
  }
  if (state !== "queued" && state !== "scanning") return undefined;
  const queued = { ...before, vault: { ...vault, begun: false } };
  const { worker } = vault;
  switch (event.type) {
    case "started": {
      // A scanned vault is started again only if the worker of the redelivered message scanned it, or its row names no worker.
      // Otherwise this is a duplicate delivery, or another worker scans the vault.
      const isOwn = worker === undefined || worker === event.worker;
      if (state === "scanning" && !(event.redelivered && isOwn)) return undefined;
      return { ...before, vault: { ...vault, begun: true, worker: event.worker } };
    }
    case "renewed":
      return { ...before, vault: { ...vault, begun: true } };
    case "released":
      return queued;
    case "workerFailed": {
      // No worker has started the vault yet. The scan's first message is responsible for it.
      const isUnstarted = worker === undefined && state === "queued";
      return event.worker === (isUnstarted ? PLAN_WORKER : worker) ? queued : undefined;
    }
    case "watched":
      return event.ageMs < (state === "scanning" ? LEASE_MS : LOST_MESSAGE_MS) ? undefined : queued;
    case "handedOff":
      return state === "queued" || isHandedOff(rowKey) ? undefined : { ...before, rowKey: handedOffKey(index) };
    case "ended":
      return { ...before, rowKey: doneKey(index) };
  }
}

/** Returns the members that an event changed in a row that keeps its key. `worker` only if it changed. */
export const changesOf = (before: ScanVault, after: ScanVault): Partial<PlannedVault> => ({
  begun: after.vault.begun === true,
  ...(after.vault.worker !== before.vault.worker && { worker: after.vault.worker }),
});

/**
 * Returns the operations that write a vault's next state.
 *
 * @param etag - Required ETag of the vault's row.
 */
export function vaultOperations(before: ScanVault, after: ScanVault, etag?: string): Operation[] {
  return before.rowKey === after.rowKey
    ? [merge(PlannedVaults, before.rowKey, changesOf(before, after), etag)]
    : [remove(PlannedVaults, before.rowKey, etag), insert(PlannedVaults, after.rowKey, after.vault)];
}

/** Returns the operations that end a vault. They fail if another worker has ended it, or handed it off. */
export const endOperations = (vault: ScanVault, outcome: VaultOutcome): Operation[] => [
  remove(PlannedVaults, vault.rowKey),
  insert(VaultOutcomes, nextVault(vault, { type: "ended" })!.rowKey, outcome),
];
