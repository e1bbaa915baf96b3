import type { MailAnswer, MailSender } from "../azure/mail.ts";
import { type Attempts, MAX_RETRY_AFTER_SECONDS, type Outcome } from "./attempt.ts";
import type { Part } from "./delivery.ts";
import type { MailContent } from "./email.ts";

/** Seconds before each further look at an accepted mail: the provider allows 60 a minute and 200 an hour. */
const LOOK_SECONDS = [5, 20, 60, 300, 900, 3600];

const NO_MAIL = {
  kind: "unavailable",
  reason:
    "No mail can be sent: set COMMUNICATION_ENDPOINT (or COMMUNICATION_CONNECTION_STRING) and ALERT_SENDER_ADDRESS.",
} as const;

/** Single mails. A mail has a name at the provider, by which its outcome is asked for. */
export interface MailDelivery {
  /** Sends a mail. @param test - Somebody waits for what comes of it: there is one attempt. */
  send(mail: Part, content: MailContent, test: boolean): Promise<Outcome>;
  /** What became of a mail that the provider has accepted. */
  look(mail: Part): Promise<Outcome>;
  /**
   * What became of an attempt whose answer is not known; undefined when the provider knows nothing of the mail, so that it
   * may be sent.
   */
  settle(mail: Part): Promise<Outcome | undefined>;
}

export function createMailDelivery(deps: { mail: MailSender | undefined; attempts: Attempts }): MailDelivery {
  const { mail } = deps;
  const { after, retry } = deps.attempts;

  /** The outcome of an answer that says what became of a mail the provider has, or will never have. */
  function taken(part: Part, answer: MailAnswer): Outcome {
    switch (answer.kind) {
      case "succeeded":
        return { status: "delivered" };
      case "failed":
      case "refused":
        return { status: "failed", error: answer.reason };
      case "accepted":
        return { status: "accepted", notBefore: after(LOOK_SECONDS[part.looks]!) };
      default:
        throw new Error(`A mail can't come to ${answer.kind} here.`);
    }
  }

  return {
    async send(part, content, test) {
      if (!mail) return retry(part, test, NO_MAIL.reason);
      const answer = await mail.send({ operationId: part.operationId!, to: part.recipients, ...content });
      switch (answer.kind) {
        case "throttled": {
          // The provider's limit is no failure of this delivery: it waits its turn and keeps its attempts.
          const seconds = Math.min(Math.max(1, answer.retryAfterSeconds), MAX_RETRY_AFTER_SECONDS);
          const error = `The mail provider is busy and takes it again in ${seconds} seconds.`;
          if (test) return { status: "failed", error };
          return { status: "waiting", throttled: true, attempts: part.attempts - 1, error, notBefore: after(seconds) };
        }
        case "unavailable":
          return retry(part, test, answer.reason);
        case "unknown":
          // Its outcome is asked for before it is sent again, so it stays `sending`, with nobody at work on it.
          return retry(part, false, answer.reason, { status: "sending" });
        default:
          return taken(part, answer);
      }
    },

    async look(part) {
      const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
      if (answer.kind === "succeeded" || answer.kind === "failed") return taken(part, answer);
      const looks = part.looks + 1;
      const seconds = LOOK_SECONDS[looks];
      if (seconds === undefined) {
        return {
          status: "delivered",
          looks,
          error: "The mail provider took it and did not report an outcome in time.",
        };
      }
      const asked = answer.kind === "throttled" ? answer.retryAfterSeconds : 0;
      return { status: "accepted", looks, notBefore: after(Math.max(seconds, asked)) };
    },

    async settle(part) {
      const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
      if (answer.kind === "notFound") return undefined;
      if (answer.kind === "succeeded" || answer.kind === "failed" || answer.kind === "accepted")
        return taken(part, answer);
      const looks = part.looks + 1;
      const pause = LOOK_SECONDS[looks];
      const reason = "reason" in answer ? answer.reason : "The mail provider is busy.";
      if (pause === undefined) {
        return {
          status: "failed",
          looks,
          error: `Nobody knows whether it was sent, so it was not sent again. ${reason}`,
        };
      }
      const throttled = answer.kind === "throttled";
      const asked = throttled ? answer.retryAfterSeconds : 0;
      const notBefore = after(Math.max(pause, asked));
      return { status: "sending", looks, error: reason, notBefore, ...(throttled && { throttled }) };
    },
  };
}
