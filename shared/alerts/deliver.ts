import type { Audit } from "../audit/audit.ts";
import type { MailSender } from "../azure/mail.ts";
import type { Outgoing } from "../outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { withoutKeys } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { RowChanged, type Tables } from "../storage/tables.ts";
import { HOUR_SECONDS } from "../time.ts";
import { createAttempts } from "./attempt.ts";
import { BUSY_SECONDS, createMailDeliveries } from "./deliver-by-mail.ts";
import { createWebhookDeliveries } from "./deliver-by-webhook.ts";
import { DELIVERY_QUEUE, isFinal } from "./delivery.ts";
import { createDeliveryWriter } from "./delivery-writer.ts";
import type { Followed } from "./followed.ts";
import type { History } from "./history.ts";
import type { Links } from "./links.ts";
import type { Owners } from "./owners.ts";
import type { PaceLimits } from "./pace.ts";
import type { AlertRules } from "./rules.ts";

/** Seconds between looks while notifications are turned off. */
const HOLD_SECONDS = 300;
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
  const { queues, history, log } = deps;
  const attempts = createAttempts(deps);
  const writer = createDeliveryWriter(deps);
  const mails = createMailDeliveries({ ...deps, attempts, writer });
  const webhooks = createWebhookDeliveries({ ...deps, attempts, writer });

  async function work(deliveryId: string): Promise<number | undefined> {
    const row = await history.get(deliveryId);
    if (!row) return undefined;
    if (row.status !== "pending") {
      await history.show(withoutKeys(row));
      return undefined;
    }
    const wait = writer.secondsUntil(row.nextAt);
    if (wait > 0) return wait;
    if (!row.test && !(await deps.settings.values()).enableNotifications) return HOLD_SECONDS;
    try {
      return await (row.deliveryMethod === "email" ? mails : webhooks).work(row);
    } catch (error) {
      if (!(error instanceof RowChanged)) throw error;
      log.debug("A delivery is in another worker's hands", { deliveryId });
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
      const error = "The service failed at it again and again; its log says why.";
      const given = { status: "failed", error } as const;
      const parts = row.parts.map((part) => (isFinal(part) ? part : writer.settled(part, given)));
      await writer.conclude(await writer.write(row, { parts }));
    },
  };
}
