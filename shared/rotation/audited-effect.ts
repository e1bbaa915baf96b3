import { audited } from "../audit/audited.ts";
import { subjectDetails } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/**
 * Runs one change that a rotation makes outside of its own row, such as the removal of a client secret. Writes an audit entry with
 * the intent before it, and one with the outcome after it.
 *
 * @param details - Members of both entries. They must not contain a secret value.
 * @param result - Returns further members of the entry with the outcome, from what the change returned.
 */
export async function auditedEffect<T>(
  { deps, caller, record }: StepContext,
  type: `rotation.${string}`,
  details: Record<string, unknown>,
  effect: () => Promise<T>,
  result: (answer: T) => Record<string, unknown> = () => ({}),
): Promise<T> {
  const target = { type: "rotation", id: record.rotationId };
  const intentDetails = { ...subjectDetails(record), ...details };
  return await audited(deps.audit, { type, caller, target, details: intentDetails }, effect, (answer) => ({
    details: { ...intentDetails, ...result(answer) },
  }));
}
