/**
 * The workers of a scan. A worker claims a vault, reads it, writes it and claims the next one, for some minutes (a "chain"). It
 * hands a vault with many changes off: the vault is then written in the background while the worker reads the next one.
 */
import type * as z from "zod";
import { VaultBusy } from "../inventory/vault-claim.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Operation, Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import {
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
} from "./scan.ts";
import type { ScanEnd } from "./scan-end.ts";
import { noChanges, type readVault, type VaultRead } from "./scan-vault.ts";
import type { Claims, StoredVault } from "./vault-claims.ts";
import { endOperations, nextVault, PLAN_WORKER, type ScanVault, vaultOperations } from "./vault-states.ts";

/**
 * Number of vaults that one invocation scans at the same time, so that a scan of a few dozen vaults needs no second invocation.
 * Workers mostly wait for the cloud. More of them would overload the processor of the smallest instance.
 */
export const MAX_CONCURRENT_VAULTS = 10;
/**
 * After this time the invocation continues with one worker. The other workers send one message each, which any instance can
 * take.
 */
export const CONCURRENT_PHASE_MS = 15 * SECOND_MS;
/** After this time, a worker continues in a new message. */
const MAX_CHAIN_MS = 4 * MINUTE_MS;
/**
 * Time for which the record of a running scan is cached. Workers use only members that don't change, such as mode and deadline.
 */
const CACHE_MS = MINUTE_MS;
/** Maximum delay before a vault that another scan is writing is retried. */
const MAX_BUSY_DELAY_SECONDS = 30;
/**
 * Vaults with 50 to 1,000 changed assets are written in the background while the worker reads the next vault. Fewer: the
 * overlap saves nothing. More: two vaults would not fit into 512 MB.
 */
const MIN_BACKGROUND_CHANGES = 50;
const MAX_BACKGROUND_CHANGES = 1_000;

/** How a worker moves through the vaults of a scan. */
interface Chain {
  /** The worker's name in the claims. Undefined for a chain that claims no next vault. */
  worker: string | undefined;
  /** Time in milliseconds since 1970 after which the worker continues in a new message. */
  until: number;
  /**
   * Returns the next waiting vault, if any. `wasTaken` is true if another worker claimed the previously returned vault, or if
   * the scan was canceled.
   */
  next: (wasTaken: boolean) => Promise<StoredVault | undefined>;
}

/** A chain that ends after its vault. */
const NO_NEXT_VAULT: Pick<Chain, "worker" | "next"> = { worker: undefined, next: async () => undefined };

/** The write that runs in the background while the worker reads the next vault. `written` rejects if the write fails. */
interface BackgroundWrite {
  written: Promise<void>;
}

export interface WorkDeps {
  tables: Tables;
  claims: Claims;
  end: ScanEnd;
  /** Runs a re-scan that waits for a free worker, between two vaults. */
  runWaitingRescan: (requestId: string) => Promise<void>;
  /** Starts a waiting re-scan when this worker finds no further vault. */
  onWorkerFreed: () => Promise<void>;
  readVault: (planned: PlannedVault, options: Parameters<typeof readVault>[1]) => Promise<VaultRead>;
  clock: Clock;
  randomness: Randomness;
}

/** A scan whose plan is written, ready for its workers. */
export interface PlannedScan {
  scan: ScanRecord;
  /** Vaults that the invocation of the plan scans itself. */
  claims: ScanVault[];
  /** Vaults that are not claimed yet. */
  waiting: StoredVault[];
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
   * contains the index of the first vault. Finishing a vault and claiming the next one are one transaction, so a vault is
   * finished exactly once, however often the message is delivered. The worker that finds no vault left ends the scan.
   *
   * @param delivery - 1 for the message's first delivery. A later delivery follows a crash or failure, so the vaults that the
   * failed worker had claimed are read again.
   */
  scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void>;
  /** Handles the message of a vault that failed five times: records the vault as failed, and continues the scan. */
  vaultFailed(scanId: string, index: string): Promise<void>;
}

/** Dependencies of the steps of a worker. */
type Work = WorkDeps & { runningScans: ReturnType<typeof createRunningScans> };

export function createScanWork(deps: WorkDeps): ScanWork {
  const work: Work = { ...deps, runningScans: createRunningScans(deps.tables, deps.clock) };
  return {
    scanPlanned: (planned) => scanPlanned(work, planned),
    scanVaults: (message, delivery) => scanVaults(work, message, delivery),
    vaultFailed: (scanId, index) => vaultFailed(work, scanId, index),
  };
}

/** The vault that a worker has claimed next. `continuedElsewhere`: another worker has this worker's vault. */
type Next = ScanVault | "noneLeft" | "continuedElsewhere";

async function scanPlanned(deps: Work, { scan, claims: claimed, waiting }: PlannedScan): Promise<void> {
  const { scanId } = scan;
  const startedAt = deps.clock.now().getTime();
  deps.runningScans.add(scan);
  // Waiting rows are only removed, not added. So the list in memory is correct until another worker claims one of them.
  let hasOtherWorkers = false;
  const next = async (wasTaken: boolean) => {
    hasOtherWorkers ||= wasTaken;
    return hasOtherWorkers ? await deps.claims.findWaiting(scan) : waiting.shift();
  };
  const results = await Promise.allSettled(
    claimed.map((claim, index) =>
      scanChain(deps, scanId, claim, {
        worker: PLAN_WORKER,
        until: startedAt + (index === 0 ? MAX_CHAIN_MS : CONCURRENT_PHASE_MS),
        next,
      }),
    ),
  );
  const failed = results.find((one) => one.status === "rejected");
  // The message is redelivered, and its handler sends messages for the vaults that are still claimed.
  if (failed) throw failed.reason;
  await finishIfLast(deps, scanId);
}

async function scanVaults(deps: Work, message: z.infer<typeof VaultMessage>, delivery: number): Promise<void> {
  const { scanId } = message;
  const until = deps.clock.now().getTime() + MAX_CHAIN_MS;
  const firstVault = await startFirstVault(deps, message, delivery);
  if (!firstVault) return;
  // The worker that handed this vault off claimed a second one. The chain continues there, in that worker or in a message. So
  // a handed-off vault has no next one here.
  const next = async () => {
    const scan = isHandedOff(firstVault.rowKey) ? undefined : await deps.runningScans.read(scanId);
    return scan && (await deps.claims.findWaiting(scan));
  };
  await scanChain(deps, scanId, firstVault, { worker: message.index, until, next });
  // Also needed if the worker continued in a message, because its background write may have finished the last vault.
  await finishIfLast(deps, scanId);
}

async function startFirstVault(
  deps: Work,
  { scanId, index }: z.infer<typeof VaultMessage>,
  delivery: number,
): Promise<ScanVault | undefined> {
  const row = await deps.claims.readClaimed(scanId, index);
  if (!row) {
    // The vault is done. The message's worker crashed or failed at a later vault, or this is a duplicate delivery.
    if (delivery > 1) await deps.claims.resendClaimed(scanId, index);
    await finishIfLast(deps, scanId);
    return undefined;
  }
  const isRedelivered = delivery > 1;
  if (!nextVault(row, { type: "started", worker: index, redelivered: isRedelivered })) return undefined;
  // The crashed worker had handed this vault off and claimed a second one, which needs a message.
  if (isRedelivered && isHandedOff(row.rowKey)) await deps.claims.resendClaimed(scanId, index, { exceptIndex: index });
  return await deps.claims.start(scanId, row, index, isRedelivered);
}

/**
 * Scans one vault after the other until none is left, the worker's time is over, or the scan has ended. Then waits for the
 * background write.
 */
async function scanChain(deps: Work, scanId: string, firstVault: ScanVault, chain: Chain): Promise<void> {
  const background: BackgroundWrite = { written: Promise.resolve() };
  try {
    await runChain(deps, scanId, firstVault, chain, background);
  } finally {
    await background.written;
  }
}

async function runChain(
  deps: Work,
  scanId: string,
  firstVault: ScanVault,
  chain: Chain,
  background: BackgroundWrite,
): Promise<void> {
  for (let currentClaim = firstVault; ; ) {
    const scan = await deps.runningScans.read(scanId);
    if (!scan) return;
    await withHeartbeat(deps, scanId, currentClaim, () => deps.runWaitingRescan(scan.requestId));
    const next = await scanClaimed(deps, scan, currentClaim, chain, background);
    if (next === "noneLeft") await deps.onWorkerFreed();
    if (typeof next === "string") return;
    currentClaim = next;
    if (deps.clock.now().getTime() < chain.until) continue;
    await deps.claims.release(scanId, currentClaim);
    await deps.claims.send(scanId, currentClaim.index);
    return;
  }
}

/** Scans one vault and claims the next one. Writes a vault with many changes in the background. */
async function scanClaimed(
  deps: Work,
  scan: ScanRecord,
  claim: ScanVault,
  chain: Chain,
  background: BackgroundWrite,
): Promise<Next> {
  const { index, vault } = claim;
  const next = await requeueIfBusy(deps, scan, claim, async () => {
    const read =
      vault.action === "fail"
        ? noChanges(unreadableOutcome(vault, deps.clock))
        : await readInTime(deps, scan, index, vault);
    // At most one vault is in the background, so that at most two are in memory.
    await background.written;
    // Undefined if the vault was handed off before, and this is its own message.
    const handedOff = nextVault(claim, { type: "handedOff" });
    if (!handedOff || read.changes < MIN_BACKGROUND_CHANGES || read.changes > MAX_BACKGROUND_CHANGES) {
      return await endVault(deps, scan, claim, await read.write(), chain);
    }
    const nextClaim = await claimNext(deps, scan, claim, chain, { withNext: vaultOperations(claim, handedOff) });
    if (nextClaim === "continuedElsewhere") return nextClaim;
    if (nextClaim === "noneLeft") return await endVault(deps, scan, claim, await read.write(), NO_NEXT_VAULT);
    background.written = writeInBackground(deps, scan, handedOff, read);
    // A rejection is thrown where `written` is awaited, after the next read. Without this handler it would end the process
    // before.
    background.written.catch(() => {});
    return nextClaim;
  });
  return next ?? "continuedElsewhere";
}

/** Writes a vault that was handed off. If another worker writes the vault, requeues it. An error of storage is thrown. */
async function writeInBackground(deps: Work, scan: ScanRecord, claim: ScanVault, read: VaultRead): Promise<void> {
  await requeueIfBusy(deps, scan, claim, async () => {
    await endVault(deps, scan, claim, await read.write(), NO_NEXT_VAULT);
  });
}

/** Renews the lease of a vault during the work. If another scan is writing the vault, requeues it and returns undefined. */
async function requeueIfBusy<T>(
  deps: Work,
  { scanId }: ScanRecord,
  claim: ScanVault,
  work: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await withHeartbeat(deps, scanId, claim, work);
  } catch (error) {
    if (!(error instanceof VaultBusy)) throw error;
    // The renewals have stopped. A renewal after the release would make the worker of the new message ignore the vault.
    await requeue(deps, scanId, claim, error);
    return undefined;
  }
}

/** Releases the vault and sends a new, delayed message. Throwing instead would count as a failed delivery. */
async function requeue(deps: Work, scanId: string, claim: ScanVault, { waitMs }: VaultBusy): Promise<void> {
  const delaySeconds = Math.min(Math.max(1, Math.ceil(waitMs / SECOND_MS)), MAX_BUSY_DELAY_SECONDS);
  await deps.claims.release(scanId, claim);
  await deps.claims.send(scanId, claim.index, { delaySeconds });
}

/** Renews the lease of a vault during the work. */
async function withHeartbeat<T>(deps: Work, scanId: string, claim: ScanVault, work: () => Promise<T>): Promise<T> {
  const stopHeartbeat = deps.claims.startHeartbeat(scanId, claim);
  try {
    return await work();
  } finally {
    await stopHeartbeat();
  }
}

async function readInTime(deps: Work, scan: ScanRecord, index: string, vault: PlannedVault): Promise<VaultRead> {
  const now = deps.clock.now();
  return await deps.readVault(vault, {
    mode: scan.mode,
    scheduled: scan.trigger === "schedule",
    workerId: `${scan.scanId}/${index}/${deps.randomness.ulid(now)}`,
    signal: AbortSignal.timeout(Math.max(1, Date.parse(scan.deadline!) - now.getTime())),
  });
}

/** Records the outcome and claims the next vault in one transaction. */
async function endVault(
  deps: Work,
  scan: ScanRecord,
  claim: ScanVault,
  outcome: VaultOutcome,
  chain: Pick<Chain, "worker" | "next">,
): Promise<Next> {
  return await claimNext(deps, scan, claim, chain, { always: endOperations(claim, outcome) });
}

/**
 * Claims the next vault in one transaction with operations on this vault's row. They remove that row, so that only one of two
 * workers of the same vault succeeds.
 *
 * @param operationsOfVault - `always`: written whether or not another vault is left. `withNext`: written only if one is left.
 * @returns `continuedElsewhere` if another worker of this vault was faster.
 */
async function claimNext(
  deps: Work,
  scan: ScanRecord,
  { rowKey }: Pick<ScanVault, "rowKey">,
  { worker, next }: Pick<Chain, "worker" | "next">,
  operationsOfVault: { always: Operation[] } | { withNext: Operation[] },
): Promise<Next> {
  const { scanId } = scan;
  for (let wasTaken = false; ; wasTaken = true) {
    const isBeforeDeadline = scan.deadline !== undefined && deps.clock.now().toISOString() < scan.deadline;
    const waiting = isBeforeDeadline ? await next(wasTaken) : undefined;
    const claim: ScanVault | undefined = waiting && nextVault(waiting, { type: "claimed", worker });
    if (!claim && "withNext" in operationsOfVault) return "noneLeft";
    const operations = "always" in operationsOfVault ? operationsOfVault.always : operationsOfVault.withNext;
    try {
      await deps.tables.transaction(PlannedVaults.table, scanPartition(scanId), [
        ...operations,
        ...(waiting && claim ? vaultOperations(waiting, claim, waiting.etag) : []),
      ]);
    } catch (error) {
      if (!isConflict(error)) throw error;
      // Another worker of this vault has finished it and continues, or another worker has claimed the next vault.
      if (!(await deps.claims.exists(scanId, rowKey))) return "continuedElsewhere";
      continue;
    }
    return claim ?? "noneLeft";
  }
}

async function finishIfLast(deps: Work, scanId: string): Promise<void> {
  if (!(await deps.claims.hasClaimed(scanId))) await deps.end.finish(scanId);
}

/** Returns the outcome of a vault whose description could not be read. Its stored assets stay. */
function unreadableOutcome(vault: PlannedVault, clock: Clock): VaultOutcome {
  return failedOutcome(vault, vault.failure ?? internalFailure(clock, "The vault's description could not be read."));
}

async function vaultFailed(deps: Work, scanId: string, index: string): Promise<void> {
  const scan = await deps.runningScans.read(scanId);
  if (!scan) return;
  const claim = await deps.claims.readClaimed(scanId, index);
  if (claim) {
    const failure = internalFailure(deps.clock, "The vault could not be written to the inventory in five attempts.");
    // The next vault is claimed as started by this worker. So if this worker crashes, the timer
    // of scan-watch.ts finds the vault after a minute.
    const chain = isHandedOff(claim.rowKey)
      ? NO_NEXT_VAULT
      : { worker: index, next: () => deps.claims.findWaiting(scan) };
    const next = await endVault(deps, scan, claim, failedOutcome(claim.vault, failure), chain);
    if (next === "continuedElsewhere") return;
  }
  if ((await deps.claims.resendClaimed(scanId, index)) === 0) await deps.end.finish(scanId);
}

/** Caches running scans for a minute, so that a worker does not read the scan's row before each vault. */
function createRunningScans(tables: Tables, clock: Clock) {
  const cache = new Map<string, { scan: ScanRecord; until: number }>();

  function add(scan: ScanRecord): void {
    const now = clock.now().getTime();
    for (const [id, { until }] of cache) if (until <= now) cache.delete(id);
    cache.set(scan.scanId, { scan, until: now + CACHE_MS });
  }

  return {
    add,
    /** Returns the scan, or undefined if it has ended or does not exist. */
    async read(scanId: string): Promise<ScanRecord | undefined> {
      const cached = cache.get(scanId);
      if (cached && cached.until > clock.now().getTime()) return cached.scan;
      const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
      if (scan?.status !== "running") return undefined;
      add(scan);
      return scan;
    },
  };
}

function failedOutcome(vault: PlannedVault, failure: NonNullable<PlannedVault["failure"]>): VaultOutcome {
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
