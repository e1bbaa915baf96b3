import { onOneLine } from "../http/text.ts";
import { DAY_MS } from "../time.ts";
import type { AutomationItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";

export type AutomationType =
  | "rotationDue"
  | "rotationDone"
  | "rotationFailed"
  | "syncFailed"
  | "referenceUnresolved"
  | "unexpectedReader";

/** Something to tell of, worded when it is told, from what is so then; undefined where it is not so any more. */
export interface PendingNotice {
  /** Tells it apart from all others. */
  id: string;
  /** When it came about: what is older than the rule is not told. Undefined for what is so now, since whenever. */
  at?: string;
  notice(): Promise<Omit<AutomationItem, "kind" | "id" | "at"> | undefined>;
}

/** Where things come from that this service does by itself. */
export interface AutomationSource {
  /** What came about from the instant on, or is so now, in pieces. What was named before may be named again. */
  notices(type: AutomationType, from: Date): AsyncIterable<readonly PendingNotice[]>;
}

/** How long before the last evaluation something may have been on its way into its rows. */
const LATE_MS = DAY_MS;

/** Failures that last until somebody mends them: the first evaluation tells of those that stand, whenever they began. */
const LASTING: ReadonlySet<AutomationType> = new Set(["syncFailed", "referenceUnresolved"]);

/** What came about since the rule is active and was not told of before. */
export async function automationItems(
  rule: RuleRecord,
  from: Date,
  deps: { sources: readonly AutomationSource[]; notifications: NotificationLog },
  limit: number,
): Promise<{ items: AutomationItem[]; more: boolean }> {
  const type = rule.alertType as AutomationType;
  const isFirst = from.toISOString() === rule.activeSince;
  const start = isFirst && LASTING.has(type) ? new Date(0) : new Date(from.getTime() - LATE_MS);
  const since = start.getTime() === 0 ? "" : rule.activeSince;
  const items: AutomationItem[] = [];
  for (const source of deps.sources) {
    for await (const pending of source.notices(type, start)) {
      const recent = pending.filter(({ at }) => at === undefined || at > since);
      for (const { id, at, notice } of await deps.notifications.unnotifiedAutomation(rule.ruleId, recent)) {
        if (items.length === limit) return { items, more: true };
        const words = await notice();
        if (words) items.push({ kind: "automation", id, at: at ?? from.toISOString(), ...onLines(words) });
      }
    }
  }
  return { items, more: false };
}

/** Names of applications and of targets are anybody's to choose. */
const onLines = <T extends object>(words: T): T =>
  Object.fromEntries(
    Object.entries(words).map(([name, value]) => [name, typeof value === "string" ? onOneLine(value) : value]),
  ) as T;

/** What a test of such a rule tells: nothing that exists. */
export function automationExample(type: AutomationType, now: Date): AutomationItem {
  const example = { kind: "automation", id: "example", at: now.toISOString(), urgency: "notice" } as const;
  if (type === "syncFailed") {
    return {
      ...example,
      title: "kv-example/example-password to aws/secretsmanager/example",
      what: "could not be copied",
      why: "An example: the target's credentials were refused.",
      done: "Nothing was written.",
      safe: "The target holds what it held before.",
      next: "Nothing.",
    };
  }
  if (type === "referenceUnresolved") {
    return {
      ...example,
      title: "app-example to kv-example/example-password",
      what: "is a reference that the platform can't follow",
      why: "An example: EXAMPLE_PASSWORD of app-example (webApp): AccessToKeyVaultDenied.",
      done: "Nothing was changed.",
      safe: "The secret is as it was.",
      next: "Nothing.",
    };
  }
  if (type === "unexpectedReader") {
    return {
      ...example,
      title: "kv-example/example-password",
      what: "was read by somebody whom nobody expected: example-application",
      why: "An example: SecretGet; no role, access policy or reference that is known names it.",
      done: "Nothing was changed.",
      safe: "",
      next: "Nothing.",
    };
  }
  const title = "Example application";
  if (type === "rotationDue") {
    const next = "Nothing.";
    return {
      ...example,
      title,
      what: "has a client secret that ends soon",
      why: "An example.",
      done: "",
      safe: "",
      next,
    };
  }
  const done = type === "rotationDone";
  return {
    ...example,
    title,
    what: done ? "has a new client secret" : "was not rotated",
    why: "An example.",
    done: done ? "It was written to kv-example/example-password." : "Nothing was changed.",
    safe: done ? "The new secret signs in." : "The old secret works.",
    next: "Nothing.",
  };
}
