import { CloudFailure } from "../platform/azure/failure.ts";
import { Problem } from "../platform/http/problem.ts";
import { type Outgoing, type OutgoingAnswer, Unreachable } from "../platform/outgoing/outgoing.ts";
import { signatureHeaders } from "../platform/outgoing/webhooks.ts";
import type { Clock } from "../platform/runtime.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type DeliveryRecord, itemsIn, type Part } from "./delivery.ts";
import { type Incident, incidentOf } from "./incident.ts";
import { alertKey, type Item, trackedItemOf } from "./items.ts";
import type { Links } from "./links.ts";
import { messageOf } from "./message.ts";
import { pagerDutyEvent } from "./pagerduty.ts";
import type { Attempts, Outcome } from "./retry-schedule.ts";
import { opensIncidents, type RuleRecord, type WebhookSecret } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { openServiceNow, UnexpectedResponse } from "./servicenow.ts";
import { slackOf } from "./slack.ts";
import { teamsOf } from "./teams.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";
import { cloudEventOf } from "./webhook.ts";

/** Posts deliveries of alerts to webhooks, chat services (Teams, Slack) and incident services (PagerDuty, ServiceNow). */

/** Milliseconds in which a worker opens and closes incidents. With the last requests, this stays below the lease of a part. */
const INCIDENTS_MS = 60 * SECOND_MS;
/** Maximum number of incidents per step, after which another step continues. */
const MAX_INCIDENTS_PER_STEP = 50;
/**
 * After this many rejected items, the rest of a part is not sent, because the receiver probably rejects all, for example for an
 * unknown key.
 */
const MAX_REFUSED = 10;

/** Delivery by HTTP: webhooks, Teams, Slack, PagerDuty and ServiceNow. */
export interface WebhookDelivery {
  /** Posts a part to the rule's current address. */
  post(row: DeliveryRecord, part: Part, rule: RuleRecord): Promise<Outcome>;
}

/** Creates the client that posts a delivery to a webhook, chat or incident service. */
export function createWebhookDelivery(deps: {
  rules: Pick<AlertRules, "readSecret">;
  outgoing: Outgoing;
  attempts: Attempts;
  trackedAlerts: Pick<TrackedAlerts, "ofRule">;
  links: (items: readonly Item[]) => Promise<Links>;
  clock: Clock;
}): WebhookDelivery {
  const { rules, outgoing, clock } = deps;
  const { timeAfter, retry } = deps.attempts;

  /** Returns the headers and the body of a delivery to a webhook or a chat service. */
  async function requestOf(row: DeliveryRecord, secret: WebhookSecret) {
    const items = itemsIn(row);
    const links = await deps.links(items);
    const commonHeaders = { "user-agent": "credential-lifecycle" };
    if (row.deliveryMethod === "webhook") {
      const body = JSON.stringify(cloudEventOf(row, items, links));
      const signature = signatureHeaders(secret, row.deliveryId, body, clock.now());
      return { headers: { ...commonHeaders, "content-type": "application/cloudevents+json", ...signature }, body };
    }
    const message = messageOf([{ delivery: row, items }], links);
    const card = row.deliveryMethod === "slack" ? slackOf(message) : teamsOf(message);
    return { headers: { ...commonHeaders, "content-type": "application/json" }, body: JSON.stringify(card) };
  }

  /** Opens and closes the incidents of a part's items one by one, continuing where an earlier attempt stopped. */
  async function postIncidents(row: DeliveryRecord, part: Part, secret: WebhookSecret): Promise<Outcome> {
    const items = itemsIn(row);
    const links = await deps.links(items);
    const deadline = performance.now() + INCIDENTS_MS;
    /** Index of the first item that no earlier attempt posted. */
    const from = part.posted ?? 0;
    /** Number of items that the receiver accepted or permanently rejected. */
    let posted = from;
    /** `refused`: number of permanently rejected items. `refusal`: why the receiver rejected the first of them. */
    let { refused = 0, refusal } = part;
    let lastResponse: OutgoingAnswer | undefined;
    const progress = (answer: OutgoingAnswer | undefined): Partial<Part> => ({
      posted,
      ...(refusal !== undefined && { refused, refusal }),
      ...(answer && { answer: { status: answer.status, body: withoutSecrets(textOf(answer.body), secret) } }),
    });
    // If this attempt opened or closed an incident, the count of attempts starts again.
    const retryLater = (error: string, more: Partial<Part>, seconds?: number): Outcome => {
      const attempts = posted > from ? 1 : part.attempts;
      return retry({ ...part, attempts }, row.test, error, { ...more, attempts }, seconds);
    };
    try {
      const credentials = secret.credentials ?? {};
      const serviceNow =
        row.deliveryMethod === "serviceNow" ? await openServiceNow(outgoing, secret.url, credentials) : undefined;
      const apply = (incident: Incident) =>
        serviceNow
          ? serviceNow.apply(incident)
          : postEvent(outgoing, secret.url, pagerDutyEvent(incident, credentials.routingKey ?? "", row));
      while (posted < items.length) {
        if (posted - from >= MAX_INCIDENTS_PER_STEP || performance.now() > deadline) {
          // The attempt was successful so far, so it does not count.
          return { ...progress(undefined), status: "waiting", attempts: part.attempts - 1, notBefore: timeAfter(1) };
        }
        try {
          lastResponse = await apply(incidentOf(row, items[posted]!, links));
        } catch (error) {
          if (!(error instanceof UnexpectedResponse) || !isPermanentRejection(error.answer)) throw error;
          // Permanently rejected. The other items are still sent.
          refused++;
          refusal ??= error.message;
          lastResponse = error.answer;
          if (refused === MAX_REFUSED && items.length > MAX_REFUSED) {
            const error = `${refusal} The remaining items were not sent after ${refused} rejections.`;
            return { ...progress(lastResponse), status: "failed", error };
          }
        }
        posted++;
      }
      for (const item of await alreadyResolved(row, items))
        lastResponse = await apply({ ...incidentOf(row, item, links), action: "close" });
      if (refusal === undefined) return { ...progress(lastResponse), status: "delivered" };
      const count = items.length === 1 ? "" : ` The receiver rejected ${refused} of ${items.length} items.`;
      return { ...progress(lastResponse), status: "failed", error: `${refusal}${count}` };
    } catch (error) {
      if (error instanceof Unreachable) {
        if (error.permanent) return { ...progress(undefined), status: "failed", error: error.message };
        return retryLater(error.message, { ...progress(undefined), ...(error.sent && { mayBeRepeated: true }) });
      }
      if (!(error instanceof UnexpectedResponse)) throw error;
      if (isPermanentRejection(error.answer))
        return { ...progress(error.answer), status: "failed", error: error.message };
      return retryLater(error.message, progress(error.answer), retryAfterSeconds(error.answer));
    }
  }

  /**
   * Returns opened items whose alerts are already resolved, because the delivery of the resolution can be faster than this one.
   * An alert's row is removed before its resolution is sent. One request.
   */
  async function alreadyResolved(row: DeliveryRecord, items: readonly Item[]): Promise<Item[]> {
    const openedItems = items.filter(({ kind }) => kind !== "renewed" && kind !== "recovered");
    if (row.test || !openedItems.some(trackedItemOf)) return [];
    const openAlerts = await deps.trackedAlerts.ofRule(row.escalatedFrom ?? row.ruleId);
    return openedItems.filter((item) => {
      const tracked = trackedItemOf(item);
      return tracked !== undefined && !openAlerts.has(alertKey(tracked));
    });
  }

  return {
    async post(row, part, rule) {
      let secret: WebhookSecret | undefined;
      try {
        secret = await rules.readSecret(rule);
      } catch (error) {
        if (error instanceof CloudFailure) return retry(part, row.test, `${error.message} ${error.remedy}`);
        if (error instanceof Problem) return retry(part, row.test, error.message);
        throw error;
      }
      if (!secret)
        return retry(part, row.test, "The rule's webhookUrl is missing from the key vault. Set webhookUrl again.");
      if (opensIncidents(row.deliveryMethod)) return await postIncidents(row, part, secret);
      const { headers, body } = await requestOf(row, secret);
      let answer: OutgoingAnswer;
      try {
        answer = await outgoing.send(secret.url, { method: "POST", headers, body });
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        if (error.permanent) return { status: "failed", error: error.message };
        return retry(part, row.test, error.message, error.sent ? { mayBeRepeated: true } : {});
      }
      const responseMembers = { answer: { status: answer.status, body: withoutSecrets(textOf(answer.body), secret) } };
      if (answer.status >= 200 && answer.status < 300) return { ...responseMembers, status: "delivered" };
      const error = `The receiver returned ${answer.status}.${answer.status >= 300 && answer.status < 400 ? " Redirects are not followed." : ""}`;
      // https://github.com/standard-webhooks/standard-webhooks: 410 means that the receiver no longer accepts webhooks.
      if (answer.status === 410) return { ...responseMembers, status: "failed", error };
      return retry(part, row.test, error, responseMembers, retryAfterSeconds(answer));
    },
  };
}

/**
 * Sends an event to PagerDuty, which returns 202 if it accepts the event: https://developer.pagerduty.com/docs/send-alert-event
 *
 * @throws {UnexpectedResponse}
 * @throws {Unreachable}
 */
async function postEvent(outgoing: Outgoing, url: string, event: object): Promise<OutgoingAnswer> {
  const headers = { "content-type": "application/json", "user-agent": "credential-lifecycle" };
  const answer = await outgoing.send(url, { method: "POST", headers, body: JSON.stringify(event) });
  if (answer.status !== 202) throw new UnexpectedResponse(answer, `PagerDuty returned ${answer.status}.`);
  return answer;
}

/**
 * Returns whether a response is a permanent rejection of an item. Not temporary errors (408, 429), nor wrong credentials or a wrong
 * URL (401, 403, 404), which concern all items and which an administrator can correct before the last attempt.
 */
const isPermanentRejection = ({ status }: OutgoingAnswer): boolean =>
  status >= 400 && status < 500 && ![401, 403, 404, 408, 429].includes(status);

/** Returns the body as text. The body is truncated, possibly within a character. */
const textOf = (body: Buffer): string => body.toString("utf8").toWellFormed();

/**
 * Returns the seconds of Retry-After: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after. Dates are ignored, because
 * webhook receivers rarely send them.
 */
function retryAfterSeconds({ headers }: OutgoingAnswer): number | undefined {
  const value = headers["retry-after"];
  return value !== undefined && /^\d{1,6}$/.test(value) ? Number(value) : undefined;
}

/** Maximum length of a response in the history. */
const MAX_SHOWN_CHARACTERS = 1000;
/** Minimum length of a URL part that is treated as a credential. Shorter parts, such as `api`, would redact ordinary words. */
const SECRET_LENGTH = 6;

/** Returns a response without the webhook's URL and keys, which the receiver may have echoed. */
export function withoutSecrets(text: string, { url, keys, credentials = {} }: WebhookSecret): string {
  const { pathname, search, searchParams } = new URL(url);
  const parts = [...pathname.split("/"), ...searchParams.values()];
  const secrets = [
    url,
    pathname + search,
    search,
    ...parts,
    ...parts.map(percentDecoded),
    ...keys.map(({ key }) => key),
    ...Object.values(credentials),
    // The value of the basic authentication header.
    Buffer.from(`${credentials.username ?? ""}:${credentials.password ?? ""}`).toString("base64"),
  ]
    .filter((secret) => secret.length >= SECRET_LENGTH)
    .sort((a, b) => b.length - a.length);
  let result = text;
  for (const secret of secrets) result = result.replaceAll(secret, "[redacted]");
  return result.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
}

function percentDecoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not percent-encoded
  }
}
