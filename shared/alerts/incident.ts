import { createHash } from "node:crypto";
import type { DeliveryRecord } from "./delivery.ts";
import { type Headline, isResolution, lineHeadline, NO_ACTION, nextStepOf } from "./headline.ts";
import { alertKey, type Item, notificationKey, trackedItemOf, URGENCIES, type Urgency } from "./items.ts";
import { historyLink, type Links } from "./links.ts";
import { lineOf, toSingleLines } from "./message.ts";
import { ASSIGN_OWNER, type MessageLink } from "./message-line.ts";

/** Turns the items of a delivery into incidents. post-webhook.ts opens and closes them in an incident service. */

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
  /** The problem. Receivers shorten the headline to their limit with `subjectWithin`. */
  headline: Headline;
  /** Facts about the item, with the urgency in words first. */
  facts: [label: string, value: string][];
  /** The affected component, such as the vault's name. */
  source: string;
  /** The main link first. */
  links: MessageLink[];
}

/** Returns the incident of an item. An item that is never resolved gets an incident of its own, which users close. */
export function incidentOf(
  {
    ruleId,
    ruleName,
    alertType,
    deliveryId,
    createdAt,
  }: Pick<DeliveryRecord, "ruleId" | "ruleName" | "alertType" | "deliveryId" | "createdAt">,
  item: Item,
  links: Links,
): Incident {
  const line = lineOf(item, new Date(createdAt), links);
  const tracked = trackedItemOf(item);
  const identity = tracked ? alertKey(tracked) : notificationKey(item);
  const history = historyLink(links, deliveryId);
  const isResolved = isResolution(item);
  const assignOwner = isResolved ? undefined : line.location?.assignOwner;
  // The text contains the level too, because "critical" is also a status of assets and a severity of PagerDuty.
  const urgency = `${line.label.toLowerCase()} (level ${URGENCIES.indexOf(line.urgency) + 1} of ${URGENCIES.length}, 1 is the highest)`;
  const isNextStepInLine = line.facts.some(([label]) => label === "Next step");
  const nextStep = isResolved || isNextStepInLine ? undefined : nextStepOf(alertType, 1);
  return {
    key: `clm-${createHash("sha256").update(`${ruleId}|${identity}`).digest("hex").slice(0, 36)}`,
    action: isResolved ? "close" : "open",
    urgency: line.urgency,
    headline: lineHeadline(line),
    facts: [
      isResolved ? ["Next step", NO_ACTION] : ["Urgency", urgency],
      ...(nextStep === undefined ? [] : ([["Next step", nextStep]] as [string, string][])),
      ...line.facts,
      ...(line.command === undefined ? [] : ([["Command", line.command]] as [string, string][])),
      ["Rule", toSingleLines(ruleName)],
    ],
    source: toSingleLines(sourceOf(tracked ?? item)),
    links: [
      ...line.links,
      ...(assignOwner === undefined ? [] : [{ text: ASSIGN_OWNER, url: assignOwner }]),
      ...(history ? [{ text: "Show this notification", url: history }] : []),
    ],
  };
}

/** Returns the application, the vault or the resource of an item. For other items, the service. */
const sourceOf = (item: Item): string =>
  // The vault of a credential is internal.
  ("credential" in item && item.credential?.applicationName) ||
  ("vaultName" in item && item.vaultName) ||
  ("resourceId" in item && item.resourceId) ||
  "credential-lifecycle";
