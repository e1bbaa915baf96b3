import { Problem } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { MINUTE_MS } from "../time.ts";
import { ACTIVE, ActiveScans, isOver, SCAN_ROW, type ScanMode, Scans, scanPartition } from "./scan.ts";

/** A scan that never got its own row within this time was lost at its birth and holds nobody up. */
const BIRTH_MS = MINUTE_MS;

/** A scan that is queued or running. */
export interface ActiveScan {
  scanId: string;
  mode: ScanMode;
  /** Undefined for all. */
  subscriptions?: string[] | undefined;
  /** Vault messages it may have out at once; 0 until it is planned. */
  workers: number;
  createdAt: string;
}

/** The one row that says which scans are queued or running, on all instances. */
export interface ActiveScanList {
  /** Those whose process may have died before it wrote the scan's own row, or after it ended the scan, included. */
  all(): Promise<ActiveScan[]>;
  /**
   * Takes a scan in. @throws {Problem} scanRunning when one that is not over covers any of the same subscriptions, unless
   * the new one is `force`.
   */
  enter(scan: ActiveScan): Promise<void>;
  /** @throws {Problem} scanRunning while a scan covers the subscription: it would bring back what is taken out. */
  refuseWhileScanned(subscriptionId: string): Promise<void>;
  /** Whether a scan in the row is really under way. */
  isAlive(scan: ActiveScan): Promise<boolean>;
  leave(scanId: string): Promise<void>;
  /** Gives the scan up to `wanted` workers of those `limit` leaves beside the other scans; 0 when none is left. */
  takeWorkers(scanId: string, wanted: number, limit: number): Promise<number>;
}

export function createActiveScans({ tables, clock }: { tables: Tables; clock: Clock }): ActiveScanList {
  const change = (of: (scans: ActiveScan[]) => ActiveScan[] | undefined) =>
    tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => {
      const scans = of(row?.scans ?? []);
      return scans && { scans };
    });

  const list: ActiveScanList = {
    async all() {
      return (await tables.get(ActiveScans, ACTIVE, ACTIVE))?.scans ?? [];
    },

    async enter(scan) {
      for (;;) {
        let inTheWay: ActiveScan | undefined;
        await change((scans) => {
          inTheWay = scan.mode === "force" ? undefined : scans.find((other) => overlaps(other, scan));
          return inTheWay ? undefined : [...scans, scan];
        });
        if (!inTheWay) return;
        if (await list.isAlive(inTheWay)) {
          throw new Problem(
            "scanRunning",
            `The scan ${inTheWay.scanId} covers these subscriptions and is not over. Wait for it, cancel it, or use the mode force.`,
            { members: { scanId: inTheWay.scanId } },
          );
        }
        await list.leave(inTheWay.scanId);
      }
    },

    async refuseWhileScanned(subscriptionId) {
      const scan = (await list.all()).find((one) => overlaps(one, { subscriptions: [subscriptionId] }));
      if (!scan) return;
      const detail = `The scan ${scan.scanId} covers this subscription. Wait for it or cancel it, then repeat the request.`;
      throw new Problem("scanRunning", detail, { members: { scanId: scan.scanId } });
    },

    async isAlive(scan) {
      const row = await tables.get(Scans, scanPartition(scan.scanId), SCAN_ROW);
      if (row) return !isOver(row.status);
      // Whatever clock wrote `createdAt`: a scan is as old as the last change of the row that names it, at the least.
      const named = await tables.aged(ActiveScans, ACTIVE, ACTIVE);
      const sinceCreated = clock.now().getTime() - Date.parse(scan.createdAt);
      return Math.max(named?.ageMs ?? 0, sinceCreated) < BIRTH_MS;
    },

    async leave(scanId) {
      await change((scans) =>
        scans.some((scan) => scan.scanId === scanId) ? scans.filter((scan) => scan.scanId !== scanId) : undefined,
      );
    },

    async takeWorkers(scanId, wanted, limit) {
      let workers = 0;
      await change((scans) => {
        const mine = scans.find((scan) => scan.scanId === scanId);
        const others = scans.reduce((sum, scan) => sum + (scan.scanId === scanId ? 0 : scan.workers), 0);
        workers = Math.max(0, Math.min(wanted, limit - others));
        if (!mine || mine.workers === workers) return undefined;
        return scans.map((scan) => (scan === mine ? { ...mine, workers } : scan));
      });
      return workers;
    },
  };
  return list;
}

function overlaps(a: Pick<ActiveScan, "subscriptions">, b: Pick<ActiveScan, "subscriptions">): boolean {
  if (!a.subscriptions || !b.subscriptions) return true;
  const ids = new Set(a.subscriptions.map((id) => id.toLowerCase()));
  return b.subscriptions.some((id) => ids.has(id.toLowerCase()));
}
