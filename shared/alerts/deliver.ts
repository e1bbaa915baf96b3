import type { Audit } from "../audit/audit.ts";
import type { MailSender } from "../azure/mail.ts";
import type { Outgoing } from "../outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { repeatOnConflict } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { merge, RowChanged, type Tables } from "../storage/tables.ts";
import { measure } from "../telemetry.ts";
import { HOUR_SECONDS, MINUTE_MS, SECOND_MS } from "../time.ts";
import { createAttempts, LEASE_MS, type Outcome } from "./attempt.ts";
import { createMailDelivery } from "./deliver-mail.ts";
import { createWebhookDelivery } from "./deliver-webhook.ts";
import {
  attemptsOf,
  DELIVERY_QUEUE,
  DELIVERY_ROW,
  Deliveries,
  type DeliveryRecord,
  isFinal,
  itemsIn,
  type Part,
  statusOf,
} from "./delivery.ts";
import { mailOf } from "./email.ts";
import type { Followed } from "./followed.ts";
import type { History } from "./history.ts";
import type { Links } from "./links.ts";
import { createMailboxes, type MailboxQueue } from "./mailboxes.ts";
import { messageOf } from "./message.ts";
import type { Owners } from "./owners.ts";
import type { PaceLimits } from "./pace.ts";
import { insteadOf, planOf } from "./plan.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";

/** Seconds between looks while notifications are turned off. */
const HOLD_SECONDS = 300;
/** Seconds before a delivery that another worker has in hand is looked at again. */
const BUSY_SECONDS = 15;
/** Milliseconds in which a worker begins mails: a function has some minutes. A test has as long as somebody waits for it. */
const MAILS_MS = MINUTE_MS;
const TEST_MAILS_MS = 8 * SECOND_MS;
/** A wait that is told is told anew when it differs by this much. */
const WAIT_DIFFERS_MS = MINUTE_MS;
/** How often a delivery comes back from the poison queue, and after how many seconds. */
const MAX_REVIVALS = 5;
const REVIVAL_SECONDS = 600;

/**
 * Sends what was recorded. Before anything leaves, a row says `sending`; what came of it is written after. A worker
 * that finds `sending` and no worker behind it does not know whether the message left: of a mail it asks the provider and
 * sends again only what that does not know, a webhook it posts again under the same id. Of webhooks that row is the
 * delivery; mails go through the mailboxes of their recipients.
 */
export interface DeliveryWorker {
  /**
   * Goes on with a delivery as far as it can be taken now.
   *
   * @returns Seconds until there is more to do; undefined when it is over.
   */
  work(deliveryId: string): Promise<number | undefined>;
  /** What the queue does: works on it and comes back when there is more to do. */
  handle(deliveryId: string): Promise<void>;
  /** A message that failed too often: it comes back later, and after some times its delivery has failed. */
  revive(deliveryId: string): Promise<void>;
  /** Removes mailboxes that have long been empty. */
  cleanUp(): Promise<void>;
}

export function createDeliveries(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  rules: AlertRules;
  history: History;
  audit: Pick<Audit, "append">;
  mail: MailSender | undefined;
  outgoing: Outgoing;
  followed: Pick<Followed, "of">;
  owners: Pick<Owners, "resolver">;
  limits: PaceLimits;
  ownerMailsPerDay: number;
  /** With the subscriptions' names as they are now. */
  links: () => Promise<Links>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): DeliveryWorker {
  const { tables, queues, history, rules, audit, clock, log } = deps;
  const attempts = createAttempts(deps);
  const mailboxes = createMailboxes({
    ...deps,
    mails: createMailDelivery({ mail: deps.mail, attempts }),
    compose: async (tellings) => mailOf(messageOf(tellings, await deps.links())),
    tell,
  });
  const webhooks = createWebhookDelivery({ ...deps, attempts });

  async function write(row: Row<DeliveryRecord>, change: Partial<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const operation = merge(Deliveries, DELIVERY_ROW, change, row.etag);
    const etags = await tables.transaction(Deliveries.table, row.deliveryId, [operation]);
    return { ...row, ...change, etag: etags.get(DELIVERY_ROW)! };
  }

  const writePart = (row: Row<DeliveryRecord>, index: number, part: Part): Promise<Row<DeliveryRecord>> => {
    const parts = row.parts.map((one, at) => (at === index ? part : one));
    return write(row, { parts, nextAt: nextAt(parts, row.nextAt) });
  };

  async function work(deliveryId: string): Promise<number | undefined> {
    let row = await history.get(deliveryId);
    if (!row) return undefined;
    if (row.status !== "pending") {
      await history.show(withoutKeys(row));
      return undefined;
    }
    const wait = secondsUntil(row.nextAt);
    if (wait > 0) return wait;
    if (!row.test && !(await deps.settings.values()).enableNotifications) return HOLD_SECONDS;
    try {
      if (row.deliveryMethod === "email") return await workOnMails(row);
      const rule = await rules.find(row.ruleId);
      if (row.parts.every(({ attempts, posted = 0 }) => attempts === 0 && posted === 0)) await enter(row, "intent");
      for (let index = 0; index < row.parts.length; index++) row = await advance(row, index, rule);
      row = await conclude(row);
      return row.status === "pending" ? Math.max(1, secondsUntil(row.nextAt)) : undefined;
    } catch (error) {
      if (!(error instanceof RowChanged)) throw error;
      log.debug("A delivery is in another worker's hands", { deliveryId });
      return BUSY_SECONDS;
    }
  }

  /** Ends a delivery all of whose parts are over, and brings the lists up to date. */
  async function conclude(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    let now = row;
    if (row.status === "pending" && row.parts.every(isFinal)) {
      now = await end(row);
      log.info("A delivery is over", { deliveryId: row.deliveryId, status: now.status });
      measure("alerts.sent", 1, { status: now.status, method: row.deliveryMethod });
    }
    await history.show(withoutKeys(now));
    return now;
  }

  /** Puts a delivery's mails into the mailboxes of their recipients, and sends whatever may be sent now, also of others. */
  async function workOnMails(given: Row<DeliveryRecord>): Promise<number | undefined> {
    const { deliveryId, test } = given;
    if (given.fallback === undefined) await plan(given);
    const keys = await mailboxes.add(deliveryId);
    await mailboxes.run(test ? TEST_MAILS_MS : MAILS_MS);
    let row = await history.get(deliveryId);
    if (row?.status === "pending") row = await conclude(await waitTold(row, keys));
    if (row?.status !== "pending") return undefined;
    const waits = row.parts.filter((part) => !isFinal(part)).map(({ notBefore }) => secondsUntil(notBefore ?? ""));
    return Math.max(1, Math.min(...waits.map((seconds) => (seconds > 0 ? seconds : BUSY_SECONDS))));
  }

  /** Divides a delivery's items among their owners and the rule's recipients, before any of it is sent. */
  async function plan(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const fallback = row.parts.flatMap(({ recipients }) => recipients);
    const untouched = row.parts.every(({ status, attempts }) => status === "waiting" && attempts === 0);
    if (!untouched) {
      // An earlier version has begun it.
      const begun = ({ status }: Part) => status === "sending" || status === "accepted";
      return await write(row, {
        fallback,
        parts: row.parts.map((part) => (begun(part) ? { ...part, alone: true } : part)),
      });
    }
    await enter(row, "intent");
    const resolve = row.test ? undefined : await deps.owners.resolver();
    return await write(row, { fallback, parts: planOf({ recipients: fallback }, itemsIn(row), resolve) });
  }

  /** The delivery with what its mails wait for, where that is nothing but their turn. */
  async function waitTold(row: Row<DeliveryRecord>, keys: Map<number, string>): Promise<Row<DeliveryRecord>> {
    if (!row.parts.some(({ status }) => status === "waiting")) return row;
    const turns = await mailboxes.turns();
    let differs = false;
    const parts = row.parts.map((part, index) => {
      const turn = part.status === "waiting" ? turns.get(keys.get(index) ?? "") : undefined;
      if (!turn) return part;
      const shownAt = Date.parse(part.notBefore ?? "");
      if (Math.abs(shownAt - turn.at.getTime()) < WAIT_DIFFERS_MS) return part;
      differs = true;
      return { ...part, notBefore: turn.at.toISOString(), waits: waitText(mailboxes, turn.before) };
    });
    return differs ? await write(row, { parts, nextAt: nextAt(parts, row.nextAt) }) : row;
  }

  /** Writes into a delivery what its mailbox says of one of its parts. What does not reach an owner goes to the others. */
  async function tell(entry: { deliveryId: string; part: number }, mail: Outcome & Pick<Part, "attempts" | "looks">) {
    const replaced = await repeatOnConflict(async () => {
      const row = await history.get(entry.deliveryId);
      const part = row?.parts[entry.part];
      if (!row || !part || row.status !== "pending" || isFinal(part)) return false;
      const { status, attempts, looks, error, notBefore } = mail;
      const outcome = {
        status,
        attempts,
        looks,
        ...(error !== undefined && { error }),
        ...(notBefore && { notBefore }),
      };
      let next = settled(part, outcome);
      const lost = next.status === "failed" && next.owner !== undefined && (row.fallback ?? []).length > 0;
      if (lost) next = { ...next, replaced: true };
      const parts = row.parts.map((one, index) => (index === entry.part ? next : one));
      if (lost) parts.push(...insteadOf(next, { recipients: row.fallback! }, itemsIn(row)));
      await conclude(await write(row, { parts, nextAt: nextAt(parts, row.nextAt) }));
      return lost;
    });
    if (replaced) await mailboxes.add(entry.deliveryId);
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
      case "sending":
        // It may have arrived, so this is a repeat, which the receiver can tell by the id.
        return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, { mayBeRepeated: true });
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
    const outcome = await webhooks.post(claimed, sending, rule);
    return await writePart(claimed, index, settled(sending, outcome));
  }

  const cancel = (row: Row<DeliveryRecord>, index: number, rule: RuleRecord | undefined) => {
    const error = rule ? "The rule was disabled before this was sent." : "The rule was deleted before this was sent.";
    return writePart(row, index, settled(row.parts[index]!, { status: "cancelled", error }));
  };

  /** The part with an outcome; what held only during the attempt goes. */
  function settled({ leasedUntil: _l, notBefore: _n, error: _e, waits: _w, ...part }: Part, outcome: Outcome): Part {
    const next = { ...part, ...outcome };
    return isFinal(next) ? { ...next, finishedAt: clock.now().toISOString() } : next;
  }

  /** A delivery all of whose parts are over: what became of them is entered, and then its own status. */
  async function end(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const status = statusOf(row.parts);
    await enter(row, status === "delivered" ? "success" : "failure");
    return await write(row, { status, finishedAt: clock.now().toISOString() });
  }

  /** Under one request id, the delivery's, so that intent and outcome are found together. */
  const enter = (row: DeliveryRecord, outcome: "intent" | "success" | "failure") =>
    audit.append({
      type: "alert.sent",
      caller: { actor: row.requestedBy, requestId: row.deliveryId },
      outcome,
      target: { type: "alertDelivery", id: row.deliveryId },
      details: {
        ruleId: row.ruleId,
        ruleName: row.ruleName,
        method: row.deliveryMethod,
        test: row.test,
        items: row.newsTotal,
        recipients: row.parts.flatMap(({ recipients }) => recipients),
        ...(outcome === "intent" ? {} : { status: statusOf(row.parts), attempts: attemptsOf(row.parts) }),
      },
    });

  const secondsUntil = (instant: string): number =>
    Math.ceil((Date.parse(instant) - clock.now().getTime()) / SECOND_MS);

  return {
    work,

    cleanUp: () => mailboxes.cleanUp(),

    async handle(deliveryId) {
      const seconds = await work(deliveryId);
      if (seconds === undefined) return;
      await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: Math.min(seconds, HOUR_SECONDS) });
    },

    async revive(deliveryId) {
      let row = await history.get(deliveryId);
      if (row?.status !== "pending") return;
      if (row.revivals < MAX_REVIVALS) {
        await write(row, { revivals: row.revivals + 1 });
        return await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: REVIVAL_SECONDS });
      }
      const error = "The service failed at it again and again; its log says why.";
      const parts = row.parts.map((part) => (isFinal(part) ? part : settled(part, { status: "failed", error })));
      row = await end(await write(row, { parts }));
      await history.show(withoutKeys(row));
    },
  };
}

const waitText = ({ pace }: MailboxQueue, before: number): string =>
  before < 0
    ? "A mail before it to the same recipients is not over yet."
    : `At most ${pace} are sent, the most urgent first.${before === 0 ? "" : ` ${before} go before this one.`}`;

/** The earliest instant at which a part that is not over may go on. */
function nextAt(parts: readonly Part[], otherwise: string): string {
  const open = parts.filter((part) => !isFinal(part));
  const instants = open.map(({ notBefore = "", leasedUntil = "" }) =>
    notBefore > leasedUntil ? notBefore : leasedUntil,
  );
  const first = instants.sort()[0];
  return first === undefined || first === "" ? otherwise : first;
}
