import type { Audit } from "../audit/audit.ts";
import type { MailSender } from "../platform/azure/mail.ts";
import type { Outgoing } from "../platform/outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { HOUR_SECONDS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { BUSY_SECONDS, createMailDeliveries } from "./deliver-by-mail.ts";
import { createWebhookDeliveries } from "./deliver-by-webhook.ts";
import { DELIVERY_QUEUE, isFinal } from "./delivery.ts";
import { createDeliveryWriter } from "./delivery-writer.ts";
import type { History } from "./history.ts";
import type { Item } from "./items.ts";
import type { Links } from "./links.ts";
import type { MailRateLimits } from "./mail-rate-limit.ts";
import type { Owners } from "./owners.ts";
import { createAttempts } from "./retry-schedule.ts";
import type { AlertRules } from "./rules.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";

/** Seconds until the next check while notifications are turned off. */
const PAUSED_RECHECK_SECONDS = 300;
/** Maximum number of retries of one delivery from the poison queue. */
const MAX_REVIVALS = 5;
/** Seconds until a delivery from the poison queue is retried. */
const REVIVAL_SECONDS = 600;

/**
 * Sends recorded deliveries. A row is set to `sending` before a request and to the outcome after it: for webhooks the
 * delivery's row, for mails the row of the mailbox. A mailbox is the row of one group of recipients, with the entries that wait
 * to be sent to them (mailbox.ts).
 *
 * If a worker crashes during a request, it is unknown whether the message was sent. For a mail, the next worker queries the
 * provider and resends only mails that the provider does not know. A webhook is posted again with the same id.
 */
export interface DeliveryWorker {
  /**
   * Runs the steps of a delivery that are due.
   *
   * @returns Seconds until the next step. Undefined if the delivery is complete.
   */
  work(deliveryId: string): Promise<number | undefined>;
  /** Handles a queue message: runs the due steps and enqueues the next message. */
  handle(deliveryId: string): Promise<void>;
  /** Handles a poison message: retries the delivery later, and fails it after `MAX_REVIVALS` retries. */
  revive(deliveryId: string): Promise<void>;
  /** Removes empty mailboxes that did not change for two days. */
  cleanUp(): Promise<void>;
}

/**
 * Creates the handler of queued deliveries. It sends each pending delivery by its one method, mail or webhook, with retries.
 */
export function createDeliveryWorker(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  rules: AlertRules;
  history: History;
  audit: Pick<Audit, "append">;
  mail: MailSender | undefined;
  outgoing: Outgoing;
  trackedAlerts: Pick<TrackedAlerts, "ofRule">;
  owners: Pick<Owners, "resolver">;
  limits: MailRateLimits;
  ownerMailsPerDay: number;
  /** Returns link data for the items, with the current names of subscriptions. */
  links: (items: readonly Item[]) => Promise<Links>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): DeliveryWorker {
  const { queues, history, log } = deps;
  const attempts = createAttempts(deps);
  const writer = createDeliveryWriter(deps);
  const mails = createMailDeliveries({ ...deps, attempts, writer });
  const webhooks = createWebhookDeliveries({ ...deps, attempts, writer });

  async function work(deliveryId: string): Promise<number | undefined> {
    const row = await history.get(deliveryId);
    if (!row) return undefined;
    if (row.status !== "pending") {
      // A worker may have crashed after it completed the delivery and before it updated the history.
      await history.updateLists(withoutKeys(row));
      return undefined;
    }
    const wait = writer.secondsUntil(row.nextAt);
    if (wait > 0) return wait;
    if (!row.test && !(await deps.settings.values()).enableNotifications) return PAUSED_RECHECK_SECONDS;
    try {
      return await (row.deliveryMethod === "email" ? mails : webhooks).work(row);
    } catch (error) {
      if (!(error instanceof RowChanged)) throw error;
      log.debug("Another worker is processing the delivery", { deliveryId });
      return BUSY_SECONDS;
    }
  }

  return {
    work,

    cleanUp: () => mails.cleanUp(),

    async handle(deliveryId) {
      const seconds = await work(deliveryId);
      if (seconds === undefined) return;
      await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: Math.min(seconds, HOUR_SECONDS) });
    },

    async revive(deliveryId) {
      const row = await history.get(deliveryId);
      if (row?.status !== "pending") return;
      if (row.revivals < MAX_REVIVALS) {
        await writer.write(row, { revivals: row.revivals + 1 });
        return await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: REVIVAL_SECONDS });
      }
      const error = "The delivery failed repeatedly because of an error in the service. See the service's log.";
      const outcome = { status: "failed", error } as const;
      const parts = row.parts.map((part) => (isFinal(part) ? part : writer.withOutcome(part, outcome)));
      await writer.conclude(await writer.write(row, { parts }));
    },
  };
}
