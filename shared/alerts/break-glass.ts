import type { Audit } from "../audit/audit.ts";
import { DAY_MS } from "../platform/time.ts";
import type { BreakGlassItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

/** Maximum delay until an event appears in the audit log. */
const LATE_MS = DAY_MS;

/**
 * Returns the items of a rule about break-glass access: sign-ins with a password while passwords are turned off. Sign-ins
 * before the rule's activation and those with a notification are left out.
 *
 * @param from - Time of the rule's last evaluation.
 * @param limit - Maximum number of sign-ins that this call reads.
 * @returns `more`: whether there are further sign-ins that this call did not read.
 */
export async function breakGlassItems(
  rule: RuleRecord,
  from: Date,
  deps: { audit: Pick<Audit, "list">; notifications: NotificationLog },
  limit: number,
): Promise<{ items: BreakGlassItem[]; more: boolean }> {
  const start = new Date(Math.max(from.getTime() - LATE_MS, Date.parse(rule.activeSince)));
  const query = { eventType: "access.breakGlass", start };
  const { items: entries, nextCursor } = await deps.audit.list(query, { limit, offset: 0, cursor: undefined });
  const items = entries.map(({ id, actor, address, occurredAt }): BreakGlassItem => {
    return { kind: "breakGlass", id, username: actor, ...(address !== undefined && { address }), at: occurredAt };
  });
  return { items: await deps.notifications.unnotified(rule.ruleId, items), more: nextCursor !== null };
}
