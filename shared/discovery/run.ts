import { type Claims, createClaims } from "./claims.ts";
import { createScanEnd, type EndDeps, type ScanEnd } from "./end.ts";
import { createScanPlan, type PlanDeps, type ScanPlan } from "./plan.ts";
import { createScanWork, type ScanWork, type WorkDeps } from "./work.ts";

/**
 * What the queues do: plan a scan (`plan.ts`), scan its vaults (`work.ts`), end it (`end.ts`), all of which is one message
 * where the scan is small. The plan claims as many vaults as there may be workers; whoever ends a vault or hands it on claims
 * the next, and whoever finds none left ends the scan. What happens when a worker dies is the watch's matter (`watch.ts`).
 */
export interface ScanRun extends ScanPlan, ScanWork, Pick<ScanEnd, "finish"> {
  /**
   * Plans a queued scan and scans its vaults.
   * @param delivery - 1 for the message's first delivery.
   */
  scan(scanId: string, delivery: number): Promise<void>;
}

export type RunDeps = Omit<PlanDeps & WorkDeps & EndDeps, "claims" | "end">;

export function createScanRun(deps: RunDeps): ScanRun {
  const claims: Claims = createClaims(deps);
  const end = createScanEnd({ ...deps, claims });
  const { plan, planFailed } = createScanPlan({ ...deps, claims, end });
  const work = createScanWork({ ...deps, claims, end });
  return {
    plan,
    planFailed,
    ...work,
    finish: end.finish,
    async scan(scanId, delivery) {
      const planned = await plan(scanId, delivery);
      if (planned) await work.scanPlanned(planned);
    },
  };
}
