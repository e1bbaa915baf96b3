import type { Outgoing } from "../outgoing/outgoing.ts";
import type { Clock } from "../runtime.ts";
import type { Row } from "../storage/entity.ts";
import { type DeliveryRecord, isFinal, type Part } from "./delivery.ts";
import type { DeliveryWriter } from "./delivery-writer.ts";
import type { Links } from "./links.ts";
import { createWebhookDelivery } from "./post-webhook.ts";
import { type Attempts, LEASE_MS } from "./retry-schedule.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";

/** Sends deliveries by webhook. */
export interface WebhookDeliveries {
  /** Runs the next step of each part that is due.
   *
   * @returns Seconds until the next step. Undefined if the delivery is complete.
   * @throws RowChanged
   */
  work(row: Row<DeliveryRecord>): Promise<number | undefined>;
}

export function createWebhookDeliveries(deps: {
  rules: AlertRules;
  outgoing: Outgoing;
  trackedAlerts: Pick<TrackedAlerts, "of">;
  attempts: Attempts;
  writer: DeliveryWriter;
  links: () => Promise<Links>;
  clock: Clock;
}): WebhookDeliveries {
  const { rules, clock } = deps;
  const { writeParts, settled, begin, conclude, secondsUntil } = deps.writer;
  const webhooks = createWebhookDelivery(deps);

  const writePart = (row: Row<DeliveryRecord>, index: number, part: Part): Promise<Row<DeliveryRecord>> =>
    writeParts(
      row,
      row.parts.map((one, at) => (at === index ? part : one)),
    );

  /** Runs the part's next step if it is due. */
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
        // The earlier attempt may have arrived. The receiver recognizes the duplicate by its id.
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

  return {
    async work(given) {
      let row = given;
      const rule = await rules.find(row.ruleId);
      if (row.parts.every(({ attempts, posted = 0 }) => attempts === 0 && posted === 0)) await begin(row);
      for (let index = 0; index < row.parts.length; index++) row = await advance(row, index, rule);
      row = await conclude(row);
      return row.status === "pending" ? Math.max(1, secondsUntil(row.nextAt)) : undefined;
    },
  };
}
