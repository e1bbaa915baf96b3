import type { Audit, AuditEvent } from "../audit/audit.ts";

/** Does something with its intent entered before and its outcome after. */
export async function audited<T>(
  audit: Pick<Audit, "append">,
  event: Omit<AuditEvent, "outcome">,
  effect: () => Promise<T>,
): Promise<T> {
  await audit.append({ ...event, outcome: "intent" });
  let result: T;
  try {
    result = await effect();
  } catch (error) {
    await audit.append({ ...event, outcome: "failure" });
    throw error;
  }
  await audit.append({ ...event, outcome: "success" });
  return result;
}
