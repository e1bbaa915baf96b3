import { Problem } from "../platform/http/problem.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { isUnclear } from "../platform/storage/errors.ts";
import type { AuditEvent, AuditRecorder } from "./event.ts";

/** Members that the entry of a successful outcome adds to the event. */
export type Entered = Partial<Pick<AuditEvent, "before" | "after" | "details">>;

/**
 * Runs an effect between two audit entries: first the intent, without which the effect does not run, then the outcome. A thrown
 * error is recorded and rethrown: a Problem of the caller or a lost race with another writer as `refused`, any other error as
 * `failure`, both with the reason. If storage or a cloud service left it open whether the effect happened, no outcome is
 * recorded. The intent then stands alone until the request is repeated. An effect that knows the outcome throws a Problem.
 *
 * @param entered - Returns the members that the entry of success adds.
 */
export async function audited<T>(
  audit: AuditRecorder,
  event: Omit<AuditEvent, "outcome">,
  effect: () => Promise<T>,
  entered: (result: T) => Entered = () => ({}),
): Promise<T> {
  await audit.append({ ...event, outcome: "intent" });
  let result: T;
  try {
    result = await effect();
  } catch (error) {
    if (isUnclear(error) || leavesOpen(error)) throw error;
    const reason = error instanceof Problem ? error.code : error instanceof Error ? error.name : "unknown";
    const refused = isConflict(error) || (error instanceof Problem && error.status < 500);
    const outcome = refused ? "refused" : "failure";
    await audit.append({ ...event, outcome, details: { ...event.details, reason } });
    throw error;
  }
  await audit.append({ ...event, ...entered(result), outcome: "success" });
  return result;
}

/** Errors of other services carry this information: `CloudFailure` and the errors of sync targets. */
const leavesOpen = (error: unknown): boolean => error instanceof Error && "unclear" in error && error.unclear === true;
