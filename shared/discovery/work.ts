import type * as z from "zod";
import { VaultBusy } from "../inventory/claim.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { type Claim, type Claims, PLAN_WORKER, type Waiting } from "./claims.ts";
import type { ScanEnd } from "./end.ts";
import {
  doneKey,
  emptyTally,
  isHandedOn,
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
import { type readVault, unchanged, type VaultRead } from "./scan-vault.ts";

/**
 * Vaults that one invocation has in hand at once, so that a scan of a few dozen needs no second one. It is mostly waiting
 * for the cloud; more of them fill neither the processor of the smallest instance better nor its memory with less.
 */
export const VAULTS_AT_ONCE = 10;
/** After so long that invocation goes on alone with its first; each of the others gets a message, which any instance takes. */
export const TOGETHER_MS = 15 * SECOND_MS;
/** How long one worker goes from vault to vault before a new message goes on. */
const CHAIN_MS = 4 * MINUTE_MS;
/** How long the mode and deadline of a running scan are remembered. */
const REMEMBERED_MS = MINUTE_MS;
/** The longest wait for another worker of the same vault before it is tried again. */
const LONGEST_BUSY_SECONDS = 30;
/**
 * A vault with so many changed assets is written while the next one is read. With fewer, writing takes no longer than the
 * transaction that claims the next; with more, both together fill the memory of a small instance.
 */
const FEWEST_BEHIND = 50;
const MOST_BEHIND = 1_000;

/** How a worker goes from vault to vault. One that it hands on is written while it reads the next. */
interface Chain {
  /** Its name in the claims; undefined where a message is sent for the next vault. */
  worker: string | undefined;
  /** Milliseconds since 1970 when a message goes on with it. */
  until: number;
  /** The next vault to claim, if any waits. `taken`: another took the one before, or a cancellation did. */
  next: (taken: boolean) => Promise<Waiting | undefined>;
}

/** Of a vault after which none is claimed. */
const ALONE: Pick<Chain, "worker" | "next"> = { worker: undefined, next: async () => undefined };

/** Of a chain: ends, or fails, when the vault that it has handed on is written and ended. */
interface Behind {
  written: Promise<void>;
}

export interface WorkDeps {
  tables: Tables;
  claims: Claims;
  end: ScanEnd;
  /** Does what waits for a free worker, between two vaults. */
  between: (requestId: string) => Promise<void>;
  /** Has what waits for a free worker begun, when no vault is left for this one. */
  workerFreed: () => Promise<void>;
  readVault: (planned: PlannedVault, options: Parameters<typeof readVault>[1]) => Promise<VaultRead>;
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

/** The work on a scan's vaults. How many are read at once is how many are claimed and not handed on. */
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
  const { tables, claims, end, readVault, clock, randomness } = deps;

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
      const scan = isHandedOn(first.rowKey) ? undefined : await runningScan(scanId);
      return scan && (await claims.waiting(scan));
    };
    await scanOn(scanId, first, { worker: message.index, until, next });
    // Also where a message goes on: what was written behind may have been the last.
    await finishWhenLast(scanId);
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
    // Its worker died or failed with another one in hand.
    if (mine && isHandedOn(row.rowKey)) await claims.sendLeft(scanId, index, index);
    if (!(await claims.begin(scanId, row, index))) return undefined;
    return { index, rowKey: row.rowKey, vault: { ...withoutKeys(row), begun: true, worker: index } };
  }

  /** One vault after the other, until none is left to claim, the work goes on in a message, or the scan is over. */
  async function scanOn(scanId: string, first: Claim, chain: Chain): Promise<void> {
    const behind: Behind = { written: Promise.resolve() };
    try {
      await follow(scanId, first, chain, behind);
    } finally {
      await behind.written;
    }
  }

  async function follow(scanId: string, first: Claim, chain: Chain, behind: Behind): Promise<void> {
    for (let work = first; ; ) {
      const scan = await runningScan(scanId);
      if (!scan) return;
      await keeping(scanId, work, () => deps.between(scan.requestId));
      const next = await scanClaimed(scan, work, chain, behind);
      if (next === "noneLeft") await deps.workerFreed();
      if (typeof next === "string") return;
      work = next;
      if (clock.now().getTime() < chain.until) continue;
      await claims.putBack(scanId, work.rowKey);
      await claims.send(scanId, work.index);
      return;
    }
  }

  /** One vault, and the claim of the next. One that is handed on is read here and written behind. */
  async function scanClaimed(
    scan: ScanRecord,
    claim: Claim,
    chain: Chain,
    behind: Behind,
  ): Promise<Claim | "noneLeft" | "goesOn"> {
    const { index, vault } = claim;
    const next = await unlessBusy(scan, claim, async () => {
      const read = vault.action === "fail" ? unchanged(unreadable(vault)) : await readInTime(scan, index, vault);
      await behind.written;
      if (read.changes < FEWEST_BEHIND || read.changes > MOST_BEHIND) {
        return await endVault(scan, claim, await read.write(), chain);
      }
      const { handedOn, operations } = claims.handOn(claim);
      const another = await claimNext(scan, claim, chain, { besideNext: operations });
      if (another === "goesOn") return another;
      if (another === "noneLeft") return await endVault(scan, claim, await read.write(), ALONE);
      behind.written = writeBehind(scan, handedOn, read);
      // Looked at when the next one is read: until then it must not end the process.
      behind.written.catch(() => {});
      return another;
    });
    return next ?? "goesOn";
  }

  /** Writes a vault that was handed on. The chain goes on whatever comes of it, but for a failure of this service. */
  async function writeBehind(scan: ScanRecord, claim: Claim, read: VaultRead): Promise<void> {
    await unlessBusy(scan, claim, async () => {
      await endVault(scan, claim, await read.write(), ALONE);
    });
  }

  /** Keeps the vault during the work. One that another scan writes comes again, in a message; undefined then. */
  async function unlessBusy<T>({ scanId }: ScanRecord, claim: Claim, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await keeping(scanId, claim, work);
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // No longer renewed: a renewal after it is put back would have its message ignored.
      await comeAgain(scanId, claim, error);
      return undefined;
    }
  }

  /** Another scan writes this vault. Waiting must not count as a failed delivery, so a new message waits instead. */
  async function comeAgain(scanId: string, { index, rowKey }: Claim, { waitMs }: VaultBusy): Promise<void> {
    const delaySeconds = Math.min(Math.max(1, Math.ceil(waitMs / SECOND_MS)), LONGEST_BUSY_SECONDS);
    await claims.putBack(scanId, rowKey);
    await claims.send(scanId, index, { delaySeconds });
  }

  /** Renews the claim of a vault during the work. */
  async function keeping<T>(scanId: string, { rowKey }: Claim, work: () => Promise<T>): Promise<T> {
    const stopKeeping = claims.keep(scanId, rowKey);
    try {
      return await work();
    } finally {
      await stopKeeping();
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
   * Claims the next vault, with what becomes of this one. That moves this one's row: of two workers of one vault, one does it.
   * @param own - `always`: written whether another vault is left or not; `besideNext`: only when one is.
   */
  async function claimNext(
    scan: ScanRecord,
    { rowKey }: Pick<Claim, "rowKey">,
    { worker, next }: Pick<Chain, "worker" | "next">,
    own: { always: Operation[] } | { besideNext: Operation[] },
  ): Promise<Claim | "noneLeft" | "goesOn"> {
    const { scanId } = scan;
    for (let taken = false; ; taken = true) {
      const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
      const waiting = inTime ? await next(taken) : undefined;
      const claim = waiting && claims.take(waiting, worker);
      if (!claim && "besideNext" in own) return "noneLeft";
      const operations = "always" in own ? own.always : own.besideNext;
      try {
        await tables.transaction(PlannedVaults.table, scanPartition(scanId), [
          ...operations,
          ...(claim?.operations ?? []),
        ]);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Either another worker of this vault was faster and goes on, or another one took the next.
        if (!(await claims.stands(scanId, rowKey))) return "goesOn";
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
      const { rowKey } = vault;
      const chain = isHandedOn(rowKey) ? ALONE : { worker: index, next: () => claims.waiting(scan) };
      const next = await endVault(scan, { index, rowKey }, failed(vault, failure), chain);
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
  remedy: "Find the scan ID in the logs, fix the cause, and start another scan.",
  at: clock.now().toISOString(),
});
