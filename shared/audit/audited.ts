import { Problem } from "../platform/http/problem.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { isUnclear } from "../platform/storage/errors.ts";
import type { Appender, AuditEvent } from "./event.ts";

/** What the entry of a finished effect says beside its event. */
export type Entered = Partial<Pick<AuditEvent, "before" | "after" | "details">>;

/**
 * Has an effect between two entries: the intent, without which nothing happens, and the outcome. What `effect` throws is
 * entered and thrown on: a Problem of the caller's, or that another writer was faster, as `refused`, anything else as
 * `failure`, both with the reason. Where storage or a cloud service left open whether the effect came about, nothing is
 * entered: the intent stands alone, and a repeat of the request settles it. An effect that knows better throws a Problem.
 *
 * @param entered - What the entry of success says of the result.
 */
export async function audited<T>(
  audit: Appender,
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

/** Failures of other services say so themselves: `CloudFailure`, and those of sync targets. */
const leavesOpen = (error: unknown): boolean => error instanceof Error && "unclear" in error && error.unclear === true;
