import type { Caller } from "../platform/http/endpoint.ts";
import type { RotationPlan } from "./request.ts";
import { isVaultSecret, type RotationRecord, type StepName } from "./rotation.ts";

const ISSUER_STEPS: readonly StepName[] = ["create", "prove", "publish", "verify", "overlap", "revoke", "cleanUp"];
const VAULT_SECRET_STEPS: readonly StepName[] = ["publish", "verify", "overlap", "cleanUp"];

/** A rotation that is not stored yet. */
export type Draft = Omit<RotationRecord, "writeId">;

/** Creates the rotation of a plan, with its steps. */
export function draftRotation(
  plan: RotationPlan,
  { rotationId, caller, automatic, now }: { rotationId: string; caller: Caller; automatic: boolean; now: Date },
): Draft {
  const forward = isVaultSecret(plan) ? VAULT_SECRET_STEPS : ISSUER_STEPS;
  const steps = plan.removeExpired === undefined ? forward : (["makeRoom", ...forward] as const);
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
    attempts: [],
    steps: steps.map((name) => ({ name, status: "waiting", attempts: 0 })),
    failures: 0,
  };
}
