import { DAY_MS } from "../platform/time.ts";
import type { AutomationItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

/**
 * Alert rules about events of automation (rotations, syncs), of dependency discovery, of audit streams, and of the service's own storage. A
 * source module returns its events; the rule notifies of each event once.
 */

/** The alert types of these rules. */
export type AutomationType =
  | "rotationDue"
  | "rotationDone"
  | "rotationFailed"
  | "syncFailed"
  | "referenceUnresolved"
  | "unexpectedReader"
  | "rowUnreadable"
  | "staleEndpoint"
  | "auditStreamFailing";

/** An event that may cause a notification. */
export interface PendingNotice {
  /** Unique id. */
  id: string;
  /** Time of the event. Events before the rule's activation are ignored. Undefined for a current state without a start time. */
  at?: string;
  /** Returns the text of the notification. Called when it is sent. Undefined if the event is no longer current. */
  notice(): Promise<Omit<AutomationItem, "kind" | "id" | "at"> | undefined>;
}

/** A module whose events cause notifications. */
export interface AutomationSource {
  /** Returns events since this time and current states, in pages. An event may be returned repeatedly. */
  notices(type: AutomationType, from: Date): AsyncIterable<readonly PendingNotice[]>;
}

/** Maximum delay until an event appears in its table. */
const LATE_MS = DAY_MS;

/** Types of failures that persist until they are fixed. A rule's first evaluation reports existing failures, whatever their age. */
const PERSISTING_TYPES: ReadonlySet<AutomationType> = new Set([
  "syncFailed",
  "referenceUnresolved",
  "rowUnreadable",
  "staleEndpoint",
  "auditStreamFailing",
]);

/** Returns events since the rule's activation without an earlier notification. */
export async function automationItems(
  rule: RuleRecord,
  from: Date,
  deps: { sources: readonly AutomationSource[]; notifications: NotificationLog },
  limit: number,
): Promise<{ items: AutomationItem[]; more: boolean }> {
  const type = rule.alertType as AutomationType;
  // `from` is the time of the last evaluation, or of the activation if the rule was not evaluated since.
  const isFirst = from.toISOString() === rule.activeSince;
  const start = isFirst && PERSISTING_TYPES.has(type) ? new Date(0) : new Date(from.getTime() - LATE_MS);
  // Empty: events of any age.
  const since = start.getTime() === 0 ? "" : rule.activeSince;
  const items: AutomationItem[] = [];
  for (const source of deps.sources) {
    for await (const pending of source.notices(type, start)) {
      const recent = pending.filter(({ at }) => at === undefined || at > since);
      for (const { id, at, notice } of await deps.notifications.unnotifiedAutomation(rule.ruleId, recent)) {
        if (items.length === limit) return { items, more: true };
        const text = await notice();
        if (text) items.push({ kind: "automation", id, at: at ?? from.toISOString(), ...text });
      }
    }
  }
  return { items, more: false };
}

/**
 * Yields the ids of the rule's events that the sources list: events since `from` and current states. For failures that persist,
 * it also yields earlier events, because the first evaluation after a new activation of the rule reports them.
 */
export async function* listedAutomationIds(
  rule: RuleRecord,
  sources: readonly AutomationSource[],
  from: Date,
): AsyncGenerator<string> {
  const type = rule.alertType as AutomationType;
  for (const source of sources)
    for await (const pending of source.notices(type, PERSISTING_TYPES.has(type) ? new Date(0) : from))
      for (const { id } of pending) yield id;
}

/** Returns the example item of a test. Its resources don't exist. */
export function automationExample(type: AutomationType, now: Date): AutomationItem {
  const example = { kind: "automation", id: "example", at: now.toISOString(), urgency: "notice" } as const;
  if (type === "syncFailed") {
    return {
      ...example,
      title: "kv-example/example-password to aws/secretsmanager/example",
      what: "failed to sync",
      why: "Example: the target rejected the credentials.",
      done: "No value was written.",
      safe: "The target has its previous value.",
      next: "No action is needed.",
    };
  }
  if (type === "referenceUnresolved") {
    return {
      ...example,
      title: "app-example to kv-example/example-password",
      what: "is a Key Vault reference that does not resolve",
      why: "Example: EXAMPLE_PASSWORD of app-example (webApp): AccessToKeyVaultDenied.",
      done: "No changes were made.",
      safe: "The secret is unchanged.",
      next: "No action is needed.",
    };
  }
  if (type === "unexpectedReader") {
    return {
      ...example,
      title: "kv-example/example-password",
      what: "was read by an unexpected identity: example-application",
      why: "Example: SecretGet. No known role, access policy or reference covers this identity.",
      done: "No changes were made.",
      safe: "",
      next: "No action is needed.",
    };
  }
  if (type === "rowUnreadable") {
    return {
      ...example,
      title: "A row of the table Sync",
      what: "can't be read",
      why: "Example: the signature does not match the content.",
      done: "Answers leave the row out.",
      safe: "",
      next: "No action is needed.",
    };
  }
  if (type === "staleEndpoint") {
    return {
      ...example,
      title: "kv-example/example-certificate at www.example.com:443",
      what: "is not served as it should be",
      why: "Example: An earlier version of the certificate is served.",
      done: "No changes were made at www.example.com:443.",
      safe: "",
      next: "No action is needed.",
    };
  }
  if (type === "auditStreamFailing") {
    return {
      ...example,
      title: "Example stream",
      what: "does not reach its receiver",
      why: "Example: The receiver returned 503.",
      done: "The service tries again.",
      safe: "No event is lost.",
      next: "No action is needed.",
    };
  }
  const title = "Example application";
  if (type === "rotationDue") {
    const next = "No action is needed.";
    return {
      ...example,
      title,
      what: "has a client secret that expires soon",
      why: "Example.",
      done: "",
      safe: "",
      next,
    };
  }
  const isDone = type === "rotationDone";
  return {
    ...example,
    title,
    what: isDone ? "has a new client secret" : "was not rotated",
    why: "Example.",
    done: isDone ? "The new secret was written to kv-example/example-password." : "No changes were made.",
    safe: isDone ? "Sign-in with the new secret works." : "The old secret works.",
    next: "No action is needed.",
  };
}
