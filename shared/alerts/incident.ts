import { createHash } from "node:crypto";
import { alertKey, followedIn, type Item, notificationKey, type Urgency } from "./items.ts";
import { historyLink, type Links, pageLink } from "./links.ts";
import { lineOf } from "./message.ts";

/** What is known of an item where it is to be an incident elsewhere. */
export interface Incident {
  /**
   * The same from the message that tells of it to the one that ends it, and at every repeat: 40 characters, of which PagerDuty
   * takes 255 and ServiceNow 100.
   */
  key: string;
  /** `open`: it begins, or lasts. `close`: it has ended. */
  action: "open" | "close";
  urgency: Urgency;
  /** One line. */
  summary: string;
  facts: [label: string, value: string][];
  /** The vault, the application or whatever else it is about. */
  source: string;
  links: { text: string; url: string }[];
}

/** The incident of an item of a rule. What is told of once and never ends has one of its own that people close. */
export function incidentOf(
  { ruleId, deliveryId, createdAt }: { ruleId: string; deliveryId: string; createdAt: string },
  item: Item,
  links: Links,
): Incident {
  const line = lineOf(item, new Date(createdAt), links);
  const followed = followedIn(item);
  const identity = followed ? alertKey(followed) : notificationKey(item);
  const history = historyLink(links, deliveryId);
  const page = pageLink(links);
  return {
    key: `clm-${createHash("sha256").update(`${ruleId}|${identity}`).digest("hex").slice(0, 36)}`,
    action: item.kind === "renewed" || item.kind === "recovered" ? "close" : "open",
    urgency: line.urgency,
    summary: `${line.title} ${line.what}`,
    facts: line.facts,
    source: sourceOf(followed ?? item),
    links: [
      ...(line.link ? [line.link] : []),
      ...(history ? [{ text: "Show in the history", url: history }] : []),
      ...(page ? [{ text: "Open the service", url: page }] : []),
    ],
  };
}

const sourceOf = (item: Item): string =>
  ("vaultName" in item && item.vaultName) || ("resourceId" in item && item.resourceId) || "credential-lifecycle";
