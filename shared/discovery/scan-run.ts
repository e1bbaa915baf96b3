import { createScanPlan, type PlanDeps, type ScanPlan } from "./plan.ts";
import { createScanEnd, type EndDeps, type ScanEnd } from "./scan-end.ts";
import { createScanWork, type ScanWork, type WorkDeps } from "./scan-worker.ts";
import { type Claims, createClaims } from "./vault-claims.ts";

/**
 * Connects the steps of a scan: plan (`plan.ts`), workers (`scan-worker.ts`) and end (`scan-end.ts`). A small scan does all of
 * them in one message. The plan claims one vault per worker. A worker that finishes a vault, or hands it off to be written in
 * the background, claims the next one. The worker that finds none left ends the scan. A timer (`scan-watch.ts`) recovers from
 * crashed workers and lost messages.
 */
export interface ScanRun extends ScanPlan, ScanWork, Pick<ScanEnd, "finish"> {
  /**
   * Plans a queued scan and scans its vaults.
   *
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
