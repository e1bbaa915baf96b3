import { CloudFailure } from "../azure/failure.ts";
import { Problem } from "../http/problem.ts";
import { type Outgoing, type OutgoingAnswer, Unreachable } from "../outgoing/outgoing.ts";
import type { Clock } from "../runtime.ts";
import type { Attempts, Outcome } from "./attempt.ts";
import type { DeliveryRecord, Part } from "./delivery.ts";
import { unpackItems } from "./items.ts";
import { type Links, messageOf } from "./message.ts";
import type { RuleRecord, WebhookSecret } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { slackOf } from "./slack.ts";
import { teamsOf } from "./teams.ts";
import { cloudEventOf, signatureHeaders } from "./webhook.ts";

/** Parts that are posted: webhooks, Teams and Slack. */
export interface WebhookDelivery {
  /** Posts a part to the address that the rule has now. */
  post(row: DeliveryRecord, part: Part, rule: RuleRecord): Promise<Outcome>;
}

export function createWebhookDelivery(deps: {
  rules: Pick<AlertRules, "readSecret">;
  outgoing: Outgoing;
  attempts: Attempts;
  links: Links;
  clock: Clock;
}): WebhookDelivery {
  const { rules, outgoing, links, clock } = deps;
  const { retry } = deps.attempts;

  function requestOf(row: DeliveryRecord, secret: WebhookSecret): { headers: Record<string, string>; body: string } {
    const items = unpackItems(row.news);
    const always = { "user-agent": "credential-lifecycle" };
    if (row.deliveryMethod === "webhook") {
      const body = JSON.stringify(cloudEventOf(row, items, links));
      const signature = signatureHeaders(secret, row.deliveryId, body, clock.now());
      return { headers: { ...always, "content-type": "application/cloudevents+json", ...signature }, body };
    }
    const message = messageOf(row, items, links);
    const card = row.deliveryMethod === "slack" ? slackOf(message) : teamsOf(message);
    return { headers: { ...always, "content-type": "application/json" }, body: JSON.stringify(card) };
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
      if (!secret) return retry(part, row.test, "The rule's webhookUrl is not in the key vault. Set it again.");
      const { headers, body } = requestOf(row, secret);
      let answer: OutgoingAnswer;
      try {
        answer = await outgoing.send(secret.url, { method: "POST", headers, body });
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        if (error.lasting) return { status: "failed", error: error.message };
        return retry(part, row.test, error.message, error.sent ? { mayBeRepeated: true } : {});
      }
      const shown = { answer: { status: answer.status, body: scrubbed(textOf(answer.body), secret) } };
      if (answer.status >= 200 && answer.status < 300) return { ...shown, status: "delivered" };
      const error = `The receiver answered ${answer.status}${answer.status >= 300 && answer.status < 400 ? ", and redirects are not followed" : ""}.`;
      // https://github.com/standard-webhooks/standard-webhooks: 410 means that the receiver wants no more of these.
      if (answer.status === 410) return { ...shown, status: "failed", error };
      return retry(part, row.test, error, shown, retryAfterSeconds(answer));
    },
  };
}

/** The beginning of what was answered; where it is cut may lie within a character. */
const textOf = (body: Buffer): string => body.toString("utf8").toWellFormed();

/** https://www.rfc-editor.org/rfc/rfc9110#field.retry-after, in seconds only: receivers of webhooks rarely send dates. */
function retryAfterSeconds({ headers }: OutgoingAnswer): number | undefined {
  const value = headers["retry-after"];
  return value !== undefined && /^\d{1,6}$/.test(value) ? Number(value) : undefined;
}

/** Shortest part of an address that could be a credential. */
const SECRET_LENGTH = 6;

/** What a receiver answered, without anything of the address or the keys, which it may have repeated. */
export function scrubbed(text: string, { url, keys }: WebhookSecret): string {
  const { pathname, search, searchParams } = new URL(url);
  const parts = [...pathname.split("/"), ...searchParams.values()];
  const secrets = [url, pathname + search, search, ...parts, ...parts.map(decoded), ...keys.map(({ key }) => key)]
    .filter((secret) => secret.length >= SECRET_LENGTH)
    .sort((a, b) => b.length - a.length);
  let shown = text;
  for (const secret of secrets) shown = shown.replaceAll(secret, "[redacted]");
  return shown.slice(0, 1000).toWellFormed();
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not percent-encoded after all, so it is what it is
  }
}
