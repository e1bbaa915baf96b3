import { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import {
  ACTIVE,
  ActiveScans,
  DONE,
  isHandedOn,
  isOver,
  PlannedVaults,
  SCAN_ROW,
  type ScanMode,
  Scans,
  scanPartition,
  WAITING,
} from "./scan.ts";

/** A scan that never got its own row within this time was lost at its birth and holds nobody up. */
const BIRTH_MS = MINUTE_MS;

/** A scan that is queued or running. */
export interface ActiveScan {
  scanId: string;
  mode: ScanMode;
  /** Undefined for all. */
  subscriptions?: string[] | undefined;
  /** Vaults it may have claimed at once, beside those that are handed on; 0 until it is planned. */
  workers: number;
  createdAt: string;
}

/** A look that was not renewed for so long is a dead worker's. */
const SILENT_LOOK_MS = MINUTE_MS;

/** A worker that looks at one vault between scans. */
export interface ActiveLook {
  /** Names it in this one life. */
  worker: string;
  subscriptionId: string;
  /** Where else it may write the vault: one that moves leaves one subscription and arrives in another. */
  otherSubscriptionIds?: string[] | undefined;
}

/** The one row that says which scans are queued or running, and who looks at vaults beside them, on all instances. */
export interface ActiveScanList {
  /** Those whose process may have died before it wrote the scan's own row, or after it ended the scan, included. */
  all(): Promise<ActiveScan[]>;
  /**
   * Takes a scan in. @throws {Problem} scanRunning when one that is not over covers any of the same subscriptions, unless
   * the new one is `force`.
   */
  enter(scan: ActiveScan): Promise<void>;
  /**
   * @throws {Problem} scanRunning while a scan covers the subscription, conflict while a vault of it is looked at: either
   * would bring back what is taken out.
   */
  refuseWhileScanned(subscriptionId: string): Promise<void>;
  /** Whether a scan in the row is really under way. */
  isAlive(scan: ActiveScan): Promise<boolean>;
  /** Takes a scan out. True when a look was refused meanwhile: one may begin now. */
  leave(scanId: string): Promise<boolean>;
  /** Gives the scan up to `wanted` workers of those `limit` leaves beside the other scans; 0 when none is left. */
  takeWorkers(scanId: string, wanted: number, limit: number): Promise<number>;
  /**
   * Takes a look in. False when the scans and other looks leave no worker of `limit` for it; of a scan only those count then
   * that have a vault, which takes two requests a scan to know.
   */
  enterLook(look: ActiveLook, limit: number): Promise<boolean>;
  /** To be called again within a minute: one that is not renewed is a dead worker's. */
  renewLook(worker: string): Promise<void>;
  leaveLook(worker: string): Promise<void>;
}

export function createActiveScans({ tables, clock }: { tables: Tables; clock: Clock }): ActiveScanList {
  /** Changes what of the row is answered; undefined leaves it as it is. Looks of dead workers go with any change. */
  const change = (of: (scans: ActiveScan[], looks: Looks, looksWait: boolean) => Partial<Active> | undefined) =>
    tables.modify(ActiveScans, ACTIVE, ACTIVE, (row) => {
      const { scans = [], looksWait = false } = row ?? {};
      const looks = underWay(row?.looks);
      const changed = of(scans, looks, looksWait);
      return changed && { scans, looks, looksWait, ...changed };
    });

  const soon = () => new Date(clock.now().getTime() + SILENT_LOOK_MS).toISOString();

  /** Without those of workers that died. */
  function underWay(looks: Looks = []): Looks {
    const now = clock.now().toISOString();
    return looks.filter(({ until }) => until > now);
  }

  /** True when there was a worker of `limit` for it. */
  async function takeIn(look: ActiveLook, limit: number): Promise<boolean> {
    let entered = false;
    await change((scans, looks, looksWait) => {
      entered = scans.reduce((sum, scan) => sum + scan.workers, looks.length) < limit;
      if (entered) return { looks: [...looks, { ...look, until: soon() }] };
      return looksWait ? undefined : { looksWait: true };
    });
    return entered;
  }

  /** How many workers a scan in the row has that need no vault any more: none waits, and fewer are claimed. */
  async function idleWorkers({ scanId, workers }: ActiveScan): Promise<number> {
    const partitionKey = scanPartition(scanId);
    const scan = await tables.get(Scans, partitionKey, SCAN_ROW);
    // Until it runs its workers may be taken and its vaults not yet claimed.
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
      claimed += rows.filter(({ rowKey }) => !isHandedOn(rowKey)).length;
    }
    return Math.max(0, workers - claimed);
  }

  const list: ActiveScanList = {
    async all() {
      return (await tables.get(ActiveScans, ACTIVE, ACTIVE))?.scans ?? [];
    },

    async enter(scan) {
      for (;;) {
        let inTheWay: ActiveScan | undefined;
        await change((scans) => {
          inTheWay = scan.mode === "force" ? undefined : scans.find((other) => overlaps(other, scan));
          return inTheWay ? undefined : { scans: [...scans, scan] };
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
      const row = await tables.get(ActiveScans, ACTIVE, ACTIVE);
      const isIn = ({ subscriptionId: one, otherSubscriptionIds = [] }: ActiveLook) =>
        [one, ...otherSubscriptionIds].includes(subscriptionId.toLowerCase());
      if (underWay(row?.looks).some(isIn)) {
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
      // Whatever clock wrote `createdAt`: a scan is as old as the last change of the row that names it, at the least.
      const named = await tables.getWithAge(ActiveScans, ACTIVE, ACTIVE);
      const sinceCreated = clock.now().getTime() - Date.parse(scan.createdAt);
      return Math.max(named?.ageMs ?? 0, sinceCreated) < BIRTH_MS;
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
        const mine = scans.find((scan) => scan.scanId === scanId);
        const others = scans.reduce((sum, scan) => sum + (scan.scanId === scanId ? 0 : scan.workers), looks.length);
        workers = Math.max(0, Math.min(wanted, limit - others));
        if (!mine || mine.workers === workers) return undefined;
        return { scans: scans.map((scan) => (scan === mine ? { ...mine, workers } : scan)) };
      });
      return workers;
    },

    async enterLook(look, limit) {
      if (await takeIn(look, limit)) return true;
      const idle = await Promise.all((await list.all()).map(idleWorkers));
      const more = idle.reduce((sum, count) => sum + count, 0);
      return more > 0 && (await takeIn(look, limit + more));
    },

    async renewLook(worker) {
      await change((_, looks) =>
        looks.some((look) => look.worker === worker)
          ? { looks: looks.map((look) => (look.worker === worker ? { ...look, until: soon() } : look)) }
          : undefined,
      );
    },

    async leaveLook(worker) {
      await change((_, looks) => {
        const left = looks.filter((look) => look.worker !== worker);
        return left.length < looks.length ? { looks: left } : undefined;
      });
    },
  };
  return list;
}

type Looks = (ActiveLook & { until: string })[];
interface Active {
  scans: ActiveScan[];
  looks: Looks;
  looksWait: boolean;
}

function overlaps(a: Pick<ActiveScan, "subscriptions">, b: Pick<ActiveScan, "subscriptions">): boolean {
  if (!a.subscriptions || !b.subscriptions) return true;
  const ids = new Set(a.subscriptions.map((id) => id.toLowerCase()));
  return b.subscriptions.some((id) => ids.has(id.toLowerCase()));
}
