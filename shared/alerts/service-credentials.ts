import { DAY_MS } from "../platform/time.ts";
import { byUrgency, type CredentialItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

/** Finds credentials of the service itself that expire, such as API tokens of users, for alert rules. */

/** Notification thresholds in days before expiry, descending. */
export const SERVICE_CREDENTIAL_DAYS = [30, 14, 3] as const;

/** A credential that the service uses or that a user created, from the module that stores it. */
export interface ServiceCredential {
  /** Unique across all sources. */
  id: string;
  /** The kind of credential, such as `API token`. */
  what: string;
  name: string;
  /** The user it belongs to, if any. */
  owner?: string;
  /**
   * ISO 8601. Thresholds before this time don't apply, so that a token for one week causes no notification when it is created.
   */
  createdAt: string;
  expiresAt: string;
}

/** A module that stores credentials of the service. */
export interface CredentialSource {
  /** Returns the valid credentials that expire by this time. */
  expiring(latest: Date): AsyncIterable<ServiceCredential>;
}

/** Returns credentials that reached a threshold without a notification since, most urgent first. */
export async function credentialItems(
  rule: RuleRecord,
  now: Date,
  deps: { sources: readonly CredentialSource[]; notifications: NotificationLog },
  limit: number,
): Promise<{ items: CredentialItem[]; more: boolean }> {
  const items: CredentialItem[] = [];
  for (const source of deps.sources) {
    for await (const credential of source.expiring(new Date(now.getTime() + SERVICE_CREDENTIAL_DAYS[0] * DAY_MS))) {
      const threshold = reachedThreshold(credential, now);
      if (threshold === undefined) continue;
      const { id, what, name, owner, expiresAt } = credential;
      const expiresOn = Math.floor(Date.parse(expiresAt) / 1000);
      items.push({ kind: "credential", id, what, name, ...(owner !== undefined && { owner }), expiresOn, threshold });
    }
  }
  const unnotified = (await deps.notifications.unnotified(rule.ruleId, items)).sort(byUrgency);
  return { items: unnotified.slice(0, limit), more: unnotified.length > limit };
}

/** Returns the lowest threshold that the credential reached since its creation. */
function reachedThreshold({ createdAt, expiresAt }: ServiceCredential, now: Date): number | undefined {
  const reachedThresholds = SERVICE_CREDENTIAL_DAYS.filter((days) => {
    const reachedAt = Date.parse(expiresAt) - days * DAY_MS;
    return reachedAt > Date.parse(createdAt) && reachedAt <= now.getTime();
  });
  return reachedThresholds.at(-1);
}
