import { Problem } from "../platform/http/problem.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { isUnclear } from "../platform/storage/errors.ts";
import type { AuditEvent, AuditRecorder } from "./event.ts";

/** Members that the audit entry of a successful outcome adds to the event. */
export type OutcomeMembers = Partial<Pick<AuditEvent, "before" | "after" | "details">>;

/**
 * Runs an effect (a change in storage or in the cloud) between two audit entries: first the intent, then the outcome. If the
 * intent can't be recorded, the effect does not run.
 *
 * An error of the effect is recorded and rethrown. The outcome is `refused` for a `Problem` that the caller caused (status
 * below 500) and for a conflict with another writer, else `failure`. The entry contains the reason. If it is unknown whether
 * storage or a cloud service applied the effect, no outcome is recorded, so the intent remains without one.
 *
 * @param successMembers - Returns members that the entry of success adds to the event.
 */
export async function audited<T>(
  audit: AuditRecorder,
  event: Omit<AuditEvent, "outcome">,
  effect: () => Promise<T>,
  successMembers: (result: T) => OutcomeMembers = () => ({}),
): Promise<T> {
  await audit.append({ ...event, outcome: "intent" });
  let result: T;
  try {
    result = await effect();
  } catch (error) {
    if (isUnclear(error) || isUnclearInCloud(error)) throw error;
    const reason = error instanceof Problem ? error.code : error instanceof Error ? error.name : "unknown";
    const refused = isConflict(error) || (error instanceof Problem && error.status < 500);
    const outcome = refused ? "refused" : "failure";
    await audit.append({ ...event, outcome, details: { ...event.details, reason } });
    throw error;
  }
  await audit.append({ ...event, ...successMembers(result), outcome: "success" });
  return result;
}

/**
 * Returns whether an error says that its effect may have happened. `CloudFailure` and the errors of sync targets can say so.
 */
const isUnclearInCloud = (error: unknown): boolean =>
  error instanceof Error && "unclear" in error && error.unclear === true;
