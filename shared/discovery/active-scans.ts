import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import {
  ACTIVE,
  ActiveScans,
  DONE,
  isHandedOff,
  isOver,
  PlannedVaults,
  SCAN_ROW,
  type ScanMode,
  Scans,
  scanPartition,
  WAITING,
} from "./scan.ts";

/** Age from which an active scan without its own row counts as lost: the process that created it crashed. */
const CREATION_MS = MINUTE_MS;

/** A scan that is queued or running. */
export interface ActiveScan {
  scanId: string;
  mode: ScanMode;
  /** Undefined for all subscriptions. */
  subscriptions?: string[] | undefined;
  /** Vaults the scan may have claimed at once, without those handed off. 0 until it is planned. */
  workers: number;
  createdAt: string;
}

/** A re-scan that is not renewed for this time belongs to a crashed worker. */
const SILENT_RESCAN_MS = MINUTE_MS;

/** A worker that re-scans one vault between scans. */
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
 * scans and enforces `discoveryMaxWorkers`.
 */
export interface ActiveScanList {
  /**
   * Returns all listed scans, also those whose process may have crashed before it wrote the scan's row or after it ended the
   * scan.
   */
  all(): Promise<ActiveScan[]>;
  /**
   * Adds a scan.
   *
   * @throws {Problem} scanRunning when an active scan covers any of the same subscriptions, unless the new scan is `force`.
   */
  enter(scan: ActiveScan): Promise<void>;
  /**
   * Rejects the removal of a subscription while it is scanned, because the scan would add its vaults again.
   *
   * @throws {Problem} scanRunning while a scan covers the subscription, conflict while one of its vaults is re-scanned.
   */
  rejectWhileScanned(subscriptionId: string): Promise<void>;
  /** Returns whether a listed scan is really queued or running. */
  isAlive(scan: ActiveScan): Promise<boolean>;
  /** Removes a scan. Returns true if a re-scan was denied a worker meanwhile and can start now. */
  leave(scanId: string): Promise<boolean>;
  /**
   * Assigns up to `wanted` workers to the scan, as far as `limit` and the other scans allow. Returns the number, 0 if none is
   * free.
   */
  takeWorkers(scanId: string, wanted: number, limit: number): Promise<number>;
  /**
   * Adds a re-scan. False if scans and other re-scans use all workers of `limit`. If the limit is reached, idle workers of
   * scans are not counted, which takes two requests per scan.
   */
  enterRescan(look: ActiveRescan, limit: number): Promise<boolean>;
  /** Renews a re-scan's lease. Call it more often than once a minute. */
  renewRescan(worker: string): Promise<void>;
  leaveRescan(worker: string): Promise<void>;
}

export function createActiveScans({ tables, clock }: { tables: Tables; clock: Clock }): ActiveScanList {
  /**
   * Changes the row's members that `of` returns; undefined leaves the row unchanged. Every change also drops re-scans of
   * crashed workers.
   */
  const change = (of: (scans: ActiveScan[], looks: Rescans, looksWait: boolean) => Partial<Active> | undefined) =>
    tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => {
      const { scans = [], looksWait = false } = row ?? {};
      const looks = aliveRescans(row?.looks);
      const changed = of(scans, looks, looksWait);
      return changed && { scans, looks, looksWait, ...changed };
    });

  const leaseEnd = () => new Date(clock.now().getTime() + SILENT_RESCAN_MS).toISOString();

  /** Returns the re-scans whose worker has not crashed. */
  function aliveRescans(looks: Rescans = []): Rescans {
    const now = clock.now().toISOString();
    return looks.filter(({ until }) => until > now);
  }

  /** Adds a re-scan. Returns false if `limit` workers are in use. */
  async function tryEnter(look: ActiveRescan, limit: number): Promise<boolean> {
    let entered = false;
    await change((scans, looks, looksWait) => {
      entered = scans.reduce((sum, scan) => sum + scan.workers, looks.length) < limit;
      if (entered) return { looks: [...looks, { ...look, until: leaseEnd() }] };
      return looksWait ? undefined : { looksWait: true };
    });
    return entered;
  }

  /**
   * Returns the number of a listed scan's workers that no longer have a vault: none waits, and fewer are claimed than workers
   * assigned.
   */
  async function idleWorkers({ scanId, workers }: ActiveScan): Promise<number> {
    const partitionKey = scanPartition(scanId);
    const scan = await tables.get(Scans, partitionKey, SCAN_ROW);
    // Before the scan runs, its workers may be assigned while its vaults are not claimed yet.
    if (scan?.status !== "running") return 0;
    let claimed = 0;
    const range = {
      partitionKey,
      from: WAITING,
      before: DONE,
      pageSize: Math.max(1, workers),
      select: ["name" as const],
    };
    for await (const rows of tables.pages(PlannedVaults, range)) {
      if (rows[0]?.rowKey.startsWith(WAITING)) return 0;
      claimed += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
    }
    return Math.max(0, workers - claimed);
  }

  const list: ActiveScanList = {
    async all() {
      return (await tables.get(ActiveScans, ACTIVE, ACTIVE))?.scans ?? [];
    },

    async enter(scan) {
      for (;;) {
        let conflicting: ActiveScan | undefined;
        await change((scans) => {
          conflicting = scan.mode === "force" ? undefined : scans.find((other) => overlaps(other, scan));
          return conflicting ? undefined : { scans: [...scans, scan] };
        });
        if (!conflicting) return;
        if (await list.isAlive(conflicting)) {
          throw new Problem(
            "scanRunning",
            `The scan ${conflicting.scanId} covers these subscriptions and is not over. Wait for it, cancel it, or use the mode force.`,
            { members: { scanId: conflicting.scanId } },
          );
        }
        await list.leave(conflicting.scanId);
      }
    },

    async rejectWhileScanned(subscriptionId) {
      const row = await tables.get(ActiveScans, ACTIVE, ACTIVE);
      const covers = ({ subscriptionId: one, otherSubscriptionIds = [] }: ActiveRescan) =>
        [one, ...otherSubscriptionIds].includes(subscriptionId.toLowerCase());
      if (aliveRescans(row?.looks).some(covers)) {
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
      if (row) return !isOver(row.status);
      // Independent of the clock that wrote `createdAt`: a scan is at least as old as the last change of the row that lists it.
      const named = await tables.getWithAge(ActiveScans, ACTIVE, ACTIVE);
      const sinceCreated = clock.now().getTime() - Date.parse(scan.createdAt);
      return Math.max(named?.ageMs ?? 0, sinceCreated) < CREATION_MS;
    },

    async leave(scanId) {
      let looksWaited = false;
      await change((scans, _, looksWait) => {
        const left = scans.filter((scan) => scan.scanId !== scanId);
        if (left.length === scans.length) return undefined;
        looksWaited = looksWait;
        return { scans: left, looksWait: false };
      });
      return looksWaited;
    },

    async takeWorkers(scanId, wanted, limit) {
      let workers = 0;
      await change((scans, looks) => {
        const own = scans.find((scan) => scan.scanId === scanId);
        const others = scans.reduce((sum, scan) => sum + (scan.scanId === scanId ? 0 : scan.workers), looks.length);
        workers = Math.max(0, Math.min(wanted, limit - others));
        if (!own || own.workers === workers) return undefined;
        return { scans: scans.map((scan) => (scan === own ? { ...own, workers } : scan)) };
      });
      return workers;
    },

    async enterRescan(look, limit) {
      if (await tryEnter(look, limit)) return true;
      const idle = await Promise.all((await list.all()).map(idleWorkers));
      const more = idle.reduce((sum, count) => sum + count, 0);
      return more > 0 && (await tryEnter(look, limit + more));
    },

    async renewRescan(worker) {
      await change((_, looks) =>
        looks.some((look) => look.worker === worker)
          ? { looks: looks.map((look) => (look.worker === worker ? { ...look, until: leaseEnd() } : look)) }
          : undefined,
      );
    },

    async leaveRescan(worker) {
      await change((_, looks) => {
        const left = looks.filter((look) => look.worker !== worker);
        return left.length < looks.length ? { looks: left } : undefined;
      });
    },
  };
  return list;
}

type Rescans = (ActiveRescan & { until: string })[];
interface Active {
  scans: ActiveScan[];
  looks: Rescans;
  looksWait: boolean;
}

function overlaps(a: Pick<ActiveScan, "subscriptions">, b: Pick<ActiveScan, "subscriptions">): boolean {
  if (!a.subscriptions || !b.subscriptions) return true;
  const ids = new Set(a.subscriptions.map((id) => id.toLowerCase()));
  return b.subscriptions.some((id) => ids.has(id.toLowerCase()));
}
