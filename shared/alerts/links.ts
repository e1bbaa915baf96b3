import type { Portal } from "../azure/portal.ts";

/** What the links of a message are made of. */
export interface Links extends Portal {
  publicBaseUrl: string | undefined;
  /** A subscription's name, by its id in any case; undefined where it is not known. */
  subscriptionName(subscriptionId: string): string | undefined;
}

/** Where people reach the service, without a slash at the end. */
const baseOf = ({ publicBaseUrl }: Links): string | undefined => publicBaseUrl?.replace(/\/+$/, "");

/** The service's page, which signs people in; undefined when PUBLIC_BASE_URL is not set. */
export function pageLink(links: Links): string | undefined {
  const base = baseOf(links);
  return base && `${base}/`;
}

/** An entry of the history on the page: its address in the API would answer 401 in a browser. */
export function historyLink(links: Links, deliveryId: string): string | undefined {
  const page = pageLink(links);
  return page && `${page}#/alerts/history/${deliveryId}`;
}

/** `Payments (8a31…)`, or the id alone. */
export function subscriptionText(links: Links, subscriptionId: string): string {
  const name = links.subscriptionName(subscriptionId);
  return name === undefined ? subscriptionId : `${name} (${subscriptionId})`;
}
