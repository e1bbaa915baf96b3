import type { Audit } from "../audit/audit.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { merge, type Tables } from "../platform/storage/tables.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { SECOND_MS } from "../platform/time.ts";
import { attemptsOf, DELIVERY_ROW, Deliveries, type DeliveryRecord, isFinal, type Part, statusOf } from "./delivery.ts";
import type { History } from "./history.ts";
import { withOutcome } from "./part-states.ts";
import type { Outcome } from "./retry-schedule.ts";

/** Writes the progress of a delivery. A write fails if another worker changed the row since it was read. */
export interface DeliveryWriter {
  /** @throws RowChanged */
  write(row: Row<DeliveryRecord>, change: Partial<DeliveryRecord>): Promise<Row<DeliveryRecord>>;
  /** Writes the parts and the time of the next step. @throws RowChanged */
  writeParts(row: Row<DeliveryRecord>, parts: Part[]): Promise<Row<DeliveryRecord>>;
  /** Returns the part with an outcome, without the members that apply only during an attempt. */
  withOutcome(part: Part, outcome: Outcome): Part;
  /** Appends the intent to the audit log, once per delivery. */
  recordIntent(row: DeliveryRecord): Promise<void>;
  /** Completes a delivery whose parts are all final, and updates the history lists. @throws RowChanged */
  conclude(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>>;
  /** Returns the seconds until a time: 0 or less if it has passed, NaN for an empty string. */
  secondsUntil(instant: string): number;
}

/** Creates the writer of deliveries, which also keeps their history entries up to date. */
export function createDeliveryWriter(deps: {
  tables: Tables;
  history: History;
  audit: Pick<Audit, "append">;
  clock: Clock;
  log: Logger;
}): DeliveryWriter {
  const { tables, history, audit, clock, log } = deps;

  async function write(row: Row<DeliveryRecord>, change: Partial<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const operation = merge(Deliveries, DELIVERY_ROW, change, row.etag);
    const etags = await tables.transaction(Deliveries.table, row.deliveryId, [operation]);
    return { ...row, ...change, etag: etags.get(DELIVERY_ROW)! };
  }

  /** Appends the outcome to the audit log, then writes the status of the delivery. */
  async function complete(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const status = statusOf(row.parts);
    await recordEvent(row, status === "delivered" ? "success" : "failure");
    return await write(row, { status, finishedAt: clock.now().toISOString() });
  }

  /**
   * Appends an audit entry. Intent and outcome have the delivery's id as the request id, so that they can be found together.
   */
  const recordEvent = (row: DeliveryRecord, outcome: "intent" | "success" | "failure") =>
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

  return {
    write,

    writeParts: (row, parts) => write(row, { parts, nextAt: nextAt(parts, row.nextAt) }),

    withOutcome: (part, outcome) => withOutcome(part, outcome, clock.now()),

    recordIntent: (row) => recordEvent(row, "intent"),

    async conclude(row) {
      let current = row;
      const isOpen = row.status === "pending" || row.status === "inDoubt";
      if (isOpen && row.parts.every(isFinal)) {
        current = await complete(row);
        log.info("A delivery is complete", { deliveryId: row.deliveryId, status: current.status });
        recordMetric("alerts.sent", 1, { status: current.status, method: row.deliveryMethod });
      }
      await history.updateLists(withoutKeys(current));
      return current;
    },

    secondsUntil: (instant) => Math.ceil((Date.parse(instant) - clock.now().getTime()) / SECOND_MS),
  };
}

/**
 * Returns the earliest time at which an unfinished part has a next step: the later of its `notBefore` and the end of its lease.
 * Without such a time, returns `otherwise`.
 */
function nextAt(parts: readonly Part[], otherwise: string): string {
  const unfinished = parts.filter((part) => !isFinal(part));
  const times = unfinished.map(({ notBefore = "", leasedUntil = "" }) =>
    notBefore > leasedUntil ? notBefore : leasedUntil,
  );
  const earliest = times.sort()[0];
  return earliest === undefined || earliest === "" ? otherwise : earliest;
}
