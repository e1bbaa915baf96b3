import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { replace, type Tables } from "../platform/storage/tables.ts";
import {
  DELIVERY_QUEUE,
  DELIVERY_ROW,
  Deliveries,
  type DeliveryRecord,
  type DeliverySummary,
  isFinal,
} from "./delivery.ts";
import type { History } from "./history.ts";
import { MAILBOX_PREFIX, MAILBOXES, Mailboxes } from "./mailbox.ts";

/**
 * Deliveries of a restored store that may have been sent before the restore. They are `inDoubt`: no worker sends them until a
 * person decides. Each method can be repeated after a crash.
 */
export interface HeldDeliveries {
  /**
   * Holds a pending delivery: its status becomes `inDoubt`. Any other status stays. Corrects the lists and mailboxes of a
   * delivery that was stored as held.
   */
  hold(deliveryId: string): Promise<void>;
  /** Returns the number of held deliveries, or a lower bound above 10,000. Costs two requests for up to 1,000. */
  count(): Promise<number>;
  /** Yields the held deliveries. */
  list(): AsyncGenerator<DeliverySummary, void>;
  /**
   * Sends a held delivery now. For a mail that was pending in the copy, the service first asks the mail provider by the mail's
   * operation id, and does not send a mail that the provider knows.
   */
  send(deliveryId: string): Promise<void>;
  /** Drops a held delivery: its status, and the status of each of its unfinished parts, becomes `cancelled`. */
  drop(deliveryId: string): Promise<void>;
}

/** Creates the access to held deliveries. */
export function createHeldDeliveries(deps: {
  tables: Tables;
  queues: Pick<Queues, "send">;
  history: Pick<History, "get" | "list" | "updateLists">;
  clock: Clock;
}): HeldDeliveries {
  const { tables, queues, history, clock } = deps;

  /** Changes a delivery if its status is `from`, and then updates its list entries. */
  async function change(
    deliveryId: string,
    from: DeliveryRecord["status"],
    next: (row: DeliveryRecord, now: string) => Partial<DeliveryRecord>,
  ): Promise<void> {
    await repeatOnConflict(async () => {
      const row = await history.get(deliveryId);
      if (row === undefined) return;
      let value: DeliveryRecord = withoutKeys(row);
      if (row.status === from) {
        value = { ...value, ...next(value, clock.now().toISOString()) };
        await tables.transaction(Deliveries.table, deliveryId, [replace(Deliveries, DELIVERY_ROW, value, row.etag)]);
      }
      // Runs in any case, because an earlier attempt may have crashed between the two writes.
      await history.updateLists(value);
    });
  }

  return {
    async hold(deliveryId) {
      await change(deliveryId, "pending", (_row, now) => ({ status: "inDoubt", heldAt: now }));
      // A mail in progress stays, because its mailbox asks the provider for the outcome. A waiting mail gets a mailbox again if a
      // person sends it.
      const range = { partitionKey: MAILBOXES, from: MAILBOX_PREFIX, before: keyEnd(MAILBOX_PREFIX) };
      for await (const boxes of tables.pages(Mailboxes, range)) {
        for (const box of boxes.filter(({ waiting }) => waiting.some((entry) => entry.deliveryId === deliveryId)))
          await tables.replace(Mailboxes, {
            ...box,
            waiting: box.waiting.filter((entry) => entry.deliveryId !== deliveryId),
          });
      }
    },

    async count() {
      const page = await history.list({ status: "inDoubt" }, { limit: 1, offset: 0, cursor: undefined });
      return page.total ?? page.totalAtLeast ?? 0;
    },

    async *list() {
      let cursor: string | undefined;
      do {
        const page = await history.list({ status: "inDoubt" }, { limit: 1000, offset: 0, cursor });
        yield* page.items;
        cursor = page.nextCursor ?? undefined;
      } while (cursor !== undefined);
    },

    async send(deliveryId) {
      await change(deliveryId, "inDoubt", (_row, now) => ({ status: "pending", nextAt: now }));
      await queues.send(DELIVERY_QUEUE, { deliveryId });
    },

    drop: (deliveryId) =>
      change(deliveryId, "inDoubt", ({ parts }, now) => ({
        status: "cancelled",
        finishedAt: now,
        parts: parts.map((part) =>
          isFinal(part) ? part : { ...part, status: "cancelled", error: "Dropped after a restore.", finishedAt: now },
        ),
      })),
  };
}
