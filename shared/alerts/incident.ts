import { createHash } from "node:crypto";
import { summaryOf } from "./headline.ts";
import { alertKey, type Item, notificationKey, trackedItemOf, type Urgency } from "./items.ts";
import { historyLink, type Links } from "./links.ts";
import { lineOf, toSingleLines } from "./message.ts";

/** An item as an incident for PagerDuty or ServiceNow. All texts are single lines. */
export interface Incident {
  /**
   * Deduplication key: the same for the opening, every retry and the resolution of an alert. 40 characters; PagerDuty allows
   * 255, ServiceNow 100.
   */
  key: string;
  /** `open`: the alert is new or continues. `close`: the alert is resolved. */
  action: "open" | "close";
  urgency: Urgency;
  summary: string;
  facts: [label: string, value: string][];
  /** The affected component, such as the vault's name. */
  source: string;
  links: { text: string; url: string }[];
}

/** Returns the incident of an item. An item that is never resolved gets an incident of its own, which users close. */
export function incidentOf(
  { ruleId, deliveryId, createdAt }: { ruleId: string; deliveryId: string; createdAt: string },
  item: Item,
  links: Links,
): Incident {
  const line = lineOf(item, new Date(createdAt), links);
  const tracked = trackedItemOf(item);
  const identity = tracked ? alertKey(tracked) : notificationKey(item);
  const history = historyLink(links, deliveryId);
  return {
    key: `clm-${createHash("sha256").update(`${ruleId}|${identity}`).digest("hex").slice(0, 36)}`,
    action: item.kind === "renewed" || item.kind === "recovered" ? "close" : "open",
    urgency: line.urgency,
    summary: toSingleLines(summaryOf(line)),
    facts: line.facts,
    source: toSingleLines(sourceOf(tracked ?? item)),
    links: [...line.links, ...(history ? [{ text: "Show in the alert history", url: history }] : [])],
  };
}

/** Returns the application, the vault or the resource of an item. For other items, the service. */
const sourceOf = (item: Item): string =>
  // The vault of a credential is internal.
  ("credential" in item && item.credential?.applicationName) ||
  ("vaultName" in item && item.vaultName) ||
  ("resourceId" in item && item.resourceId) ||
  "credential-lifecycle";
