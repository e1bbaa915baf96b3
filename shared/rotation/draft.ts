import type { Caller } from "../http/endpoint.ts";
import type { RotationPlan } from "./plan.ts";
import type { RotationRecord, StepName } from "./rotation.ts";

const FORWARD: readonly StepName[] = ["create", "prove", "publish", "verify", "overlap", "revoke", "cleanUp"];

/** A rotation before it is written. */
export type Draft = Omit<RotationRecord, "writeId">;

/** The rotation that a plan begins with. */
export function draft(
  plan: RotationPlan,
  { rotationId, caller, automatic, now }: { rotationId: string; caller: Caller; automatic: boolean; now: Date },
): Draft {
  const steps = plan.removeExpired === undefined ? FORWARD : (["makeRoom", ...FORWARD] as const);
  return {
    ...plan,
    rotationId,
    status: "planned",
    automatic,
    requestedBy: caller.actor,
    requestId: caller.requestId,
    createdAt: now.toISOString(),
    dueAt: now.toISOString(),
    needsConfirmation: false,
    reasons: [],
    coverage: [],
    attempts: [],
    steps: steps.map((name) => ({ name, status: "waiting", attempts: 0 })),
    failures: 0,
  };
}
