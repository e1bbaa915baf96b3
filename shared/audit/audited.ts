import { Problem } from "../http/problem.ts";
import type { Appender, AuditEvent } from "./event.ts";

/** What the entry of a finished effect says beside its event. */
export type Entered = Partial<Pick<AuditEvent, "before" | "after" | "details">>;

/**
 * Has an effect between two entries: the intent, without which nothing happens, and the outcome. What `effect` throws is
 * entered and thrown on: a Problem as `refused`, anything else as `failure`, both with the reason.
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
    const reason = error instanceof Problem ? error.code : error instanceof Error ? error.name : "unknown";
    const outcome = error instanceof Problem ? "refused" : "failure";
    await audit.append({ ...event, outcome, details: { ...event.details, reason } });
    throw error;
  }
  await audit.append({ ...event, ...entered(result), outcome: "success" });
  return result;
}
