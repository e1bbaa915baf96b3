import { type Claims, createClaims } from "./claims.ts";
import { createScanEnd, type EndDeps, type ScanEnd } from "./end.ts";
import { createScanPlan, type PlanDeps, type ScanPlan } from "./plan.ts";
import { createScanWork, type ScanWork, type WorkDeps } from "./work.ts";

/**
 * What the queues do: plan a scan (`plan.ts`), scan its vaults (`work.ts`), end it (`end.ts`). The plan claims as many
 * vaults as there may be workers and sends a message for each; whoever ends a vault claims the next, and whoever finds
 * none left ends the scan. What happens when a worker dies is the watch's matter (`watch.ts`).
 */
export interface ScanRun extends ScanPlan, ScanWork, Pick<ScanEnd, "finish"> {}

export type RunDeps = Omit<PlanDeps & WorkDeps & EndDeps, "claims" | "end">;

export function createScanRun(deps: RunDeps): ScanRun {
  const claims: Claims = createClaims(deps);
  const end = createScanEnd({ ...deps, claims });
  return {
    ...createScanPlan({ ...deps, claims, end }),
    ...createScanWork({ ...deps, claims, end }),
    finish: end.finish,
  };
}
