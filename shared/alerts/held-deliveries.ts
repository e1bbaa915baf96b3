import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
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
import { nextMailbox } from "./mailbox-states.ts";

/**
 * Deliveries of a restored store that may have been sent before the restore. They are `inDoubt`: no worker sends them until a
 * person decides. Each method can be repeated after a crash.
 */
export interface HeldDeliveries {
  /**
   * Holds a pending delivery: its status becomes `inDoubt`. Any other status stays. If an earlier call crashed
   * after this change, completes its changes of the lists and mailboxes.
   */
  hold(deliveryId: string): Promise<void>;
  /** Returns the number of held deliveries, or a lower bound above 10,000. Costs two requests for up to 1,000. */
  count(): Promise<number>;
  /** Yields the held deliveries. */
  list(): AsyncGenerator<DeliverySummary, void>;
  /**
   * Sends a held delivery now. For a mail that was pending in the copy, the service first asks the mail provider by the mail's
   * operation id, and does not send a mail that the provider knows.
   *
   * @throws {Problem} notFound; conflict if the delivery is not held
   */
  send(deliveryId: string, caller: Caller): Promise<DeliveryRecord>;
  /**
   * Drops a held delivery: its status, and the status of each of its unfinished parts, becomes `cancelled`.
   *
   * @throws {Problem} notFound; conflict if the delivery is not held
   */
  drop(deliveryId: string, caller: Caller): Promise<DeliveryRecord>;
}

/** Creates the access to held deliveries. */
export function createHeldDeliveries(deps: {
  tables: Tables;
  queues: Pick<Queues, "send">;
  history: Pick<History, "get" | "list" | "updateLists">;
  audit: AuditRecorder;
  clock: Clock;
}): HeldDeliveries {
  const { tables, queues, history, audit, clock } = deps;

  /** Changes a delivery if its status is `from`, and then updates its list entries. Returns the status before. */
  async function change(
    deliveryId: string,
    from: DeliveryRecord["status"],
    next: (row: DeliveryRecord, now: string) => Partial<DeliveryRecord>,
  ): Promise<DeliveryRecord["status"] | undefined> {
    return await repeatOnConflict(async () => {
      const row = await history.get(deliveryId);
      if (row === undefined) return undefined;
      let value: DeliveryRecord = withoutKeys(row);
      if (row.status === from) {
        value = { ...value, ...next(value, clock.now().toISOString()) };
        await tables.transaction(Deliveries.table, deliveryId, [replace(Deliveries, DELIVERY_ROW, value, row.etag)]);
      }
      // Runs in any case, because an earlier attempt may have crashed between the two writes.
      await history.updateLists(value);
      return row.status;
    });
  }

  /** @throws {Problem} notFound */
  async function deliveryOf(deliveryId: string): Promise<DeliveryRecord> {
    const row = await history.get(deliveryId);
    if (!row) throw notFound(`The history entry ${deliveryId.slice(0, 64)}`);
    return withoutKeys(row);
  }

  /** Applies a person's decision about a held delivery, between two audit entries. Returns the delivery afterwards. */
  async function decide(
    type: string,
    deliveryId: string,
    caller: Caller,
    next: Parameters<typeof change>[2],
  ): Promise<DeliveryRecord> {
    const delivery = await deliveryOf(deliveryId);
    const { ruleName, ruleId, newsTotal } = delivery;
    // An earlier request may have crashed before it corrected the lists.
    if (delivery.status !== "inDoubt" && delivery.heldAt !== undefined) await history.updateLists(delivery);
    requireHeld(delivery.status);
    const target = { type: "alertDelivery", id: deliveryId };
    await audited(audit, { type, caller, target, details: { ruleId, ruleName, items: newsTotal } }, async () =>
      // Another person may have decided meanwhile.
      requireHeld(await change(deliveryId, "inDoubt", next)),
    );
    return await deliveryOf(deliveryId);
  }

  return {
    async hold(deliveryId) {
      await change(deliveryId, "pending", (_row, now) => ({ status: "inDoubt", heldAt: now }));
      // Removes the waiting entries. A mail in progress stays, because its mailbox asks the provider for the outcome. A waiting
      // mail gets a mailbox again if a person sends it.
      const range = { partitionKey: MAILBOXES, from: MAILBOX_PREFIX, before: keyEnd(MAILBOX_PREFIX) };
      for await (const boxes of tables.pages(Mailboxes, range)) {
        for (const box of boxes) {
          const next = nextMailbox(box, { type: "held", deliveryId }, clock.now());
          if (next) await tables.replace(Mailboxes, next);
        }
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

    async send(deliveryId, caller) {
      const delivery = await decide("alert.heldSent", deliveryId, caller, (_row, now) => ({
        status: "pending",
        nextAt: now,
      }));
      // If the queue message is not sent, the next evaluation of the rules sends it.
      await queues.send(DELIVERY_QUEUE, { deliveryId });
      return delivery;
    },

    drop: (deliveryId, caller) =>
      decide("alert.heldDropped", deliveryId, caller, ({ parts }, now) => ({
        status: "cancelled",
        finishedAt: now,
        parts: parts.map((part) =>
          isFinal(part) ? part : { ...part, status: "cancelled", error: "Dropped after a restore.", finishedAt: now },
        ),
      })),
  };
}

/** @throws {Problem} conflict unless this is the status of a held delivery. */
function requireHeld(status: DeliveryRecord["status"] | undefined): void {
  if (status !== "inDoubt")
    throw new Problem("conflict", `This notification is not held. Its status is ${status ?? "deleted"}.`);
}
