import { audited } from "../audit/audited.ts";
import { subjectDetails } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/** Runs an effect of a rotation between an intent and an outcome in the audit log. `details` must not contain a value. */
export async function auditedEffect<T>(
  { deps, caller, record }: StepContext,
  type: `rotation.${string}`,
  details: Record<string, unknown>,
  effect: () => Promise<T>,
  result: (answer: T) => Record<string, unknown> = () => ({}),
): Promise<T> {
  const target = { type: "rotation", id: record.rotationId };
  const all = { ...subjectDetails(record), ...details };
  return await audited(deps.audit, { type, caller, target, details: all }, effect, (answer) => ({
    details: { ...all, ...result(answer) },
  }));
}
