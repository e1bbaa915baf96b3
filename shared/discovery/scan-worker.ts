import type * as z from "zod";
import { VaultBusy } from "../inventory/vault-claim.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import {
  doneKey,
  emptyTally,
  isHandedOff,
  type PlannedVault,
  PlannedVaults,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
  type VaultMessage,
  type VaultOutcome,
  VaultOutcomes,
} from "./scan.ts";
import type { ScanEnd } from "./scan-end.ts";
import { noChanges, type readVault, type VaultRead } from "./scan-vault.ts";
import { type Claim, type Claims, PLAN_WORKER, type Waiting } from "./vault-claims.ts";

/**
 * Vaults that one invocation scans at once, so that a scan of a few dozen vaults needs no second invocation. Workers mostly
 * wait for the cloud. More of them would exceed the processor of the smallest instance.
 */
export const VAULTS_AT_ONCE = 10;
/**
 * After this time the invocation continues with one worker. The other workers send a message each, which any instance can take.
 */
export const TOGETHER_MS = 15 * SECOND_MS;
/** How long one worker moves from vault to vault before it continues in a new message. */
const CHAIN_MS = 4 * MINUTE_MS;
/** How long the record of a running scan is cached. Workers use only members that do not change, such as its mode and deadline. */
const CACHE_MS = MINUTE_MS;
/** Maximum delay before a vault that another scan is writing is retried. */
const MAX_BUSY_SECONDS = 30;
/**
 * Vaults with 50 to 1,000 changed assets are written in the background while the worker reads the next vault. Fewer: the
 * overlap saves nothing. More: two vaults would not fit into 512 MB.
 */
const MIN_BACKGROUND_CHANGES = 50;
const MAX_BACKGROUND_CHANGES = 1_000;

/** How a worker moves through the vaults of a scan. */
interface Chain {
  /** The worker's name in the claims. Undefined if a message is sent for the next vault. */
  worker: string | undefined;
  /** Time in milliseconds since 1970 after which the worker continues in a new message. */
  until: number;
  /**
   * Returns the next waiting vault, if any. `taken` is true when the previously returned vault was claimed by another worker or
   * canceled.
   */
  next: (taken: boolean) => Promise<Waiting | undefined>;
}

/** For vaults after which no further vault is claimed. */
const NO_NEXT_VAULT: Pick<Chain, "worker" | "next"> = { worker: undefined, next: async () => undefined };

/** The write that runs in the background while the worker reads the next vault. `written` rejects if that write failed. */
interface BackgroundWrite {
  written: Promise<void>;
}

export interface WorkDeps {
  tables: Tables;
  claims: Claims;
  end: ScanEnd;
  /** Runs a re-scan that waits for a free worker, between two vaults. */
  between: (requestId: string) => Promise<void>;
  /** Starts a waiting re-scan when this worker finds no further vault. */
  workerFreed: () => Promise<void>;
  readVault: (planned: PlannedVault, options: Parameters<typeof readVault>[1]) => Promise<VaultRead>;
  clock: Clock;
  randomness: Randomness;
}

/** A scan whose plan is written, ready for its workers. */
export interface PlannedScan {
  scan: ScanRecord;
  /** Vaults that the invocation of the plan scans itself. */
  claims: Claim[];
  /** Vaults that are not claimed yet. */
  waiting: Waiting[];
}

/** The workers of a scan. The number of vaults read at once is the number of claims that are not handed off. */
export interface ScanWork {
  /**
   * Scans the vaults that the plan assigned to its own invocation. A small scan starts and ends here. After some seconds, the
   * remaining vaults continue in messages.
   */
  scanPlanned(planned: PlannedScan): Promise<void>;
  /**
   * Scans claimed vaults one after the other for some minutes, because each queue message costs a polling delay. The message
   * contains the index of the first vault. Finishing a vault and claiming the next one are one transaction, so a vault is finished exactly
   * once, however often the message is delivered. The worker that finds no vault left ends the scan.
   *
   * @param delivery - 1 for the message's first delivery. A later delivery follows a crash or failure, so the vaults that the
   * failed worker had claimed are read again.
   */
  scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void>;
  /** Handles the message of a vault that failed five times: records the vault as failed, and continues the scan. */
  vaultFailed(scanId: string, index: string): Promise<void>;
}

export function createScanWork(deps: WorkDeps): ScanWork {
  const { tables, claims, end, readVault, clock, randomness } = deps;

  async function scanPlanned({ scan, claims: claimed, waiting }: PlannedScan): Promise<void> {
    const { scanId } = scan;
    const startedAt = clock.now().getTime();
    cacheScan(scan);
    // Waiting rows are only ever removed. So the rows in memory are complete until another worker claims one of them.
    let shared = false;
    const next = async (taken: boolean) => {
      shared ||= taken;
      return shared ? await claims.waiting(scan) : waiting.shift();
    };
    const results = await Promise.allSettled(
      claimed.map((claim, at) =>
        scanChain(scanId, claim, { worker: PLAN_WORKER, until: startedAt + (at === 0 ? CHAIN_MS : TOGETHER_MS), next }),
      ),
    );
    const failed = results.find((one) => one.status === "rejected");
    // The redelivered message sends new messages for the vaults in progress.
    if (failed) throw failed.reason;
    await finishWhenLast(scanId);
  }

  async function scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void> {
    const { scanId } = message;
    const until = clock.now().getTime() + CHAIN_MS;
    const first = await firstClaim(message, delivery);
    if (!first) return;
    const next = async () => {
      const scan = isHandedOff(first.rowKey) ? undefined : await runningScan(scanId);
      return scan && (await claims.waiting(scan));
    };
    await scanChain(scanId, first, { worker: message.index, until, next });
    // Needed also when the worker continued in a message: the background write may have finished the last vault.
    await finishWhenLast(scanId);
  }

  async function firstClaim(
    { scanId, index }: z.infer<typeof VaultMessage>,
    delivery: number,
  ): Promise<Claim | undefined> {
    const row = await claims.claimed(scanId, index);
    if (!row) {
      // The vault is done: the message's worker crashed or failed at a later vault, or this is a duplicate delivery.
      if (delivery > 1) await claims.resendClaimed(scanId, index);
      await finishWhenLast(scanId);
      return undefined;
    }
    const mine = delivery > 1 && (row.worker === undefined || row.worker === index);
    if (row.begun && !mine) return undefined;
    // The crashed worker had claimed a second vault.
    if (mine && isHandedOff(row.rowKey)) await claims.resendClaimed(scanId, index, index);
    if (!(await claims.start(scanId, row, index))) return undefined;
    return { index, rowKey: row.rowKey, vault: { ...withoutKeys(row), begun: true, worker: index } };
  }

  /**
   * Scans one vault after the other until none is left, the time is over, or the scan has ended. Then waits for the background
   * write.
   */
  async function scanChain(scanId: string, first: Claim, chain: Chain): Promise<void> {
    const background: BackgroundWrite = { written: Promise.resolve() };
    try {
      await runChain(scanId, first, chain, background);
    } finally {
      await background.written;
    }
  }

  async function runChain(scanId: string, first: Claim, chain: Chain, background: BackgroundWrite): Promise<void> {
    for (let work = first; ; ) {
      const scan = await runningScan(scanId);
      if (!scan) return;
      await withHeartbeat(scanId, work, () => deps.between(scan.requestId));
      const next = await scanClaimed(scan, work, chain, background);
      if (next === "noneLeft") await deps.workerFreed();
      if (typeof next === "string") return;
      work = next;
      if (clock.now().getTime() < chain.until) continue;
      await claims.release(scanId, work.rowKey);
      await claims.send(scanId, work.index);
      return;
    }
  }

  /** Scans one vault and claims the next one. A vault that is handed off is read here and written in the background. */
  async function scanClaimed(
    scan: ScanRecord,
    claim: Claim,
    chain: Chain,
    background: BackgroundWrite,
  ): Promise<Claim | "noneLeft" | "continuedElsewhere"> {
    const { index, vault } = claim;
    const next = await requeueIfBusy(scan, claim, async () => {
      const read = vault.action === "fail" ? noChanges(unreadable(vault)) : await readInTime(scan, index, vault);
      await background.written;
      if (read.changes < MIN_BACKGROUND_CHANGES || read.changes > MAX_BACKGROUND_CHANGES) {
        return await endVault(scan, claim, await read.write(), chain);
      }
      const { handedOff, operations } = claims.handOff(claim);
      const another = await claimNext(scan, claim, chain, { withNext: operations });
      if (another === "continuedElsewhere") return another;
      if (another === "noneLeft") return await endVault(scan, claim, await read.write(), NO_NEXT_VAULT);
      background.written = writeInBackground(scan, handedOff, read);
      // The rejection is handled when `written` is awaited after the next read. Without this handler it would end the process.
      background.written.catch(() => {});
      return another;
    });
    return next ?? "continuedElsewhere";
  }

  /** Writes a vault that was handed off. A failure of the cloud does not stop the chain; a failure of storage does. */
  async function writeInBackground(scan: ScanRecord, claim: Claim, read: VaultRead): Promise<void> {
    await requeueIfBusy(scan, claim, async () => {
      await endVault(scan, claim, await read.write(), NO_NEXT_VAULT);
    });
  }

  /** Renews the lease of a vault during the work. If another scan is writing the vault, requeues it and returns undefined. */
  async function requeueIfBusy<T>(
    { scanId }: ScanRecord,
    claim: Claim,
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    try {
      return await withHeartbeat(scanId, claim, work);
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // The heartbeat has stopped by now. A renewal after the release would make the new message's worker ignore the vault.
      await requeue(scanId, claim, error);
      return undefined;
    }
  }

  /** Releases the vault and sends a new, delayed message. Throwing instead would count as a failed delivery. */
  async function requeue(scanId: string, { index, rowKey }: Claim, { waitMs }: VaultBusy): Promise<void> {
    const delaySeconds = Math.min(Math.max(1, Math.ceil(waitMs / SECOND_MS)), MAX_BUSY_SECONDS);
    await claims.release(scanId, rowKey);
    await claims.send(scanId, index, { delaySeconds });
  }

  /** Renews the lease of a vault during the work. */
  async function withHeartbeat<T>(scanId: string, { rowKey }: Claim, work: () => Promise<T>): Promise<T> {
    const stopHeartbeat = claims.startHeartbeat(scanId, rowKey);
    try {
      return await work();
    } finally {
      await stopHeartbeat();
    }
  }

  async function readInTime(scan: ScanRecord, index: string, vault: PlannedVault): Promise<VaultRead> {
    const now = clock.now();
    return await readVault(vault, {
      mode: scan.mode,
      scheduled: scan.trigger === "schedule",
      owner: `${scan.scanId}/${index}/${randomness.ulid(now)}`,
      signal: AbortSignal.timeout(Math.max(1, Date.parse(scan.deadline!) - now.getTime())),
    });
  }

  /** Running scans by id, cached for a minute. */
  const cache = new Map<string, { scan: ScanRecord; until: number }>();
  async function runningScan(scanId: string): Promise<ScanRecord | undefined> {
    const cached = cache.get(scanId);
    if (cached && cached.until > clock.now().getTime()) return cached.scan;
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (scan?.status !== "running") return undefined;
    cacheScan(scan);
    return scan;
  }

  function cacheScan(scan: ScanRecord): void {
    const now = clock.now().getTime();
    for (const [id, { until }] of cache) if (until <= now) cache.delete(id);
    cache.set(scan.scanId, { scan, until: now + CACHE_MS });
  }

  /** Records the outcome and claims the next vault in one transaction. */
  const endVault = (
    scan: ScanRecord,
    claim: Pick<Claim, "index" | "rowKey">,
    outcome: VaultOutcome,
    chain: Pick<Chain, "worker" | "next">,
  ) =>
    claimNext(scan, claim, chain, {
      always: [remove(PlannedVaults, claim.rowKey), insert(VaultOutcomes, doneKey(claim.index), outcome)],
    });

  /**
   * Claims the next vault in one transaction with the given operations on this vault's row. Removing that row ensures that only
   * one of two workers of the same vault succeeds.
   *
   * @param own - `always`: written whether or not another vault is left. `withNext`: written only if one is left.
   * @returns `continuedElsewhere` if another worker of this vault was faster.
   */
  async function claimNext(
    scan: ScanRecord,
    { rowKey }: Pick<Claim, "rowKey">,
    { worker, next }: Pick<Chain, "worker" | "next">,
    own: { always: Operation[] } | { withNext: Operation[] },
  ): Promise<Claim | "noneLeft" | "continuedElsewhere"> {
    const { scanId } = scan;
    for (let taken = false; ; taken = true) {
      const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
      const waiting = inTime ? await next(taken) : undefined;
      const claim = waiting && claims.take(waiting, worker);
      if (!claim && "withNext" in own) return "noneLeft";
      const operations = "always" in own ? own.always : own.withNext;
      try {
        await tables.transaction(PlannedVaults.table, scanPartition(scanId), [
          ...operations,
          ...(claim?.operations ?? []),
        ]);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Either another worker of this vault was faster and continues, or another worker claimed the next vault.
        if (!(await claims.exists(scanId, rowKey))) return "continuedElsewhere";
        continue;
      }
      return claim ?? "noneLeft";
    }
  }

  async function finishWhenLast(scanId: string): Promise<void> {
    if (!(await claims.hasClaimed(scanId))) await end.finish(scanId);
  }

  /** The outcome of a vault whose description could not be read. Its stored assets stay. */
  function unreadable(vault: PlannedVault): VaultOutcome {
    return failed(vault, vault.failure ?? internalFailure(clock, "The vault's description could not be read."));
  }

  async function vaultFailed(scanId: string, index: string): Promise<void> {
    const scan = await runningScan(scanId);
    if (!scan) return;
    const vault = await claims.claimed(scanId, index);
    if (vault) {
      const failure = internalFailure(clock, "The vault could not be written to the inventory, in five tries.");
      // The next vault is claimed in this worker's name, so that the watch resends it soon if this worker crashes.
      const chain = isHandedOff(vault.rowKey) ? NO_NEXT_VAULT : { worker: index, next: () => claims.waiting(scan) };
      const next = await endVault(scan, { index, rowKey: vault.rowKey }, failed(vault, failure), chain);
      if (next === "continuedElsewhere") return;
    }
    if ((await claims.resendClaimed(scanId, index)) === 0) await end.finish(scanId);
  }

  return { scanPlanned, scanVaults, vaultFailed };
}

function failed(vault: PlannedVault, failure: NonNullable<PlannedVault["failure"]>): VaultOutcome {
  return {
    vaultName: vault.name,
    subscriptionId: vault.subscriptionId,
    outcome: "failed",
    failures: [{ list: "vault", ...failure }],
    tally: emptyTally(),
    added: [],
    updated: [],
    removed: [],
    finishedAt: failure.at,
  };
}

/** Returns the record of a failure of this service itself after five attempts. `message` says which operation failed. */
export const internalFailure = (clock: Clock, message: string) => ({
  code: "internal",
  message,
  remedy: "Find the scan ID in the logs, fix the cause, and start another scan.",
  at: clock.now().toISOString(),
});
