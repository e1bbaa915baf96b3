import { Problem } from "../http/problem.ts";
import type { Tables } from "../storage/tables.ts";
import { ACTIVE, ActiveScans, isOver, SCAN_ROW, type ScanMode, Scans, scanPartition } from "./scan.ts";

/** A scan that never got its own row within this time was lost at its birth and holds nobody up. */
const BIRTH_MS = 60_000;

type Active = {
  scanId: string;
  mode: ScanMode;
  subscriptions?: string[] | undefined;
  workers: number;
  createdAt: string;
};

/** The one row that says which scans are queued or running, on all instances. */
export function createActiveScans(tables: Tables) {
  const change = (of: (scans: Active[]) => Active[] | undefined) =>
    tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => {
      const scans = of(row?.scans ?? []);
      return scans && { scans };
    });

  return {
    async all(): Promise<Active[]> {
      return (await tables.get(ActiveScans, ACTIVE, ACTIVE))?.scans ?? [];
    },

    /**
     * Takes a scan in. @throws {Problem} scanRunning when one that is not over covers any of the same subscriptions, unless
     * the new one is `force`.
     */
    async enter(scan: Active): Promise<void> {
      for (;;) {
        let inTheWay: Active | undefined;
        await change((scans) => {
          inTheWay = scan.mode === "force" ? undefined : scans.find((other) => overlaps(other, scan));
          return inTheWay ? undefined : [...scans, scan];
        });
        if (!inTheWay) return;
        if (await this.isAlive(inTheWay, new Date(scan.createdAt))) {
          throw new Problem(
            "scanRunning",
            `The scan ${inTheWay.scanId} covers these subscriptions and is not over. Wait for it, cancel it, or use the mode force.`,
            { members: { scanId: inTheWay.scanId } },
          );
        }
        await this.leave(inTheWay.scanId);
      }
    },

    /** @throws {Problem} scanRunning while a scan covers the subscription: it would bring back what is taken out. */
    async refuseWhileScanned(subscriptionId: string): Promise<void> {
      const scan = (await this.all()).find((one) => overlaps(one, { subscriptions: [subscriptionId] }));
      if (!scan) return;
      const detail = `The scan ${scan.scanId} covers this subscription. Wait for it or cancel it, then repeat the request.`;
      throw new Problem("scanRunning", detail, { members: { scanId: scan.scanId } });
    },

    /** Whether a scan in the row is really under way: a process may have died before it wrote or after it ended it. */
    async isAlive(scan: Active, now: Date): Promise<boolean> {
      const row = await tables.get(Scans, scanPartition(scan.scanId), SCAN_ROW);
      return row ? !isOver(row.status) : now.getTime() - Date.parse(scan.createdAt) < BIRTH_MS;
    },

    async leave(scanId: string): Promise<void> {
      await change((scans) =>
        scans.some((scan) => scan.scanId === scanId) ? scans.filter((scan) => scan.scanId !== scanId) : undefined,
      );
    },

    /** Gives the scan up to `wanted` workers of those `limit` leaves beside the other scans; 0 when none is left. */
    async takeWorkers(scanId: string, wanted: number, limit: number): Promise<number> {
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
}

function overlaps(a: Pick<Active, "subscriptions">, b: Pick<Active, "subscriptions">): boolean {
  if (!a.subscriptions || !b.subscriptions) return true;
  const ids = new Set(a.subscriptions.map((id) => id.toLowerCase()));
  return b.subscriptions.some((id) => ids.has(id.toLowerCase()));
}

export type ActiveScansRoom = ReturnType<typeof createActiveScans>;
