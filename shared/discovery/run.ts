import type * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../azure/failure.ts";
import type { ResourceManager } from "../azure/resource-manager.ts";
import { VaultBusy } from "../inventory/write.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import {
  insert,
  type Operation,
  put,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  type Tables,
} from "../storage/tables.ts";
import { newestFirst } from "../ulid.ts";
import type { ActiveScansRoom } from "./active.ts";
import { planScan } from "./plan.ts";
import { failureRecord } from "./read-vault.ts";
import {
  addTally,
  BEYOND,
  CLAIMED,
  claimedKey,
  DONE,
  doneKey,
  emptyTally,
  indexOf,
  isOver,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  SCAN_LIST,
  SCAN_ROW,
  type ScanRecord,
  type ScanStatus,
  Scans,
  scanPartition,
  type VaultMessage,
  type VaultOutcome,
  VaultOutcomes,
  WAITING,
  waitingKey,
} from "./scan.ts";
import type { scanVault } from "./scan-vault.ts";

/** How many waiting vaults a worker looks at to choose its next: enough that workers rarely choose the same. */
const CANDIDATES = 200;
/** A planned vault with more bytes of JSON than this stays out of its message, which may hold 48 KiB. */
const MAX_VAULT_IN_MESSAGE = 40_000;
/** How long one worker may take to finish a scan before another tries. */
const FINISHING_MS = 60_000;
/** How long a scan waits for the workers of other scans before it asks again. */
const NO_WORKER_DELAY_SECONDS = 5;
const REMEMBERED_MS = 60_000;
/** How long one invocation goes from vault to vault before it hands its chain to a new message. */
const CHAIN_MS = 4 * 60_000;

/** A vault this worker has claimed. */
interface Claim {
  index: string;
  vault: PlannedVault;
}

export interface RunDeps {
  tables: Tables;
  queues: Queues;
  settings: Settings;
  resourceManager: ResourceManager;
  configuredSubscriptions: () => Promise<string[]>;
  active: ActiveScansRoom;
  /** Told before a scan is recorded as over; may be told twice. */
  ended: () => Promise<void>;
  scanVault: (planned: PlannedVault, options: Parameters<typeof scanVault>[1]) => ReturnType<typeof scanVault>;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * What the queues do: plan a scan, scan its vaults, finish it. How many vaults are scanned at once is how many vault
 * messages exist: the plan sends that many, and whoever finishes a vault claims the next. A claim is one transaction with
 * the outcome, so however often a message comes, a vault ends exactly once.
 */
export function createScanRun(deps: RunDeps) {
  const { tables, queues, active, audit, clock, log } = deps;

  /**
   * Plans a queued scan. A message may come while another one's worker plans: whoever changed the scan's row last goes on,
   * and the other stops at its next step, so that no late plan lies over a scan that runs.
   */
  async function plan(scanId: string, delivery: number): Promise<void> {
    const partition = scanPartition(scanId);
    const found = await tables.get(Scans, partition, SCAN_ROW);
    if (!found || isOver(found.status)) return;
    if (found.status === "running") {
      // A delivery before this one may have died among its messages; any other message is to spare.
      if (delivery > 1) await sendClaimed(scanId);
      return;
    }
    if (found.cancelledBy) return await finish(scanId);
    const scan = await unlessChanged(() => stillPlanning(found));
    if (!scan) return;
    const settings = await deps.settings.values();
    const free = await active.takeWorkers(scanId, 1, settings.discoveryMaxWorkers);
    if (free === 0) return await queues.send(QUEUES.plan, { scanId }, { delaySeconds: NO_WORKER_DELAY_SECONDS });

    let planned: Awaited<ReturnType<typeof planScan>>;
    try {
      planned = await planScan(scan, { ...deps, configured: deps.configuredSubscriptions });
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      return await fail(scanId, failureRecord(error, clock.now().toISOString()));
    }
    const wanted = Math.max(1, planned.vaults.length);
    const workers = Math.max(1, await active.takeWorkers(scanId, wanted, settings.discoveryMaxWorkers));
    const now = clock.now();
    const rows = new Map<string, PlannedVault>();
    planned.vaults.forEach((vault, at) => {
      const index = String(at).padStart(6, "0");
      if (at < workers) rows.set(claimedKey(index), { ...vault, claimedAt: now.toISOString(), chain: at });
      else rows.set(waitingKey(index), vault);
    });
    const operations: Operation[] = [...rows].map(([key, row]) => put(PlannedVaults, key, row));
    // A plan that died half way may have left rows of vaults or states this one does not have.
    for await (const left of tables.pages(PlannedVaults, {
      partitionKey: partition,
      from: WAITING,
      before: DONE,
      select: ["name"],
    })) {
      for (const row of left) if (!rows.has(row.rowKey)) operations.push(remove(PlannedVaults, row.rowKey));
    }
    const running = await unlessChanged(async () => {
      let row = scan;
      const beforeEach = async () => {
        row = await stillPlanning(row);
      };
      await tables.write(PlannedVaults.table, partition, operations, { beforeEach });
      return await tables.replace(Scans, {
        ...row,
        status: "running",
        startedAt: now.toISOString(),
        deadline: new Date(now.getTime() + settings.discoveryScanTimeout * 1000).toISOString(),
        vaultsTotal: planned.vaults.length,
        subscriptionOutcomes: planned.subscriptions,
      });
    });
    if (!running) return;
    if (planned.vaults.length === 0) await queues.send(QUEUES.finish, { scanId });
    const claimed = [...rows].filter(([key]) => key.startsWith(CLAIMED));
    await Promise.all(claimed.map(([key, vault]) => sendVault(scanId, indexOf(key), vault)));
  }

  const stillPlanning = (scan: Row<ScanRecord>): Promise<Row<ScanRecord>> =>
    tables.replace(Scans, { ...scan, planningAt: clock.now().toISOString() });

  /** Undefined when the scan's row was changed: another worker has taken the plan over, or the scan was cancelled. */
  async function unlessChanged(write: () => Promise<Row<ScanRecord>>): Promise<Row<ScanRecord> | undefined> {
    try {
      return await write();
    } catch (error) {
      if (error instanceof RowChanged) return undefined;
      throw error;
    }
  }

  /** The message holds the planned vault itself, so that its worker need not read what was just written. */
  async function sendVault(scanId: string, index: string, vault: PlannedVault): Promise<void> {
    const small = Buffer.byteLength(JSON.stringify(vault)) <= MAX_VAULT_IN_MESSAGE;
    await queues.send(QUEUES.vaults, { scanId, index, ...(small ? { vault } : {}) });
  }

  /** A plan or a claim whose messages may not all have been sent: sending one twice does no harm. */
  async function sendClaimed(scanId: string): Promise<void> {
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    let sent = 0;
    for await (const rows of tables.pages(PlannedVaults, range)) {
      for (const row of rows) await sendVault(scanId, indexOf(row.rowKey), withoutKeys(row));
      sent += rows.length;
    }
    if (sent === 0) await queues.send(QUEUES.finish, { scanId });
  }

  /**
   * Scans claimed vaults one after the other, for some minutes: each hop over the queue would cost a wait for its polling.
   * The message names the first one. Its first delivery says all there is to know; a later one follows a worker that died,
   * so what became of the chain is read.
   */
  async function scanChain(message: z.infer<typeof VaultMessage>, delivery: number): Promise<void> {
    const { scanId } = message;
    const until = clock.now().getTime() + CHAIN_MS;
    let work: Claim | undefined = await firstClaim(message, delivery);
    while (work) {
      const scan = await runningScan(scanId);
      if (!scan) return;
      work = await scanClaimed(scan, work);
      if (work && clock.now().getTime() >= until) return await sendVault(scanId, work.index, work.vault);
    }
  }

  async function firstClaim(message: z.infer<typeof VaultMessage>, delivery: number): Promise<Claim | undefined> {
    const { scanId, index } = message;
    if (delivery === 1 && message.vault) return { index, vault: message.vault };
    const claimed = await tables.get(PlannedVaults, scanPartition(scanId), claimedKey(index));
    if (claimed) return { index, vault: withoutKeys(claimed) };
    await passOn(scanId, index);
    return undefined;
  }

  /** One vault, and the claim of the next. */
  async function scanClaimed(scan: ScanRecord, { index, vault }: Claim): Promise<Claim | undefined> {
    const { scanId } = scan;
    let outcome: Awaited<ReturnType<typeof scanVault>>;
    try {
      const left = Date.parse(scan.deadline!) - clock.now().getTime();
      outcome = await deps.scanVault(vault, {
        mode: scan.mode,
        owner: `${scanId}/${index}/${deps.randomness.ulid(clock.now())}`,
        signal: AbortSignal.timeout(Math.max(1, left)),
      });
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // Another scan writes this vault. Waiting must not count as a failed delivery, so a new message waits instead.
      const seconds = Math.ceil(error.waitMs / 1000);
      await queues.send(QUEUES.vaults, { scanId, index }, { delaySeconds: Math.max(1, seconds) });
      return undefined;
    }
    return await endVault(scan, index, vault.chain ?? 0, outcome);
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

  /** A message whose vault is done: its worker died somewhere behind it. The chain goes on where it was claimed last. */
  async function passOn(scanId: string, index: string): Promise<void> {
    const partition = scanPartition(scanId);
    let done = await tables.get(VaultOutcomes, partition, doneKey(index));
    while (done?.next !== undefined) {
      const claimed = await tables.get(PlannedVaults, partition, claimedKey(done.next));
      if (claimed) return await sendVault(scanId, done.next, withoutKeys(claimed));
      done = await tables.get(VaultOutcomes, partition, doneKey(done.next));
    }
    if (done) await finishWhenLast(scanId);
  }

  /** Records the outcome and claims the next vault in one transaction; asks for the scan's end when there is none. */
  async function endVault(
    scan: ScanRecord,
    index: string,
    chain: number,
    outcome: Omit<VaultOutcome, "next">,
  ): Promise<Claim | undefined> {
    const { scanId } = scan;
    const partition = scanPartition(scanId);
    for (;;) {
      const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
      const next = inTime ? await oneWaiting(partition, chain) : undefined;
      const claimed = next && { ...withoutKeys(next), claimedAt: clock.now().toISOString(), chain };
      const operations: Operation[] = [
        remove(PlannedVaults, claimedKey(index)),
        insert(VaultOutcomes, doneKey(index), { ...outcome, ...(next ? { next: indexOf(next.rowKey) } : {}) }),
      ];
      if (next && claimed) {
        operations.push(
          remove(PlannedVaults, next.rowKey, next.etag),
          insert(PlannedVaults, claimedKey(indexOf(next.rowKey)), claimed),
        );
      }
      try {
        await tables.transaction(PlannedVaults.table, partition, operations);
      } catch (error) {
        if (!(error instanceof RowMissing || error instanceof RowChanged || error instanceof RowExists)) throw error;
        // Either a second message for this vault was faster and carries the chain on, or another worker took the next one.
        if (!(await tables.get(PlannedVaults, partition, claimedKey(index)))) return undefined;
        continue;
      }
      if (next && claimed) return { index: indexOf(next.rowKey), vault: claimed };
      await finishWhenLast(scanId);
      return undefined;
    }
  }

  /**
   * A waiting vault. Each chain of messages looks at another place among the first ones, so that workers who look at the
   * same moment choose differently.
   */
  async function oneWaiting(partitionKey: string, chain: number): Promise<Row<PlannedVault> | undefined> {
    const range = { partitionKey, from: WAITING, before: CLAIMED, pageSize: CANDIDATES };
    for await (const rows of tables.pages(PlannedVaults, range)) {
      if (rows.length > 0) return rows[chain % rows.length];
    }
    return undefined;
  }

  async function finishWhenLast(scanId: string): Promise<void> {
    const range = {
      partitionKey: scanPartition(scanId),
      from: CLAIMED,
      before: DONE,
      select: ["name" as const],
      pageSize: 1,
    };
    for await (const rows of tables.pages(PlannedVaults, range)) if (rows.length > 0) return;
    await queues.send(QUEUES.finish, { scanId });
  }

  /**
   * Ends a scan: adds up its vaults, says so in the audit log, and writes its own row last, so that a death on the way
   * lets the next message do it again. `overdue` ends it although vaults are still claimed.
   */
  async function finish(scanId: string, overdue = false): Promise<void> {
    const partition = scanPartition(scanId);
    const scan = await tables.get(Scans, partition, SCAN_ROW);
    if (!scan || isOver(scan.status)) return;
    const tally = emptyTally();
    let done = 0;
    let failed = 0;
    let incomplete = 0;
    for await (const rows of tables.pages(VaultOutcomes, {
      partitionKey: partition,
      from: DONE,
      before: BEYOND,
      select: ["outcome", "tally"],
    })) {
      for (const row of rows) {
        addTally(tally, row.tally);
        done++;
        if (row.outcome === "failed" || row.outcome === "skipped") failed++;
        if (row.outcome !== "succeeded" && row.outcome !== "removed") incomplete++;
      }
    }
    const left = await countLeft(partition);
    const now = clock.now().toISOString();
    const neverRan = scan.status === "queued";
    if (left.claimed > 0 && !overdue && !neverRan) return;
    const inTime = scan.deadline !== undefined && now < scan.deadline;
    if (left.waiting > 0 && inTime && !scan.cancelledBy && !overdue) return await revive(scan);
    const subscriptionsFailed = scan.subscriptionOutcomes.filter((one) => one.failure).length;
    const status: ScanStatus = scan.cancelledBy
      ? "cancelled"
      : left.waiting + left.claimed > 0 || (incomplete > 0 && !inTime && !neverRan)
        ? "timedOut"
        : incomplete + subscriptionsFailed === 0
          ? "completed"
          : done === failed
            ? "failed"
            : "partial";
    await end(scan, { status, finishedAt: now, vaultsDone: done, vaultsFailed: failed, tally });
  }

  /** Waiting vaults and no worker: a chain broke where nothing could send it on. One claim starts it again. */
  async function revive(scan: ScanRecord): Promise<void> {
    const partition = scanPartition(scan.scanId);
    const next = await oneWaiting(partition, 0);
    if (!next) return;
    const claimed = { ...withoutKeys(next), claimedAt: clock.now().toISOString(), chain: 0 };
    await tables.transaction(PlannedVaults.table, partition, [
      remove(PlannedVaults, next.rowKey, next.etag),
      insert(PlannedVaults, claimedKey(indexOf(next.rowKey)), claimed),
    ]);
    await sendVault(scan.scanId, indexOf(next.rowKey), claimed);
  }

  async function countLeft(partitionKey: string): Promise<{ waiting: number; claimed: number }> {
    const left = { waiting: 0, claimed: 0 };
    for await (const rows of tables.pages(PlannedVaults, {
      partitionKey,
      from: WAITING,
      before: DONE,
      select: ["name"],
    })) {
      for (const row of rows) row.rowKey.startsWith(WAITING) ? left.waiting++ : left.claimed++;
    }
    return left;
  }

  async function fail(scanId: string, failure: ScanRecord["failure"]): Promise<void> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (!scan || isOver(scan.status)) return;
    await end(scan, { status: "failed", finishedAt: clock.now().toISOString(), failure, tally: emptyTally() });
  }

  async function end(found: Row<ScanRecord>, result: Partial<ScanRecord> & { status: ScanStatus }): Promise<void> {
    const scan = await takeTheEnd(found);
    if (!scan) return;
    const { partitionKey: _p, rowKey: _r, etag: _e, finishingUntil: _f, ...record } = scan;
    const final = { ...record, ...result };
    await audit.append({
      type: "scan.finished",
      caller: { actor: "system", requestId: scan.requestId },
      outcome: result.status === "completed" || result.status === "partial" ? "success" : "failure",
      target: { type: "scan", id: scan.scanId },
      details: {
        mode: scan.mode,
        status: result.status,
        vaults: scan.vaultsTotal,
        vaultsFailed: result.vaultsFailed ?? 0,
        added: result.tally?.added ?? 0,
        updated: result.tally?.updated ?? 0,
        removed: result.tally?.removed ?? 0,
      },
    });
    await tables.put(Scans, SCAN_LIST, newestFirst(scan.scanId), final);
    await active.leave(scan.scanId);
    await deps.ended();
    await tables.replace(Scans, { ...scan, ...result, finishingUntil: undefined });
    log.info("A scan is over", { scanId: scan.scanId, status: result.status });
  }

  /** Only one worker at a time ends a scan; one that dies at it is followed by the message that waits for its time. */
  async function takeTheEnd(scan: Row<ScanRecord>): Promise<Row<ScanRecord> | undefined> {
    const now = clock.now().getTime();
    const busyUntil = scan.finishingUntil === undefined ? 0 : Date.parse(scan.finishingUntil);
    try {
      if (busyUntil <= now) {
        return await tables.replace(Scans, { ...scan, finishingUntil: new Date(now + FINISHING_MS).toISOString() });
      }
    } catch (error) {
      if (!(error instanceof RowChanged)) throw error;
    }
    const delaySeconds = Math.ceil((busyUntil > now ? busyUntil - now : FINISHING_MS) / 1000);
    await queues.send(QUEUES.finish, { scanId: scan.scanId }, { delaySeconds });
    return undefined;
  }

  return { plan, scanChain, finish, fail, endVault, sendVault, runningScan };
}

export type ScanRun = ReturnType<typeof createScanRun>;
