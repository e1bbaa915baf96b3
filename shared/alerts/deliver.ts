import type { Audit } from "../audit/audit.ts";
import type { MailSender } from "../azure/mail.ts";
import type { Outgoing } from "../outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { merge, RowChanged, type Tables } from "../storage/tables.ts";
import { measure } from "../telemetry.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import { createAttempts, type Outcome } from "./attempt.ts";
import { createMailDelivery } from "./deliver-mail.ts";
import { createWebhookDelivery } from "./deliver-webhook.ts";
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
import type { History } from "./history.ts";
import type { Links } from "./message.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";

/** Longer than any attempt takes: until then nobody else may go on with a part. */
const LEASE_MS = 2 * MINUTE_MS;
/** Seconds between looks while notifications are turned off. */
const HOLD_SECONDS = 300;
/** Seconds before a delivery that another worker has in hand is looked at again. */
const BUSY_SECONDS = 15;
/** How often a delivery comes back from the poison queue, and after how many seconds. */
const MAX_REVIVALS = 5;
const REVIVAL_SECONDS = 600;

/**
 * Sends what was recorded. Before anything leaves, the part says `sending`; what came of it is written after. A worker
 * that finds `sending` and no worker behind it does not know whether the message left: of a mail it asks the provider and
 * sends again only what that does not know, a webhook it posts again under the same id.
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
  links: Links;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): DeliveryWorker {
  const { tables, queues, history, rules, audit, clock, log } = deps;
  const attempts = createAttempts(deps);
  const mails = createMailDelivery({ mail: deps.mail, attempts, links: deps.links });
  const webhooks = createWebhookDelivery({ rules, outgoing: deps.outgoing, attempts, links: deps.links, clock });

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
    const rule = await rules.find(row.ruleId);
    try {
      if (row.parts.every(({ attempts }) => attempts === 0)) await enter(row, "intent");
      for (let index = 0; index < row.parts.length; index++) row = await advance(row, index, rule);
      if (row.parts.every(isFinal)) {
        row = await end(row);
        log.info("A delivery is over", { deliveryId, status: row.status });
        measure("alerts.sent", 1, { status: row.status, method: row.deliveryMethod });
      }
      await history.show(withoutKeys(row));
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
        return await writePart(row, index, settled(part, await mails.look(part)));
      case "sending": {
        if (row.deliveryMethod !== "email") {
          // It may have arrived, so this is a repeat, which the receiver can tell by the id.
          return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, { mayBeRepeated: true });
        }
        const outcome = await mails.settle(part);
        if (outcome) return await writePart(row, index, settled(part, outcome));
        return gone ? await cancel(row, index, rule) : await attempt(row, index, rule, {});
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
      row.deliveryMethod === "email" ? await mails.send(claimed, sending) : await webhooks.post(claimed, sending, rule);
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

    async handle(deliveryId) {
      const seconds = await work(deliveryId);
      if (seconds !== undefined) await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: seconds });
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

/** The earliest instant at which a part that is not over may go on. */
function nextAt(parts: readonly Part[], otherwise: string): string {
  const open = parts.filter((part) => !isFinal(part));
  const instants = open.map(({ notBefore = "", leasedUntil = "" }) =>
    notBefore > leasedUntil ? notBefore : leasedUntil,
  );
  const first = instants.sort()[0];
  return first === undefined || first === "" ? otherwise : first;
}
