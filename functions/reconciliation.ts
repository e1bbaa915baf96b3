import * as z from "zod";
import { ok } from "../shared/platform/http/reply.ts";
import { ReconciliationView, reconciliationView } from "../shared/reconciliation/api.ts";
import { QUEUE } from "../shared/reconciliation/walk-record.ts";
import { endpoint, poison, queue, sendWithJitter, timer } from "./declare.ts";

/*
 * Reconciliation: a background job that compares stored rows that must agree, and repairs differences. A timer starts it by a
 * queue message.
 */

const getReconciliation = endpoint({
  name: "getReconciliation",
  method: "GET",
  route: "system/reconciliation",
  summary: "Get the status of the reconciliation",
  description:
    "Every three days, a background job compares all stored inventory and compliance rows with the rows of their vaults, each vault at least weekly. It also checks the index of the audit log, the list of active scans, and the rows of rotations and sync records, and reads all other rows to find those that can't be read. Differences that a second read confirms are repaired.",
  tag: "System",
  access: "user",
  tier: "core",
  responds: { 200: ReconciliationView },
  handle: async ({ services }) => ok(reconciliationView(await services.reconciliation.status())),
});

export const endpoints = [getReconciliation];

export const timers = [
  timer({
    name: "startReconciliation",
    schedule: { setting: "RECONCILIATION_SCHEDULE" },
    handle: async (invocation) => {
      await sendWithJitter(invocation, QUEUE, {});
    },
  }),
];

const message = z.object({});

export const queues = [
  queue({
    name: "reconcile",
    queue: QUEUE,
    message,
    handle: (_message, { services, requestId }) => services.reconciliation.run(requestId),
  }),
  // The timer's next message resumes the reconciliation where it stopped.
  poison({ name: "reconcileFailed", of: QUEUE, message }),
];
