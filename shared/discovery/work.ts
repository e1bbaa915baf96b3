import type * as z from "zod";
import { VaultBusy } from "../inventory/claim.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { isConflict } from "../storage/conflict.ts";
import type { Queues } from "../storage/queues.ts";
import { insert, remove, type Tables } from "../storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import type { Claim, Claims } from "./claims.ts";
import type { ScanEnd } from "./end.ts";
import {
  claimedKey,
  doneKey,
  emptyTally,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
  type VaultMessage,
  type VaultOutcome,
  VaultOutcomes,
} from "./scan.ts";
import type { scanVault } from "./scan-vault.ts";

/** How long one invocation goes from vault to vault before it hands its chain to a new message. */
const CHAIN_MS = 4 * MINUTE_MS;
/** How long the mode and deadline of a running scan are remembered. */
const REMEMBERED_MS = MINUTE_MS;
/** The longest wait for another worker of the same vault before it is tried again. */
const LONGEST_BUSY_SECONDS = 30;

type Outcome = Omit<VaultOutcome, "next">;

export interface WorkDeps {
  tables: Tables;
  queues: Queues;
  claims: Claims;
  end: ScanEnd;
  scanVault: (planned: PlannedVault, options: Parameters<typeof scanVault>[1]) => ReturnType<typeof scanVault>;
  clock: Clock;
  randomness: Randomness;
}

/** The work on a scan's vaults. How many are scanned at once is how many vault messages exist. */
export interface ScanWork {
  /**
   * Scans claimed vaults one after the other, for some minutes: each hop over the queue would cost a wait for its polling.
   * The message names the first one. Whoever ends a vault claims the next in the same transaction, so however often a
   * message comes, a vault ends exactly once; whoever finds none left ends the scan.
   *
   * @param delivery - 1 for the message's first delivery. A later one follows a worker that died or failed, so what became
   * of its chain is read.
   */
  scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void>;
  /** Ends a vault whose message failed for good: its failure is its outcome, and the scan goes on. */
  vaultFailed(scanId: string, index: string): Promise<void>;
}

export function createScanWork({ tables, queues, claims, end, scanVault, clock, randomness }: WorkDeps): ScanWork {
  async function scanVaults(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void> {
    const { scanId } = message;
    const until = clock.now().getTime() + CHAIN_MS;
    let work: Claim | undefined = await firstClaim(message, delivery);
    while (work) {
      const scan = await runningScan(scanId);
      if (!scan) return;
      work = await scanClaimed(scan, work);
      if (work && clock.now().getTime() >= until) {
        await claims.putBack(scanId, work.index);
        return await claims.send(scanId, work);
      }
    }
  }

  async function firstClaim(message: z.infer<typeof VaultMessage>, delivery: number): Promise<Claim | undefined> {
    const { scanId, index } = message;
    const known = delivery === 1 ? message.vault : undefined;
    const vault = known ?? (await claims.claimed(scanId, index));
    // A message that was sent for a lost one, which came after all.
    if (delivery === 1 && !known && vault?.begun) return undefined;
    if (vault && (await claims.begin(scanId, index))) return { index, vault };
    await passOn(scanId, index);
    return undefined;
  }

  /** A message whose vault is done: its worker died somewhere behind it. The chain goes on where it was claimed last. */
  async function passOn(scanId: string, index: string): Promise<void> {
    const partition = scanPartition(scanId);
    let done = await tables.get(VaultOutcomes, partition, doneKey(index));
    while (done?.next !== undefined) {
      const vault = await claims.claimed(scanId, done.next);
      if (vault) return await claims.send(scanId, { index: done.next, vault });
      done = await tables.get(VaultOutcomes, partition, doneKey(done.next));
    }
    if (done) await finishWhenLast(scanId);
  }

  /** One vault, and the claim of the next. */
  async function scanClaimed(scan: ScanRecord, { index, vault }: Claim): Promise<Claim | undefined> {
    const { scanId } = scan;
    const stopKeeping = claims.keep(scanId, index);
    let outcome: Outcome;
    try {
      outcome = vault.action === "fail" ? unreadable(vault) : await scanInTime(scan, index, vault);
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // Another scan writes this vault. Waiting must not count as a failed delivery, so a new message waits instead.
      const seconds = Math.ceil(error.waitMs / SECOND_MS);
      const delaySeconds = Math.min(Math.max(1, seconds), LONGEST_BUSY_SECONDS);
      await claims.putBack(scanId, index);
      await queues.send(QUEUES.vaults, { scanId, index }, { delaySeconds });
      return undefined;
    } finally {
      stopKeeping();
    }
    return await endVault(scan, index, vault.chain ?? 0, outcome);
  }

  async function scanInTime(scan: ScanRecord, index: string, vault: PlannedVault): Promise<Outcome> {
    const now = clock.now();
    return await scanVault(vault, {
      mode: scan.mode,
      owner: `${scan.scanId}/${index}/${randomness.ulid(now)}`,
      signal: AbortSignal.timeout(Math.max(1, Date.parse(scan.deadline!) - now.getTime())),
    });
  }

  /** The running scan, remembered for a minute: only its mode and deadline are asked, which don't change. */
  const remembered = new Map<string, { scan: ScanRecord; until: number }>();
  async function runningScan(scanId: string): Promise<ScanRecord | undefined> {
    const now = clock.now().getTime();
    const known = remembered.get(scanId);
    if (known && known.until > now) return known.scan;
    for (const [id, { until }] of remembered) if (until <= now) remembered.delete(id);
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (scan?.status !== "running") return undefined;
    remembered.set(scanId, { scan, until: now + REMEMBERED_MS });
    return scan;
  }

  /** Records the outcome and claims the next vault in one transaction; ends the scan when there is none left. */
  async function endVault(
    scan: ScanRecord,
    index: string,
    chain: number,
    outcome: Outcome,
  ): Promise<Claim | undefined> {
    const { scanId } = scan;
    const partition = scanPartition(scanId);
    for (;;) {
      const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
      const next = inTime ? await claims.next(scanId, chain, true) : undefined;
      const ended = next ? { ...outcome, next: next.index } : outcome;
      try {
        await tables.transaction(PlannedVaults.table, partition, [
          remove(PlannedVaults, claimedKey(index)),
          insert(VaultOutcomes, doneKey(index), ended),
          ...(next?.operations ?? []),
        ]);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // Either a second message for this vault was faster and carries the chain on, or another worker took the next one.
        if (!(await claims.claimed(scanId, index))) return undefined;
        continue;
      }
      if (next) return next;
      await finishWhenLast(scanId);
      return undefined;
    }
  }

  async function finishWhenLast(scanId: string): Promise<void> {
    if (!(await claims.anyClaimed(scanId))) await end.finish(scanId);
  }

  /** What comes of a vault whose description could not be read: what was known of it stays. */
  function unreadable(vault: PlannedVault): Outcome {
    return failed(vault, vault.failure ?? internalFailure(clock, "The vault's description could not be read."));
  }

  async function vaultFailed(scanId: string, index: string): Promise<void> {
    const scan = await runningScan(scanId);
    const vault = await claims.claimed(scanId, index);
    if (!scan || !vault) return;
    const failure = internalFailure(clock, "The vault could not be written to the inventory, in five tries.");
    const next = await endVault(scan, index, vault.chain ?? 0, failed(vault, failure));
    if (!next) return;
    await claims.putBack(scanId, next.index);
    await claims.send(scanId, next);
  }

  return { scanVaults, vaultFailed };
}

function failed(vault: PlannedVault, failure: NonNullable<PlannedVault["failure"]>): Outcome {
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
