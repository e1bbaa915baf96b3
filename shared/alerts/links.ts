import type { Principal } from "../platform/azure/identity.ts";
import { encodePathSegment, type Portal } from "../platform/azure/portal.ts";

/** Base URLs and names for the links of a message. */
export interface Links extends Portal {
  publicBaseUrl: string | undefined;
  /** Returns the name of a subscription. The id is case-insensitive. Undefined if the name is unknown. */
  subscriptionName(subscriptionId: string): string | undefined;
  /** The service's identity, which needs permissions that scans miss. Undefined if it is unknown or not needed. */
  identity?: Principal | undefined;
}

/** Returns the public URL of the service without a trailing slash. */
const baseOf = ({ publicBaseUrl }: Links): string | undefined => publicBaseUrl?.replace(/\/+$/, "");

/** Returns the URL of the web page. Undefined if PUBLIC_BASE_URL is not set. */
function pageLink(links: Links): string | undefined {
  const base = baseOf(links);
  return base && `${base}/`;
}

/**
 * Returns the URL of a view on the web page. The API's URL would return 401 in a browser. Undefined if PUBLIC_BASE_URL is not
 * set.
 *
 * @param path - Such as `/inventory`. Segments with names are encoded.
 */
export function viewLink(links: Links, path: string): string | undefined {
  const page = pageLink(links);
  return page && `${page}#${path}`;
}

/** Returns the URL of a notification on the web page. */
export const historyLink = (links: Links, deliveryId: string): string | undefined =>
  viewLink(links, `/alerts/history/${deliveryId}`);

/** Returns the URL of an asset's page, which shows its problems and the next actions. */
export const assetPageLink = (links: Links, assetId: string): string | undefined =>
  viewLink(links, `/inventory/${encodePathSegment(assetId)}`);

/** Returns a subscription as `<name> (<id>)`, or only its id if the name is unknown. */
export function subscriptionText(links: Links, subscriptionId: string): string {
  const name = links.subscriptionName(subscriptionId);
  return name === undefined ? subscriptionId : `${name} (${subscriptionId})`;
}
