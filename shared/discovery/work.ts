import type * as z from "zod";
import { VaultBusy } from "../inventory/claim.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict } from "../storage/conflict.ts";
import { withoutKeys } from "../storage/entity.ts";
import { insert, remove, type Tables } from "../storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import { type Claim, type Claims, PLAN_WORKER, type Waiting } from "./claims.ts";
import type { ScanEnd } from "./end.ts";
import {
  claimedKey,
  doneKey,
  emptyTally,
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
import type { scanVault } from "./scan-vault.ts";

/**
 * Vaults that one invocation has in hand at once, so that a scan of a few dozen needs no second one. It is mostly waiting
 * for the cloud; more of them fill neither the processor of the smallest instance better nor its memory with less.
 */
export const VAULTS_AT_ONCE = 10;
/** After so long that invocation hands on its vaults but the first's, each to a message, which any instance takes. */
export const TOGETHER_MS = 15 * SECOND_MS;
/** How long one worker goes from vault to vault before it hands on to a new message. */
const CHAIN_MS = 4 * MINUTE_MS;
/** How long the mode and deadline of a running scan are remembered. */
const REMEMBERED_MS = MINUTE_MS;
/** The longest wait for another worker of the same vault before it is tried again. */
const LONGEST_BUSY_SECONDS = 30;

/** How a worker goes from vault to vault. */
interface Chain {
  /** Its name in the claims; undefined where a message is sent for the next vault. */
  worker: string | undefined;
  /** Milliseconds since 1970 when it hands on to a message. */
  until: number;
  /** The next vault to claim, if any waits. `taken`: another took the one before, or a cancellation did. */
  next: (taken: boolean) => Promise<Waiting | undefined>;
}

export interface WorkDeps {
  tables: Tables;
  claims: Claims;
  end: ScanEnd;
  /** Does what waits for a free worker, between two vaults. */
  between: (requestId: string) => Promise<void>;
  /** Has what waits for a free worker begun, when no vault is left for this one. */
  workerFreed: () => Promise<void>;
  scanVault: (planned: PlannedVault, options: Parameters<typeof scanVault>[1]) => ReturnType<typeof scanVault>;
  clock: Clock;
  randomness: Randomness;
}

/** A scan that begins to run. */
export interface PlannedScan {
  scan: ScanRecord;
  /** The vaults that the plan's invocation has in hand. */
  claims: Claim[];
  /** Those that nobody has claimed. */
  waiting: Waiting[];
}

/** The work on a scan's vaults. How many are scanned at once is how many are claimed. */
export interface ScanWork {
  /**
   * Scans what a plan left to its own invocation: a small scan begins and ends in it. What is left after some seconds goes
   * on in messages.
   */
  scanPlanned(planned: PlannedScan): Promise<void>;
  /**
   * Scans claimed vaults one after the other, for some minutes: each hop over the queue would cost a wait for its polling.
   * The message names the first one. Whoever ends a vault claims the next in the same transaction, so however often a
   * message comes, a vault ends exactly once; whoever finds none left ends the scan.
   *
   * @param delivery - 1 for the message's first delivery. A later one follows a worker that died or failed, so what it had
   * in hand is read.
   */
  scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void>;
  /** Ends a vault whose message failed for good: its failure is its outcome, and the scan goes on. */
  vaultFailed(scanId: string, index: string): Promise<void>;
}

export function createScanWork(deps: WorkDeps): ScanWork {
  const { tables, claims, end, scanVault, clock, randomness } = deps;

  async function scanPlanned({ scan, claims: claimed, waiting }: PlannedScan): Promise<void> {
    const { scanId } = scan;
    const begun = clock.now().getTime();
    remember(scan);
    // Nothing is ever added to what waits, so nothing of it is read again until somebody else takes of it.
    let shared = false;
    const next = async (taken: boolean) => {
      shared ||= taken;
      return shared ? await claims.waiting(scan) : waiting.shift();
    };
    const ends = await Promise.allSettled(
      claimed.map((claim, at) =>
        scanOn(scanId, claim, { worker: PLAN_WORKER, until: begun + (at === 0 ? CHAIN_MS : TOGETHER_MS), next }),
      ),
    );
    const failed = ends.find((one) => one.status === "rejected");
    // The message comes again, and sends those of the vaults that were in hand.
    if (failed) throw failed.reason;
    await finishWhenLast(scanId);
  }

  async function scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void> {
    const { scanId } = message;
    const until = clock.now().getTime() + CHAIN_MS;
    const first = await firstClaim(message, delivery);
    if (!first) return;
    const next = async () => {
      const scan = await runningScan(scanId);
      return scan && (await claims.waiting(scan));
    };
    if (await scanOn(scanId, first, { worker: message.index, until, next })) await finishWhenLast(scanId);
  }

  async function firstClaim(
    { scanId, index }: z.infer<typeof VaultMessage>,
    delivery: number,
  ): Promise<Claim | undefined> {
    const row = await claims.claimed(scanId, index);
    if (!row) {
      // It is done: a worker of this message died or failed with a later one, or the message came twice.
      if (delivery > 1) await claims.sendLeft(scanId, index);
      await finishWhenLast(scanId);
      return undefined;
    }
    const mine = delivery > 1 && (row.worker === undefined || row.worker === index);
    if (row.begun && !mine) return undefined;
    return (await claims.begin(scanId, row, index)) ? { index, vault: withoutKeys(row) } : undefined;
  }

  /**
   * One vault after the other.
   * @returns true when none is left to claim; false when the work goes on in a message, or the scan is over.
   */
  async function scanOn(scanId: string, first: Claim, chain: Chain): Promise<boolean> {
    for (let work = first; ; ) {
      const scan = await runningScan(scanId);
      if (!scan) return false;
      await keeping(scanId, work.index, () => deps.between(scan.requestId));
      const next = await scanClaimed(scan, work, chain);
      if (next === "noneLeft") await deps.workerFreed();
      if (typeof next === "string") return next === "noneLeft";
      work = next;
      if (clock.now().getTime() < chain.until) continue;
      await claims.putBack(scanId, work.index);
      await claims.send(scanId, work.index);
      return false;
    }
  }

  /** One vault, and the claim of the next. */
  async function scanClaimed(
    scan: ScanRecord,
    { index, vault }: Claim,
    chain: Chain,
  ): Promise<Claim | "noneLeft" | "goesOn"> {
    const { scanId } = scan;
    let outcome: VaultOutcome;
    try {
      outcome = await keeping(scanId, index, async () =>
        vault.action === "fail" ? unreadable(vault) : await scanInTime(scan, index, vault),
      );
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // Another scan writes this vault. Waiting must not count as a failed delivery, so a new message waits instead.
      const seconds = Math.ceil(error.waitMs / SECOND_MS);
      const delaySeconds = Math.min(Math.max(1, seconds), LONGEST_BUSY_SECONDS);
      await claims.putBack(scanId, index);
      await claims.send(scanId, index, { delaySeconds });
      return "goesOn";
    }
    return await endVault(scan, index, outcome, chain);
  }

  /** Renews the claim of a vault during the work. */
  async function keeping<T>(scanId: string, index: string, work: () => Promise<T>): Promise<T> {
    const stopKeeping = claims.keep(scanId, index);
    try {
      return await work();
    } finally {
      await stopKeeping();
    }
  }

  async function scanInTime(scan: ScanRecord, index: string, vault: PlannedVault): Promise<VaultOutcome> {
    const now = clock.now();
    return await scanVault(vault, {
      mode: scan.mode,
      scheduled: scan.trigger === "schedule",
      owner: `${scan.scanId}/${index}/${randomness.ulid(now)}`,
      signal: AbortSignal.timeout(Math.max(1, Date.parse(scan.deadline!) - now.getTime())),
    });
  }

  /** The running scan, remembered for a minute: only its mode and deadline are asked, which don't change. */
  const remembered = new Map<string, { scan: ScanRecord; until: number }>();
  async function runningScan(scanId: string): Promise<ScanRecord | undefined> {
    const known = remembered.get(scanId);
    if (known && known.until > clock.now().getTime()) return known.scan;
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (scan?.status !== "running") return undefined;
    remember(scan);
    return scan;
  }

  function remember(scan: ScanRecord): void {
    const now = clock.now().getTime();
    for (const [id, { until }] of remembered) if (until <= now) remembered.delete(id);
    remembered.set(scan.scanId, { scan, until: now + REMEMBERED_MS });
  }

  /** Records the outcome and claims the next vault in one transaction. */
  async function endVault(
    scan: ScanRecord,
    index: string,
    outcome: VaultOutcome,
    { worker, next }: Pick<Chain, "worker" | "next">,
  ): Promise<Claim | "noneLeft" | "goesOn"> {
    const { scanId } = scan;
    const partition = scanPartition(scanId);
    for (let taken = false; ; taken = true) {
      const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
      const waiting = inTime ? await next(taken) : undefined;
      const claim = waiting && claims.take(waiting, worker);
      try {
        await tables.transaction(PlannedVaults.table, partition, [
          remove(PlannedVaults, claimedKey(index)),
          insert(VaultOutcomes, doneKey(index), outcome),
          ...(claim?.operations ?? []),
        ]);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Either a second message for this vault was faster and goes on, or another worker took the next one.
        if (!(await claims.claimed(scanId, index))) return "goesOn";
        continue;
      }
      return claim ?? "noneLeft";
    }
  }

  async function finishWhenLast(scanId: string): Promise<void> {
    if (!(await claims.anyClaimed(scanId))) await end.finish(scanId);
  }

  /** What comes of a vault whose description could not be read: what was known of it stays. */
  function unreadable(vault: PlannedVault): VaultOutcome {
    return failed(vault, vault.failure ?? internalFailure(clock, "The vault's description could not be read."));
  }

  async function vaultFailed(scanId: string, index: string): Promise<void> {
    const scan = await runningScan(scanId);
    if (!scan) return;
    const vault = await claims.claimed(scanId, index);
    if (vault) {
      const failure = internalFailure(clock, "The vault could not be written to the inventory, in five tries.");
      // The next one is in the hand of this worker, so that the watch sends it soon, should this one die before.
      const next = await endVault(scan, index, failed(vault, failure), {
        worker: index,
        next: () => claims.waiting(scan),
      });
      if (next === "goesOn") return;
    }
    if ((await claims.sendLeft(scanId, index)) === 0) await end.finish(scanId);
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

/** A failure of this service itself, after all its tries. `message` says what could not be done. */
export const internalFailure = (clock: Clock, message: string) => ({
  code: "internal",
  message,
  remedy: "Look for the scan's id in the logs; start another scan once the cause is mended.",
  at: clock.now().toISOString(),
});
