import * as z from "zod";
import type { Logger } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, deliveryIdOf, partsOf } from "./delivery.ts";
import type { EscalationChannels } from "./escalation-channels.ts";
import type { History } from "./history.ts";
import { type Item, Item as ItemSchema } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RestoreMarker } from "./restore-marker.ts";
import type { RuleRecord } from "./rule.ts";
import { RuleStates, STATES, type StateRecord } from "./rule-state.ts";
import type { ResolvedItem, TrackedAlerts } from "./tracked-alerts.ts";

/**
 * The writes by which an evaluation notifies of a rule's items: first the rule's state with the pending delivery (the commit),
 * then the notification log, the tracked alerts and the delivery. `createEvaluation` explains their order.
 */
export function createRuleNotifications(
  deps: {
    tables: Tables;
    queues: Queues;
    notifications: NotificationLog;
    trackedAlerts: TrackedAlerts;
    acknowledgements: Acknowledgements;
    history: History;
    log: Logger;
  },
  escalationChannels: EscalationChannels,
) {
  const { tables, queues, notifications, trackedAlerts, acknowledgements, history, log } = deps;

  /**
   * Removes the acknowledgments of resolved items, then closes their tracked alerts. In this order, the next evaluation after a
   * crash still finds the alerts and repeats both steps.
   */
  async function close(ruleId: string, resolved: readonly Pick<ResolvedItem, "of" | "since">[]): Promise<void> {
    await acknowledgements.removeResolved(ruleId, resolved);
    await trackedAlerts.close(ruleId, resolved);
  }

  /**
   * Commits a delivery of items and completes it.
   *
   * @param after - The state of the rule after the delivery.
   * @param options - `held`: the delivery may have been sent before the tables were restored, so an administrator decides.
   * `channel`, for an escalation: the rule whose recipients get it.
   */
  async function notify(
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    after: StateRecord,
    items: Item[],
    { now, held, channel }: { now: Date; held: boolean; channel?: RuleRecord | undefined },
  ): Promise<Row<StateRecord>> {
    const deliveryId = deliveryIdOf(rule.ruleId, now, items);
    const delivery = { deliveryId, createdAt: now.toISOString(), rule: withoutKeys(rule) };
    // Escalations may have opened incidents through another rule. `secondStep` is that rule, which also gets the resolutions.
    const secondStep = !channel && items.some(isResolution) ? await escalationChannels.incidentsOf(rule) : undefined;
    const pending = {
      ...delivery,
      ...(channel && { channel: withoutKeys(channel) }),
      ...(secondStep && { secondStep: withoutKeys(secondStep) }),
      ...(held && { held }),
    };
    const committed = await commit(rule, row, { ...after, pending, pendingNews: pack(items) });
    log.info("A rule notifies", { ruleId: rule.ruleId, deliveryId, items: items.length });
    return await completeCommit(committed, undefined);
  }

  /** Writes the state row. Fails with a conflict if another run wrote it since it was read. */
  const commit = (
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    value: StateRecord,
  ): Promise<Row<StateRecord>> =>
    row
      ? tables.replace(RuleStates, { ...value, partitionKey: STATES, rowKey: rule.ruleId, etag: row.etag })
      : tables.insert(RuleStates, STATES, rule.ruleId, value);

  /**
   * Completes the steps after a commit: notification log, tracked alerts, delivery. `secondStep`: the rule through
   * which alerts were escalated, which also gets their resolutions.
   *
   * @param restored - The marker of the last restore, for a commit that an earlier run left. A commit from before it is held.
   */
  async function completeCommit(
    state: Row<StateRecord>,
    restored: RestoreMarker | undefined,
  ): Promise<Row<StateRecord>> {
    const { pending, pendingNews, ...completed } = state;
    if (!pending || !pendingNews) return state;
    const { deliveryId, createdAt, rule, channel, secondStep } = pending;
    const items = unpackBytes(pendingNews, z.array(ItemSchema));
    const resolved = items.filter(isResolution);
    await notifications.add(rule.ruleId, deliveryId, items, trackedAlerts.operations(deliveryId, createdAt, items));
    await close(rule.ruleId, resolved);
    const escalatedFrom = { escalatedFrom: rule.ruleId };
    const held = pending.held === true || (restored !== undefined && createdAt <= restored.restoredAt);
    const fields = { deliveryId, createdAt, items: itemsFor(rule, items), held };
    if (fields.items.length > 0)
      await enqueue(channel ? newDelivery(channel, { ...fields, ...escalatedFrom }) : newDelivery(rule, fields));
    const escalated = secondStep ? await escalationChannels.escalatedAmong(rule.ruleId, resolved) : [];
    if (secondStep && escalated.length > 0) {
      const id = deliveryIdOf(secondStep.ruleId, new Date(createdAt), escalated);
      await enqueue(newDelivery(secondStep, { deliveryId: id, createdAt, items: escalated, held, ...escalatedFrom }));
    }
    return await tables.replace(RuleStates, completed);
  }

  async function enqueue(delivery: DeliveryRecord): Promise<void> {
    await history.record(delivery);
    if (delivery.status === "pending") await queues.send(DELIVERY_QUEUE, { deliveryId: delivery.deliveryId });
  }

  return { notify, commit, completeCommit, close };
}

/** Returns a new delivery of a rule. */
export function newDelivery(
  rule: RuleRecord,
  fields: Pick<DeliveryRecord, "deliveryId" | "createdAt" | "escalatedFrom"> & {
    items: readonly Item[];
    test?: boolean;
    requestedBy?: string;
    /** Whether a person must send or drop the delivery. */
    held?: boolean;
  },
): DeliveryRecord {
  const { deliveryId, createdAt, items, test = false, requestedBy = "system", held = false, escalatedFrom } = fields;
  return {
    deliveryId,
    ruleId: rule.ruleId,
    ruleName: rule.name,
    alertType: rule.alertType,
    deliveryMethod: rule.deliveryMethod,
    // Escalations are sent immediately, also for a rule with a digest.
    deliveryMode: escalatedFrom === undefined ? rule.deliveryMode : "immediate",
    test,
    requestedBy,
    createdAt,
    status: held ? "inDoubt" : "pending",
    ...(held && { heldAt: createdAt }),
    parts: partsOf(rule),
    nextAt: createdAt,
    revivals: 0,
    newsTotal: items.length,
    news: pack(items),
    ...(escalatedFrom === undefined ? {} : { escalatedFrom }),
  };
}

const isResolution = (item: Item): item is ResolvedItem => item.kind === "renewed" || item.kind === "recovered";

/**
 * Returns the items that the rule itself sends. A rule without resolution notifications sends no resolutions.
 */
export const itemsFor = ({ tellRecovery }: RuleRecord, items: Item[]): Item[] =>
  tellRecovery === false ? items.filter((item) => !isResolution(item)) : items;
