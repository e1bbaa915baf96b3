import type { Caller } from "../platform/http/endpoint.ts";
import type { AutomaticStart, RotationPlan } from "./request.ts";
import { isVaultSecret, type RotationRecord, type StepName } from "./rotation.ts";

/** Steps if an issuer creates the new value. */
const ISSUER_STEPS: readonly StepName[] = ["create", "prove", "publish", "verify", "overlap", "revoke", "cleanUp"];
/** Steps if the new value came with the request. */
const VAULT_SECRET_STEPS: readonly StepName[] = ["publish", "verify", "overlap", "cleanUp"];

/** A rotation that is not stored yet. */
export type Draft = Omit<RotationRecord, "writeId">;

/** Creates the rotation of a plan, with its steps. */
export function draftRotation(
  plan: RotationPlan,
  {
    rotationId,
    caller,
    automatic,
    now,
  }: { rotationId: string; caller: Caller; automatic: AutomaticStart | undefined; now: Date },
): Draft {
  const usualSteps = isVaultSecret(plan) ? VAULT_SECRET_STEPS : ISSUER_STEPS;
  // An application that can't have another client secret loses an expired one first.
  const steps = plan.removeExpired === undefined ? usualSteps : (["makeRoom", ...usualSteps] as const);
  const { notes = [], ...window } = automatic ?? {};
  return {
    ...plan,
    ...window,
    notes: [...plan.notes, ...notes],
    rotationId,
    status: "planned",
    automatic: automatic !== undefined,
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
