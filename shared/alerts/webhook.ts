import { isCredentialId } from "../inventory/asset.ts";
import { assetLink, credentialsLink, vaultLink } from "../platform/azure/portal.ts";
import type { DeliveryRecord } from "./delivery.ts";
import type { Item } from "./items.ts";
import { assetPageLink, type Links } from "./links.ts";
import { eventTypeOf } from "./rule.ts";
import type { AlertEvent, EventItem } from "./webhook-api.ts";

/** The content of webhooks: CloudEvents. They are signed as Standard Webhooks. */

/**
 * Returns the body of a webhook: CloudEvents 1.0 in structured mode.
 * https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
 */
export function cloudEventOf(delivery: Omit<DeliveryRecord, "news">, items: readonly Item[], links: Links): AlertEvent {
  const base = links.publicBaseUrl?.replace(/\/+$/, "");
  return {
    specversion: "1.0",
    id: delivery.deliveryId,
    type: eventTypeOf(delivery.alertType),
    source: base ?? "urn:credential-lifecycle",
    subject: `alerts/rules/${delivery.ruleId}`,
    time: delivery.createdAt,
    datacontenttype: "application/json",
    data: {
      rule: { id: delivery.ruleId, name: delivery.ruleName, alertType: delivery.alertType },
      deliveryMode: delivery.deliveryMode,
      test: delivery.test,
      /** True if all items are resolutions of earlier alerts. */
      resolved: items.length > 0 && items.every(({ kind }) => kind === "renewed" || kind === "recovered"),
      total: items.length,
      items: items.map((item) => itemOf(item, links)),
      historyUrl: base ? `${base}/alerts/history/${delivery.deliveryId}` : null,
    },
  };
}

/** Returns an item as receivers get it. */
function itemOf(item: Item, links: Links): EventItem {
  switch (item.kind) {
    case "asset": {
      const { credential } = item;
      return {
        id: item.id,
        type: item.type,
        name: item.name,
        vaultName: credential ? null : item.vaultName,
        vaultId: credential ? null : item.vaultId,
        subscriptionId: credential ? null : item.subscriptionId,
        subscriptionName: credential ? null : (links.subscriptionName(item.subscriptionId) ?? null),
        ...(credential ? { credential } : {}),
        owner: item.owner ?? null,
        expiresOn: new Date(item.expiresOn * 1000).toISOString(),
        thresholdDays: item.threshold,
        pageUrl: assetPageLink(links, item.id) ?? null,
        ...(item.late && {
          renewedBy: item.late.renewedBy,
          windowEnd: new Date(item.late.windowEnd * 1000).toISOString(),
        }),
        portalUrl: credential ? credentialsLink(links, credential) : assetLink(links, item),
      };
    }
    case "violation": {
      const { kind: _, vaultId, owner, ...members } = item;
      const location = isCredentialId(item.resourceId) ? { vaultName: null, subscriptionId: null } : {};
      return {
        ...members,
        ...location,
        owner: owner ?? null,
        portalUrl: vaultId ? vaultLink(links, vaultId, "") : null,
      };
    }
    case "scan": {
      const { kind: _, id, message, ...members } = item;
      return { scanId: id, ...members, message: message ?? null };
    }
    case "credential": {
      const { id, what, name, owner, expiresOn, threshold } = item;
      const expires = new Date(expiresOn * 1000).toISOString();
      return { id, what, name, owner: owner ?? null, expiresOn: expires, thresholdDays: threshold };
    }
    case "breakGlass": {
      const { kind: _, id, address, ...members } = item;
      return { entryId: id, ...members, address: address ?? null };
    }
    case "automation": {
      const { kind: _, urgency: __, appId, rotationId, recordId, ...members } = item;
      return { ...members, appId: appId ?? null, rotationId: rotationId ?? null, recordId: recordId ?? null };
    }
    case "scanFailure": {
      const { kind: _, subscriptionId, vaultName, list, ...members } = item;
      const location = { subscriptionId: subscriptionId ?? null, vaultName: vaultName ?? null, list: list ?? null };
      return { ...members, ...location };
    }
    case "renewed": {
      const { kind, of, since, expiresOn, version } = item;
      const renewedUntil = expiresOn === undefined ? null : new Date(expiresOn * 1000).toISOString();
      return { ...itemOf(of, links), state: kind, since, renewedUntil, version: version ?? null };
    }
    case "recovered":
      return { ...itemOf(item.of, links), state: item.kind, since: item.since, reason: item.reason };
    case "stillFailing":
      return { ...itemOf(item.of, links), state: item.kind, since: item.since };
    case "escalated":
      return { ...itemOf(item.of, links), state: item.kind, since: item.since, afterDays: item.afterDays };
  }
}
