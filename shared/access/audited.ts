import type { Audit, AuditEvent } from "../audit/audit.ts";
import { Problem } from "../http/problem.ts";

/** What the entry of a finished effect says beside its event. */
type Result = Pick<AuditEvent, "before" | "after">;

/**
 * Has an effect between two entries: the intent, without which nothing happens, and how it ended. `effect` returns what
 * the second entry tells; what it throws is entered by its code or name and thrown on.
 */
export async function audited(
  audit: Audit,
  event: Omit<AuditEvent, "outcome">,
  effect: () => Promise<Result>,
): Promise<void> {
  await audit.append({ ...event, outcome: "intent" });
  let result: Result;
  try {
    result = await effect();
  } catch (error) {
    const reason = error instanceof Problem ? error.code : error instanceof Error ? error.name : "unknown";
    const outcome = error instanceof Problem ? "refused" : "failure";
    await audit.append({ ...event, outcome, details: { ...event.details, reason } });
    throw error;
  }
  await audit.append({ ...event, ...result, outcome: "success" });
}
