import { PRODUCT } from "../platform/product.ts";
import { subjectWithin } from "./headline.ts";
import type { Incident } from "./incident.ts";
import type { Urgency } from "./items.ts";
import { toSingleLines } from "./message.ts";

/** https://developer.pagerduty.com/docs/send-alert-event: a summary and a source have at most 1,024 characters. */
const MAX_TEXT = 1024;

const SEVERITIES: Record<Urgency, "critical" | "error" | "warning" | "info"> = {
  expired: "critical",
  critical: "error",
  warning: "warning",
  notice: "info",
};

/** Returns an event for PagerDuty's Events API v2: https://developer.pagerduty.com/docs/send-alert-event */
export function pagerDutyEvent(
  incident: Incident,
  routingKey: string,
  { ruleName, alertType, createdAt }: { ruleName: string; alertType: string; createdAt: string },
): object {
  const { key, action, urgency, headline, facts, source, links } = incident;
  const event = { routing_key: routingKey, event_action: action === "open" ? "trigger" : "resolve", dedup_key: key };
  // PagerDuty finds the alert to resolve by its deduplication key and needs nothing else.
  if (action === "close") return event;
  return {
    ...event,
    client: PRODUCT,
    links: links.map(({ text, url }) => ({ href: url, text })),
    payload: {
      summary: subjectWithin(headline, MAX_TEXT),
      source: source.slice(0, MAX_TEXT).toWellFormed(),
      severity: SEVERITIES[urgency],
      timestamp: createdAt,
      group: toSingleLines(ruleName),
      class: alertType,
      custom_details: Object.fromEntries(facts),
    },
  };
}
