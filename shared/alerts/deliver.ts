import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../azure/failure.ts";
import type { MailAnswer, MailSender } from "../azure/mail.ts";
import { Problem } from "../http/problem.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Row } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { merge, RowChanged, type Tables } from "../storage/tables.ts";
import {
  attemptsOf,
  DELIVERY_QUEUE,
  DELIVERY_ROW,
  Deliveries,
  type DeliveryRecord,
  isFinal,
  type Part,
  statusOf,
} from "./delivery.ts";
import { mailOf } from "./email.ts";
import type { History } from "./history.ts";
import { type Links, messageOf } from "./message.ts";
import { unpackNews } from "./news.ts";
import { NotDelivered, type Outgoing, type ReceiverAnswer } from "./outgoing.ts";
import { recordOf } from "./record.ts";
import type { RuleRecord, WebhookSecret } from "./rule.ts";
import type { RuleRoom } from "./rules.ts";
import { slackOf } from "./slack.ts";
import { teamsOf } from "./teams.ts";
import { cloudEventOf, signatureHeaders } from "./webhook.ts";

/**
 * Seconds before each further attempt: the first steps of the schedule that Standard Webhooks recommends, 17 hours in all.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#deliverability-and-reliability
 */
export const BACK_OFF_SECONDS = [5, 300, 1800, 7200, 18_000, 36_000];
/** Seconds before each further look at an accepted mail: the provider allows 60 a minute and 200 an hour. */
const LOOK_SECONDS = [5, 20, 60, 300, 900, 3600];
/** Longer than any attempt takes: until then nobody else may go on with a part. */
const LEASE_MS = 120_000;
/** Seconds a receiver may ask to be left alone; longer ones are asked again after this. */
const MAX_RETRY_AFTER_SECONDS = 3600;
/** Seconds between looks while notifications are turned off. */
const HOLD_SECONDS = 300;
/** Seconds before a delivery that another worker has in hand is looked at again. */
const BUSY_SECONDS = 15;
/** How often a delivery comes back from the poison queue, and after how many seconds. */
const MAX_REVIVALS = 5;
const REVIVAL_SECONDS = 600;

/** What an attempt changes in a part. */
type Outcome = Partial<Part> & Pick<Part, "status">;

/**
 * Sends what was recorded. Before anything leaves, the part says `sending`; what came of it is written after. A worker
 * that finds `sending` and no worker behind it does not know whether the message left: of a mail it asks the provider and
 * sends again only what that does not know, a webhook it posts again under the same id.
 */
export function createDeliveries(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  rules: RuleRoom;
  history: History;
  audit: Pick<Audit, "append">;
  mail: MailSender | undefined;
  outgoing: Outgoing;
  links: Links;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}) {
  const { tables, queues, history, rules, audit, mail, outgoing, links, clock, log } = deps;

  const after = (seconds: number): string => new Date(clock.now().getTime() + seconds * 1000).toISOString();

  async function write(row: Row<DeliveryRecord>, change: Partial<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const operation = merge(Deliveries, DELIVERY_ROW, change, row.etag);
    const etags = await tables.transaction(Deliveries.table, row.deliveryId, [operation]);
    return { ...row, ...change, etag: etags.get(DELIVERY_ROW)! };
  }

  const writePart = (row: Row<DeliveryRecord>, index: number, part: Part): Promise<Row<DeliveryRecord>> => {
    const parts = row.parts.map((one, at) => (at === index ? part : one));
    return write(row, { parts, nextAt: nextAt(parts, row.nextAt) });
  };

  /**
   * Goes on with a delivery as far as it can be taken now.
   *
   * @returns Seconds until there is more to do; undefined when it is over.
   */
  async function work(deliveryId: string): Promise<number | undefined> {
    let row = await history.get(deliveryId);
    if (!row) return undefined;
    if (row.status !== "pending") {
      await history.show(recordOf(row));
      return undefined;
    }
    const wait = secondsUntil(row.nextAt);
    if (wait > 0) return wait;
    if (!row.test && !(await deps.settings.values()).enableNotifications) return HOLD_SECONDS;
    const rule = await rules.find(row.ruleId);
    try {
      if (row.parts.every(({ attempts }) => attempts === 0)) await enter(row, "intent");
      for (let index = 0; index < row.parts.length; index++) row = await advance(row, index, rule);
      if (row.parts.every(isFinal)) {
        const status = statusOf(row.parts);
        await enter(row, status === "delivered" ? "success" : "failure");
        row = await write(row, { status, finishedAt: clock.now().toISOString() });
        log.info("A delivery is over", { deliveryId, status });
      }
      await history.show(recordOf(row));
      return row.status === "pending" ? Math.max(1, secondsUntil(row.nextAt)) : undefined;
    } catch (error) {
      if (!(error instanceof RowChanged)) throw error;
      log.debug("A delivery is in another worker's hands", { deliveryId });
      return BUSY_SECONDS;
    }
  }

  /** The part's next step, if it is time for one. */
  async function advance(
    row: Row<DeliveryRecord>,
    index: number,
    rule: RuleRecord | undefined,
  ): Promise<Row<DeliveryRecord>> {
    const part = row.parts[index]!;
    const now = clock.now().toISOString();
    if (isFinal(part) || (part.notBefore ?? "") > now) return row;
    if (part.status === "sending" && (part.leasedUntil ?? "") > now) return row;
    const gone = !rule || (!rule.enabled && !row.test);
    switch (part.status) {
      case "waiting":
        return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, {});
      case "accepted":
        return await writePart(row, index, settled(part, await look(part)));
      case "sending": {
        if (row.deliveryMethod !== "email") {
          // It may have arrived, so this is a repeat, which the receiver can tell by the id.
          return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, { mayBeRepeated: true });
        }
        const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
        if (answer.kind === "notFound") {
          return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, {});
        }
        return await writePart(row, index, settled(part, afterDoubt(part, answer)));
      }
      default:
        return row;
    }
  }

  async function attempt(
    row: Row<DeliveryRecord>,
    index: number,
    rule: RuleRecord,
    change: Partial<Part>,
  ): Promise<Row<DeliveryRecord>> {
    const leasedUntil = new Date(clock.now().getTime() + LEASE_MS).toISOString();
    const before = row.parts[index]!;
    const sending: Part = { ...before, ...change, status: "sending", attempts: before.attempts + 1, leasedUntil };
    const claimed = await writePart(row, index, sending);
    const outcome =
      row.deliveryMethod === "email" ? await sendMail(claimed, sending) : await post(claimed, sending, rule);
    return await writePart(claimed, index, settled(sending, outcome));
  }

  const cancel = (row: Row<DeliveryRecord>, index: number, rule: RuleRecord | undefined) => {
    const error = rule ? "The rule was disabled before this was sent." : "The rule was deleted before this was sent.";
    return writePart(row, index, settled(row.parts[index]!, { status: "cancelled", error }));
  };

  /** The part with an outcome; what held only during the attempt goes. */
  function settled({ leasedUntil: _l, notBefore: _n, error: _e, ...part }: Part, outcome: Outcome): Part {
    const next = { ...part, ...outcome };
    return isFinal(next) ? { ...next, finishedAt: clock.now().toISOString() } : next;
  }

  /** Another attempt later, or the end of it. A test has one attempt only, since somebody waits for what comes of it. */
  function retry(part: Part, test: boolean, error: string, more: Partial<Part> = {}, seconds?: number): Outcome {
    const pause = BACK_OFF_SECONDS[part.attempts - 1];
    if (test || pause === undefined) return { ...more, status: "failed", error };
    const jittered = Math.ceil(pause * (1 + deps.randomness.number() / 5));
    const wait = Math.max(jittered, Math.min(seconds ?? 0, MAX_RETRY_AFTER_SECONDS));
    return { status: "waiting", ...more, error, notBefore: after(wait) };
  }

  async function sendMail(row: DeliveryRecord, part: Part): Promise<Outcome> {
    if (!mail) return retry(part, row.test, NO_MAIL.reason);
    const { subject, html, text } = mailOf(messageOf(row, unpackNews(row.news), links));
    const operationId = part.operationId!;
    const answer = await mail.send({ operationId, to: part.recipients, subject, html, text });
    switch (answer.kind) {
      case "throttled": {
        // The provider's limit is no failure of this delivery: it waits its turn and keeps its attempts.
        const seconds = Math.min(Math.max(1, answer.retryAfterSeconds), MAX_RETRY_AFTER_SECONDS);
        const error = `The mail provider is busy and takes it again in ${seconds} seconds.`;
        if (row.test) return { status: "failed", error };
        return { status: "waiting", attempts: part.attempts - 1, error, notBefore: after(seconds) };
      }
      case "unavailable":
        return retry(part, row.test, answer.reason);
      case "unknown":
        // Its outcome is asked for before it is sent again, so it stays `sending`, with nobody at work on it.
        return retry(part, false, answer.reason, { status: "sending" });
      default:
        return taken(part, answer);
    }
  }

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

  async function look(part: Part): Promise<Outcome> {
    const answer = mail ? await mail.outcome(part.operationId!) : NO_MAIL;
    if (answer.kind === "succeeded" || answer.kind === "failed") return taken(part, answer);
    const looks = part.looks + 1;
    const seconds = LOOK_SECONDS[looks];
    if (seconds === undefined) {
      return { status: "delivered", looks, error: "The mail provider took it and did not report an outcome in time." };
    }
    const asked = answer.kind === "throttled" ? answer.retryAfterSeconds : 0;
    return { status: "accepted", looks, notBefore: after(Math.max(seconds, asked)) };
  }

  /** After an attempt whose answer is not known, and a provider that knows the mail or can't say. */
  function afterDoubt(part: Part, answer: MailAnswer): Outcome {
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
    const asked = answer.kind === "throttled" ? answer.retryAfterSeconds : 0;
    return { status: "sending", looks, error: reason, notBefore: after(Math.max(pause, asked)) };
  }

  async function post(row: DeliveryRecord, part: Part, rule: RuleRecord): Promise<Outcome> {
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
    let answer: ReceiverAnswer;
    try {
      answer = await outgoing.post(secret.url, headers, body);
    } catch (error) {
      if (!(error instanceof NotDelivered)) throw error;
      if (error.lasting) return { status: "failed", error: error.message };
      return retry(part, row.test, error.message, error.sent ? { mayBeRepeated: true } : {});
    }
    const shown = { answer: { status: answer.status, body: scrubbed(answer.body, secret) } };
    if (answer.status >= 200 && answer.status < 300) return { ...shown, status: "delivered" };
    const error = `The receiver answered ${answer.status}${answer.status >= 300 && answer.status < 400 ? ", and redirects are not followed" : ""}.`;
    // https://github.com/standard-webhooks/standard-webhooks: 410 means that the receiver wants no more of these.
    if (answer.status === 410) return { ...shown, status: "failed", error };
    return retry(part, row.test, error, shown, answer.retryAfterSeconds);
  }

  function requestOf(row: DeliveryRecord, secret: WebhookSecret): { headers: Record<string, string>; body: string } {
    const news = unpackNews(row.news);
    const always = { "user-agent": "credential-lifecycle" };
    if (row.deliveryMethod === "webhook") {
      const body = JSON.stringify(cloudEventOf(row, news, links));
      const signature = signatureHeaders(secret, row.deliveryId, body, clock.now());
      return { headers: { ...always, "content-type": "application/cloudevents+json", ...signature }, body };
    }
    const message = messageOf(row, news, links);
    const card = row.deliveryMethod === "slack" ? slackOf(message) : teamsOf(message);
    return { headers: { ...always, "content-type": "application/json" }, body: JSON.stringify(card) };
  }

  /** Under one request id, the delivery's, so that intent and outcome are found together. */
  const enter = (row: DeliveryRecord, outcome: "intent" | "success" | "failure") =>
    audit.append({
      type: "alert.sent",
      caller: { actor: row.requestedBy, requestId: row.deliveryId },
      outcome,
      target: { type: "alertDelivery", id: row.deliveryId },
      details: {
        ...{ ruleId: row.ruleId, ruleName: row.ruleName, method: row.deliveryMethod, test: row.test },
        ...{ tellings: row.newsTotal, recipients: row.parts.flatMap(({ recipients }) => recipients) },
        ...(outcome === "intent" ? {} : { status: statusOf(row.parts), attempts: attemptsOf(row.parts) }),
      },
    });

  const secondsUntil = (instant: string): number => Math.ceil((Date.parse(instant) - clock.now().getTime()) / 1000);

  return {
    work,

    /** What the queue does: works on it and comes back when there is more to do. */
    async handle(deliveryId: string): Promise<void> {
      const seconds = await work(deliveryId);
      if (seconds !== undefined) await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: seconds });
    },

    /** A message that failed too often: it comes back later, and after some times its delivery has failed. */
    async revive(deliveryId: string): Promise<void> {
      let row = await history.get(deliveryId);
      if (row?.status !== "pending") return;
      if (row.revivals < MAX_REVIVALS) {
        await write(row, { revivals: row.revivals + 1 });
        return await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: REVIVAL_SECONDS });
      }
      const error = "The service failed at it again and again; its log says why.";
      const parts = row.parts.map((part) => (isFinal(part) ? part : settled(part, { status: "failed", error })));
      row = await write(row, { parts });
      await enter(row, "failure");
      row = await write(row, { status: statusOf(parts), finishedAt: clock.now().toISOString() });
      await history.show(recordOf(row));
    },
  };
}

const NO_MAIL = {
  kind: "unavailable",
  reason: "No mail can be sent: set COMMUNICATION_CONNECTION_STRING and ALERT_SENDER_ADDRESS.",
} as const;

/** The earliest instant at which a part that is not over may go on. */
function nextAt(parts: readonly Part[], otherwise: string): string {
  const open = parts.filter((part) => !isFinal(part));
  const instants = open.map(({ notBefore = "", leasedUntil = "" }) =>
    notBefore > leasedUntil ? notBefore : leasedUntil,
  );
  const first = instants.sort()[0];
  return first === undefined || first === "" ? otherwise : first;
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
