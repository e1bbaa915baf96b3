/**
 * The row that lists all active scans and re-scans. A scan reads all vaults. A re-scan reads a single vault after an event;
 * stored members call it `looks`. Both share a limit of workers.
 */
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { RESCAN_LEASE_MS, rebuildActiveRow } from "./rebuild-active-scans.ts";
import {
  ACTIVE,
  type ActiveRow,
  ActiveScans,
  DONE,
  hasEnded,
  isHandedOff,
  PlannedVaults,
  SCAN_ROW,
  type ScanMode,
  Scans,
  scanPartition,
  WAITING,
} from "./scan.ts";

/** If a listed scan has no row of its own after this time, the process that created it has crashed. */
const CREATION_TIMEOUT_MS = MINUTE_MS;

/** A scan that is queued or running. */
export interface ActiveScan {
  scanId: string;
  mode: ScanMode;
  /** Undefined for all subscriptions. */
  subscriptions?: string[] | undefined;
  /**
   * Number of workers, each with one claimed vault. Vaults that are written in the background don't count. 0 until the scan is
   * planned.
   */
  workers: number;
  createdAt: string;
}

/** A running re-scan of one vault. */
export interface ActiveRescan {
  /** Identifies this attempt of the worker. */
  worker: string;
  subscriptionId: string;
  /**
   * Other subscriptions in which the re-scan may write the vault. A vault that moves leaves one subscription and arrives in
   * another.
   */
  otherSubscriptionIds?: string[] | undefined;
}

/**
 * The row that lists all queued and running scans and the single-vault re-scans, for all instances. It prevents overlapping
 * scans and enforces `discoveryMaxWorkers`. If the row can't be read, every method first rebuilds it from the scans, and
 * records that in the audit log.
 */
export interface ActiveScanList {
  /**
   * Returns all listed scans, also those whose process may have crashed before it wrote the scan's row or after it ended the
   * scan.
   */
  all(): Promise<ActiveScan[]>;
  /**
   * Rebuilds the row if it can't be read, and adds unfinished scans that it lacks. Costs one request per 1,000 stored scans,
   * and three per unfinished scan.
   *
   * @returns the repaired fault, if any.
   */
  verify(): Promise<"unreadable" | "missing" | undefined>;
  /**
   * Adds a scan.
   *
   * @throws {Problem} scanRunning when an active scan covers any of the same subscriptions, unless the new scan is `force`.
   */
  add(scan: ActiveScan): Promise<void>;
  /**
   * Rejects the removal of a subscription while it is scanned, because the scan would add its vaults again.
   *
   * @throws {Problem} scanRunning while a scan covers the subscription, conflict while one of its vaults is re-scanned.
   */
  rejectWhileScanned(subscriptionId: string): Promise<void>;
  /** Returns whether a listed scan is really queued or running. */
  isAlive(scan: ActiveScan): Promise<boolean>;
  /** Removes a scan. Returns true if a re-scan was denied a worker since the last removal (`looksWait`) and can start now. */
  remove(scanId: string): Promise<boolean>;
  /**
   * Assigns up to `wanted` workers to the scan, as far as `limit`, the other scans and the re-scans allow. Replaces the number
   * that an earlier call assigned.
   *
   * @returns the assigned number; 0 if no worker is free.
   */
  takeWorkers(scanId: string, wanted: number, limit: number): Promise<number>;
  /**
   * Adds a re-scan. Returns false if scans and other re-scans use all `limit` workers. Workers that are assigned to a scan but
   * have no vault left don't count. They are searched, with two requests per scan, only if no other worker is free.
   */
  enterRescan(rescan: ActiveRescan, limit: number): Promise<boolean>;
  /** Renews a re-scan's lease. Call it more often than once a minute. */
  renewRescan(worker: string): Promise<void>;
  leaveRescan(worker: string): Promise<void>;
}

export function createActiveScans({
  tables,
  clock,
  audit,
}: {
  tables: Tables;
  clock: Clock;
  audit: Pick<Audit, "append">;
}): ActiveScanList {
  /** Repairs the row, and records that in the audit log. */
  const repairAudited = <T>(details: Record<string, unknown>, repair: () => Promise<T>): Promise<T> => {
    const caller = { actor: "system", requestId: "scans" };
    return audited(
      audit,
      { type: "scans.mended", caller, target: { type: "activeScans", id: ACTIVE }, details },
      repair,
    );
  };

  /** Runs a function that reads the row. If the row can't be read, rebuilds it and runs the function again. */
  async function rebuildIfUnreadable<T>(use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      if (!isActiveRow(error)) throw error;
      await rebuild(error.etag);
      return await use();
    }
  }

  async function rebuild(etag: string): Promise<void> {
    const row = await rebuildActiveRow({ tables, clock });
    const replaced = { ...row, partitionKey: ACTIVE, rowKey: ACTIVE, etag };
    const details = { row: "unreadable", scans: row.scans.map(({ scanId }) => scanId) };
    // If the row changed meanwhile, another process has rebuilt it.
    await undefinedIfChanged(repairAudited(details, () => tables.replace(ActiveScans, replaced)));
  }

  const readRow = () => rebuildIfUnreadable(() => tables.get(ActiveScans, ACTIVE, ACTIVE));

  /**
   * Replaces the members of the row that `compute` returns; undefined leaves the row unchanged. Every change also drops
   * the re-scans of crashed workers.
   */
  const modifyRow = (
    compute: (scans: ActiveScan[], looks: LeasedRescans, looksWait: boolean) => Partial<ActiveRow> | undefined,
  ) =>
    rebuildIfUnreadable(() =>
      tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => {
        const { scans = [], looksWait = false } = row ?? {};
        const looks = aliveRescans(row?.looks);
        const changed = compute(scans, looks, looksWait);
        return changed && { scans, looks, looksWait, ...changed };
      }),
    );

  const leaseEnd = () => new Date(clock.now().getTime() + RESCAN_LEASE_MS).toISOString();

  /** Returns the re-scans whose worker has not crashed. */
  function aliveRescans(looks: LeasedRescans = []): LeasedRescans {
    const now = clock.now().toISOString();
    return looks.filter(({ until }) => until > now);
  }

  /** Adds a re-scan. Returns false if `limit` workers are in use. */
  async function tryEnter(rescan: ActiveRescan, limit: number): Promise<boolean> {
    let isEntered = false;
    await modifyRow((scans, looks, looksWait) => {
      isEntered = scans.reduce((sum, scan) => sum + scan.workers, looks.length) < limit;
      if (isEntered) return { looks: [...looks, { ...rescan, until: leaseEnd() }] };
      return looksWait ? undefined : { looksWait: true };
    });
    return isEntered;
  }

  /**
   * Returns how many of the scan's workers have no vault any more: no vault waits, and fewer vaults are claimed than workers
   * are assigned.
   */
  async function idleWorkers({ scanId, workers }: ActiveScan): Promise<number> {
    const partitionKey = scanPartition(scanId);
    const scan = await tables.get(Scans, partitionKey, SCAN_ROW);
    // Before the scan runs, workers are assigned although no vault is claimed yet.
    if (scan?.status !== "running") return 0;
    let claimed = 0;
    const range = {
      partitionKey,
      from: WAITING,
      before: DONE,
      pageSize: Math.max(1, workers),
      select: [],
    };
    // Row keys sort by state: waiting vaults first, then claimed ones, then those handed off.
    for await (const rows of tables.pages(PlannedVaults, range)) {
      if (rows[0]?.rowKey.startsWith(WAITING)) return 0;
      // A vault that is handed off is written in the background, so its worker already has another vault.
      claimed += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
    }
    return Math.max(0, workers - claimed);
  }

  const activeScans: ActiveScanList = {
    async all() {
      return (await readRow())?.scans ?? [];
    },

    async verify() {
      let fault: "unreadable" | "missing" | undefined;
      try {
        await tables.get(ActiveScans, ACTIVE, ACTIVE);
      } catch (error) {
        if (!isActiveRow(error)) throw error;
        await rebuild(error.etag);
        fault = "unreadable";
      }
      // The scans are read before the row, so that none seems to be missing by mistake: a scan is in the row before it is stored,
      // and leaves the row after it has ended.
      const { scans: unfinished } = await rebuildActiveRow({ tables, clock });
      const listed = new Set((await activeScans.all()).map(({ scanId }) => scanId));
      for (const scan of unfinished) {
        // A scan may have ended since it was read.
        if (listed.has(scan.scanId) || !(await activeScans.isAlive(scan))) continue;
        await repairAudited({ row: "missing", scans: [scan.scanId] }, () =>
          modifyRow((scans) =>
            scans.some(({ scanId }) => scanId === scan.scanId) ? undefined : { scans: [...scans, scan] },
          ),
        );
        fault ??= "missing";
      }
      return fault;
    },

    async add(scan) {
      for (;;) {
        let conflicting: ActiveScan | undefined;
        await modifyRow((scans) => {
          conflicting = scan.mode === "force" ? undefined : scans.find((other) => overlaps(other, scan));
          return conflicting ? undefined : { scans: [...scans, scan] };
        });
        if (!conflicting) return;
        if (await activeScans.isAlive(conflicting)) {
          throw new Problem(
            "scanRunning",
            `The scan ${conflicting.scanId} covers these subscriptions and has not ended. Wait for it, cancel it, or use the mode force.`,
            { members: { scanId: conflicting.scanId } },
          );
        }
        await activeScans.remove(conflicting.scanId);
      }
    },

    async rejectWhileScanned(subscriptionId) {
      const row = await readRow();
      const coversSubscription = ({ subscriptionId: firstId, otherSubscriptionIds = [] }: ActiveRescan) =>
        [firstId, ...otherSubscriptionIds].includes(subscriptionId.toLowerCase());
      if (aliveRescans(row?.looks).some(coversSubscription)) {
        const detail =
          "A vault of this subscription is being re-scanned after an event. Repeat the request in a moment.";
        throw new Problem("conflict", detail);
      }
      const scan = row?.scans.find((one) => overlaps(one, { subscriptions: [subscriptionId] }));
      if (!scan) return;
      const detail = `The scan ${scan.scanId} covers this subscription. Wait for it or cancel it, then repeat the request.`;
      throw new Problem("scanRunning", detail, { members: { scanId: scan.scanId } });
    },

    async isAlive(scan) {
      const row = await tables.get(Scans, scanPartition(scan.scanId), SCAN_ROW);
      if (row) return !hasEnded(row.status);
      // The age of the list's row is measured by storage. The scan is at least that old, even if a wrong clock wrote
      // `createdAt`.
      const activeRow = await rebuildIfUnreadable(() => tables.getWithAge(ActiveScans, ACTIVE, ACTIVE));
      const sinceCreated = clock.now().getTime() - Date.parse(scan.createdAt);
      return Math.max(activeRow?.ageMs ?? 0, sinceCreated) < CREATION_TIMEOUT_MS;
    },

    async remove(scanId) {
      let hadWaitingRescan = false;
      await modifyRow((scans, _, looksWait) => {
        const remaining = scans.filter((scan) => scan.scanId !== scanId);
        if (remaining.length === scans.length) return undefined;
        hadWaitingRescan = looksWait;
        return { scans: remaining, looksWait: false };
      });
      return hadWaitingRescan;
    },

    async takeWorkers(scanId, wanted, limit) {
      let workers = 0;
      await modifyRow((scans, looks) => {
        const ownEntry = scans.find((scan) => scan.scanId === scanId);
        const usedByOthers = scans.reduce(
          (sum, scan) => sum + (scan.scanId === scanId ? 0 : scan.workers),
          looks.length,
        );
        workers = Math.max(0, Math.min(wanted, limit - usedByOthers));
        if (!ownEntry || ownEntry.workers === workers) return undefined;
        return { scans: scans.map((scan) => (scan === ownEntry ? { ...ownEntry, workers } : scan)) };
      });
      return workers;
    },

    async enterRescan(rescan, limit) {
      if (await tryEnter(rescan, limit)) return true;
      const idleCounts = await Promise.all((await activeScans.all()).map(idleWorkers));
      const idleWorkersCount = idleCounts.reduce((sum, count) => sum + count, 0);
      // The row still counts the idle workers, so the limit is raised by their number.
      return idleWorkersCount > 0 && (await tryEnter(rescan, limit + idleWorkersCount));
    },

    async renewRescan(worker) {
      await modifyRow((_, looks) =>
        looks.some((rescan) => rescan.worker === worker)
          ? { looks: looks.map((rescan) => (rescan.worker === worker ? { ...rescan, until: leaseEnd() } : rescan)) }
          : undefined,
      );
    },

    async leaveRescan(worker) {
      await modifyRow((_, looks) => {
        const remaining = looks.filter((rescan) => rescan.worker !== worker);
        return remaining.length < looks.length ? { looks: remaining } : undefined;
      });
    },
  };
  return activeScans;
}

const isActiveRow = (error: unknown): error is StorageCorrupt =>
  error instanceof StorageCorrupt && error.table === ActiveScans.table && error.partitionKey === ACTIVE;

type LeasedRescans = ActiveRow["looks"];

function overlaps(a: Pick<ActiveScan, "subscriptions">, b: Pick<ActiveScan, "subscriptions">): boolean {
  if (!a.subscriptions || !b.subscriptions) return true;
  const ids = new Set(a.subscriptions.map((id) => id.toLowerCase()));
  return b.subscriptions.some((id) => ids.has(id.toLowerCase()));
}
