import { DAY_MS } from "../time.ts";
import { byUrgency, type CredentialItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

/** Days before its end at which a credential of the service is told of, falling. */
export const SERVICE_CREDENTIAL_DAYS = [30, 14, 3] as const;

/** A credential that the service itself uses, or that its users made, as the room that keeps it hands it over. */
export interface ServiceCredential {
  /** Tells it apart from all others, of every source. */
  id: string;
  /** What it is, such as `API token`. */
  what: string;
  name: string;
  /** The user it belongs to, if any. */
  owner?: string;
  /** ISO 8601. A threshold that lies before this instant is none: what is made for a week is not told of at once. */
  createdAt: string;
  expiresAt: string;
}

/** Where credentials of the service come from. */
export interface CredentialSource {
  /** Those that hold now and expire by the instant. */
  expiring(by: Date): AsyncIterable<ServiceCredential>;
}

/** Credentials that crossed a threshold and were not told of since, the most urgent first. */
export async function credentialItems(
  rule: RuleRecord,
  now: Date,
  deps: { sources: readonly CredentialSource[]; notifications: NotificationLog },
  limit: number,
): Promise<{ items: CredentialItem[]; more: boolean }> {
  const items: CredentialItem[] = [];
  for (const source of deps.sources) {
    for await (const one of source.expiring(new Date(now.getTime() + SERVICE_CREDENTIAL_DAYS[0] * DAY_MS))) {
      const threshold = crossedBy(one, now);
      if (threshold === undefined) continue;
      const { id, what, name, owner, expiresAt } = one;
      const expiresOn = Math.floor(Date.parse(expiresAt) / 1000);
      items.push({ kind: "credential", id, what, name, ...(owner !== undefined && { owner }), expiresOn, threshold });
    }
  }
  const untold = (await deps.notifications.unnotified(rule.ruleId, items)).sort(byUrgency);
  return { items: untold.slice(0, limit), more: untold.length > limit };
}

/** The lowest threshold that it has crossed since it was made. */
function crossedBy({ createdAt, expiresAt }: ServiceCredential, now: Date): number | undefined {
  const crossed = SERVICE_CREDENTIAL_DAYS.filter((days) => {
    const at = Date.parse(expiresAt) - days * DAY_MS;
    return at > Date.parse(createdAt) && at <= now.getTime();
  });
  return crossed.at(-1);
}
