import type { Outgoing } from "../platform/outgoing/outgoing.ts";
import type { Clock } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type DeliveryRecord, isFinal, type Part } from "./delivery.ts";
import type { DeliveryWriter } from "./delivery-writer.ts";
import type { History } from "./history.ts";
import type { Item } from "./items.ts";
import type { Links } from "./links.ts";
import { nextPart } from "./part-states.ts";
import { createWebhookDelivery } from "./post-webhook.ts";
import { createReceiverSlots } from "./receiver-slots.ts";
import type { Attempts } from "./retry-schedule.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";

/**
 * Bounds of the seconds until a delivery requests a slot of its receiver again. Between the bounds, the delivery waits half of
 * the time that it has already waited.
 */
const MIN_SLOT_WAIT_SECONDS = 2;
const MAX_SLOT_WAIT_SECONDS = 60;

/** Sends deliveries by webhook. */
export interface WebhookDeliveries {
  /**
   * Runs the due steps of each part. While the receiver has no free slot, only `nextAt` is written: the
   * delivery makes no attempt and its message does not wait in the host.
   *
   * @returns Seconds until the next step. Undefined if the delivery is complete.
   * @throws RowChanged
   */
  work(row: Row<DeliveryRecord>): Promise<number | undefined>;
}

/** Creates the part of deliveries that calls webhooks, chat and incident services. */
export function createWebhookDeliveries(deps: {
  rules: AlertRules;
  history: Pick<History, "updateLists">;
  outgoing: Outgoing;
  trackedAlerts: Pick<TrackedAlerts, "ofRule">;
  attempts: Attempts;
  writer: DeliveryWriter;
  links: (items: readonly Item[]) => Promise<Links>;
  clock: Clock;
}): WebhookDeliveries {
  const { rules, history, clock } = deps;
  const { write, writeParts, recordIntent, conclude, secondsUntil } = deps.writer;
  const webhooks = createWebhookDelivery(deps);
  const slots = createReceiverSlots();

  const writePart = (row: Row<DeliveryRecord>, index: number, part: Part): Promise<Row<DeliveryRecord>> =>
    writeParts(
      row,
      row.parts.map((existing, position) => (position === index ? part : existing)),
    );

  /** Runs the part's next step if it is due: cancels the part, or takes the lease, sends the request and writes the outcome. */
  async function advance(
    row: Row<DeliveryRecord>,
    index: number,
    rule: RuleRecord | undefined,
  ): Promise<Row<DeliveryRecord>> {
    const ruleState = !rule ? "deleted" : rule.enabled || row.test ? "active" : "disabled";
    const part = nextPart(row.parts[index]!, { type: "due", rule: ruleState }, clock.now());
    if (!part) return row;
    const written = await writePart(row, index, part);
    if (!rule || isFinal(part)) return written;
    const outcome = await webhooks.post(written, part, rule);
    return await writePart(written, index, nextPart(part, { type: "answered", outcome }, clock.now())!);
  }

  /** Runs the due steps of all parts. Returns the seconds until the next step, or undefined if the delivery is complete. */
  async function advanceAll(delivery: Row<DeliveryRecord>, rule: RuleRecord | undefined): Promise<number | undefined> {
    let row = delivery;
    // The intent is recorded before the first attempt. `posted` counts the items that were sent to an incident service one by
    // one.
    if (row.parts.every(({ attempts, posted = 0 }) => attempts === 0 && posted === 0)) await recordIntent(row);
    for (let index = 0; index < row.parts.length; index++) row = await advance(row, index, rule);
    row = await conclude(row);
    return row.status === "pending" ? Math.max(1, secondsUntil(row.nextAt)) : undefined;
  }

  /**
   * Returns the seconds until the delivery requests a slot again. Writes them as `nextAt`, because a delivery that is overdue
   * counts as one that has lost its queue message.
   */
  async function awaitSlot(row: Row<DeliveryRecord>): Promise<number> {
    const dueAt = row.parts.reduce(
      (latest, { notBefore = "" }) => (notBefore > latest ? notBefore : latest),
      row.createdAt,
    );
    const waitedSeconds = (clock.now().getTime() - Date.parse(dueAt)) / SECOND_MS;
    const seconds = Math.min(MAX_SLOT_WAIT_SECONDS, Math.max(MIN_SLOT_WAIT_SECONDS, Math.floor(waitedSeconds / 2)));
    await history.updateLists(withoutKeys(await write(row, { nextAt: deps.attempts.timeAfter(seconds) })));
    return seconds;
  }

  return {
    async work(row) {
      const rule = await rules.find(row.ruleId);
      const release = slots.take(rule?.webhookHost ?? row.parts[0]?.recipients[0] ?? "");
      if (!release) return await awaitSlot(row);
      try {
        return await advanceAll(row, rule);
      } finally {
        release();
      }
    },
  };
}
