import type { Caller } from "../platform/http/endpoint.ts";
import type { AutomaticStart, RotationPlan } from "./request.ts";
import { isVaultSecret, type RotationRecord, type StepName } from "./rotation.ts";

/**
 * Steps of a credential whose new value an issuer creates: a client secret of an Entra application, or a key of an Azure resource.
 */
const ISSUER_STEPS: readonly StepName[] = ["create", "prove", "publish", "verify", "overlap", "revoke", "cleanUp"];
/**
 * Steps of a vault secret whose new value came with the request. There is no credential to create, to prove or to revoke: the old
 * value stays in an earlier version.
 */
const VAULT_SECRET_STEPS: readonly StepName[] = ["publish", "verify", "overlap", "cleanUp"];

/** A rotation that is not stored yet. Each write of the row creates a new `writeId`. */
export type Draft = Omit<RotationRecord, "writeId">;

/** Returns the rotation of a plan, with all of its steps waiting. Does not store it. Starts and dry runs of rotations call it. */
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
  // Some applications can have only two client secrets. `removeExpired` is the expired one that must be removed first.
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
