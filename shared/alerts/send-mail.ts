import type { MailAnswer, MailSender } from "../platform/azure/mail.ts";
import type { Part } from "./delivery.ts";
import type { MailContent } from "./email.ts";
import { type Attempts, MAX_RETRY_AFTER_SECONDS, type Outcome } from "./retry-schedule.ts";

/** Seconds before each status request for an accepted mail. The provider allows 60 requests per minute and 200 per hour. */
const STATUS_DELAY_SECONDS = [5, 20, 60, 300, 900, 3600];

const NO_MAIL = {
  kind: "unavailable",
  reason:
    "Mail is not configured. Set COMMUNICATION_ENDPOINT (or COMMUNICATION_CONNECTION_STRING) and ALERT_SENDER_ADDRESS.",
} as const;

/** Sends single mails. A mail has an id at the provider for status requests. */
export interface MailDelivery {
  /** Sends a mail. @param test - Whether a user waits for the result. A test has one attempt. */
  send(mail: Part, content: MailContent, test: boolean): Promise<Outcome>;
  /** Requests the status of an accepted mail. */
  requestStatus(mail: Part): Promise<Outcome>;
  /**
   * Returns the outcome of an attempt without a response. Undefined if the provider does not know the mail, so that it can be
   * sent.
   */
  findOutcome(mail: Part): Promise<Outcome | undefined>;
}

/** Creates the client that sends one mail and tracks it at the provider, so that no mail is sent twice. */
export function createMailDelivery(deps: { mail: MailSender | undefined; attempts: Attempts }): MailDelivery {
  const { mail } = deps;
  const { timeAfter, retry } = deps.attempts;

  /** Returns the outcome of a response with a definite status. */
  function outcomeOf(part: Part, answer: MailAnswer): Outcome {
    switch (answer.kind) {
      case "succeeded":
        return { status: "delivered" };
      case "failed":
      case "refused":
        return { status: "failed", error: answer.reason };
      case "accepted":
        return { status: "accepted", notBefore: timeAfter(STATUS_DELAY_SECONDS[part.looks]!) };
      default:
        throw new Error(`Unexpected response ${answer.kind}.`);
    }
  }

  return {
    async send(part, content, test) {
      if (!mail) return retry(part, test, NO_MAIL.reason);
      const answer = await mail.send({ operationId: part.operationId!, to: part.recipients, ...content });
      // `unavailable`: the provider rejected the service's credentials, so nothing was sent. `unknown`: there was no usable
      // response, so the mail may have been sent.
      switch (answer.kind) {
        case "throttled": {
          // Throttling is not a failure of this delivery, so the attempt does not count.
          const seconds = Math.min(Math.max(1, answer.retryAfterSeconds), MAX_RETRY_AFTER_SECONDS);
          const error = `The mail provider throttles requests. Next attempt in ${seconds} seconds.`;
          if (test) return { status: "failed", error };
          return {
            status: "waiting",
            throttled: true,
            attempts: part.attempts - 1,
            error,
            notBefore: timeAfter(seconds),
          };
        }
        case "unavailable":
          return retry(part, test, answer.reason);
        case "unknown":
          // The outcome must be requested before a resend, so the status stays `sending` without a lease. Also for a test, which
          // would otherwise fail although its mail may have been sent.
          return retry(part, false, answer.reason, { status: "sending" });
        default:
          return outcomeOf(part, answer);
      }
    },

    async requestStatus(part) {
      const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
      if (answer.kind === "succeeded" || answer.kind === "failed") return outcomeOf(part, answer);
      // `looks` counts the status requests.
      const looks = part.looks + 1;
      const seconds = STATUS_DELAY_SECONDS[looks];
      if (seconds === undefined) {
        return {
          status: "delivered",
          looks,
          error: "The mail provider accepted the mail but did not report its delivery in time.",
        };
      }
      const retryAfterSeconds = answer.kind === "throttled" ? answer.retryAfterSeconds : 0;
      return { status: "accepted", looks, notBefore: timeAfter(Math.max(seconds, retryAfterSeconds)) };
    },

    async findOutcome(part) {
      const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
      if (answer.kind === "notFound") return undefined;
      if (answer.kind === "succeeded" || answer.kind === "failed" || answer.kind === "accepted")
        return outcomeOf(part, answer);
      const looks = part.looks + 1;
      const seconds = STATUS_DELAY_SECONDS[looks];
      const reason = "reason" in answer ? answer.reason : "The mail provider throttles requests.";
      if (seconds === undefined) {
        return {
          status: "failed",
          looks,
          error: `It is unknown whether the mail was sent, so it was not resent. ${reason}`,
        };
      }
      const throttled = answer.kind === "throttled";
      const retryAfterSeconds = throttled ? answer.retryAfterSeconds : 0;
      const notBefore = timeAfter(Math.max(seconds, retryAfterSeconds));
      return { status: "sending", looks, error: reason, notBefore, ...(throttled && { throttled }) };
    },
  };
}
