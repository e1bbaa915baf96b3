import * as z from "zod";
import { DELIVERY_STATUSES, type DeliveryStatus } from "../shared/alerts/delivery.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { DAY_MS } from "../shared/platform/time.ts";
import { endpoint } from "./declare.ts";

// The endpoint with the numbers of alert rules and notifications.

/** Notifications of this many days are counted. */
const DAYS = 7;
const count = z.int().min(0);
/** The number of notifications with each status, as a verb. */
const OUTCOMES: Record<DeliveryStatus, string> = {
  pending: "are in progress",
  delivered: "were delivered",
  partial: "did not reach some recipients",
  failed: "failed",
  cancelled: "were canceled",
  inDoubt: "wait for a decision after a restore of the store",
};
const byStatus = Object.fromEntries(
  DELIVERY_STATUSES.map((status) => [
    status,
    count.meta({ description: `Number of notifications that ${OUTCOMES[status]}.` }),
  ]),
) as Record<DeliveryStatus, typeof count>;

const AlertSummary = z
  .object({
    rules: count.meta({ description: "Number of alert rules." }),
    enabledRules: count.meta({ description: "Number of alert rules that are enabled. 0: nobody is notified." }),
    since: z.iso.date().meta({ description: `Start of the counted period, ${DAYS} days ago (UTC).` }),
    notifications: z.object(byStatus).meta({
      description: "Numbers of notifications by status, without tests. At most the newest 1,000 are counted.",
    }),
  })
  .meta({ id: "AlertSummary" });

const getAlertSummary = endpoint({
  name: "getAlertSummary",
  method: "GET",
  route: "alerts/summary",
  summary: "Get the numbers of alert rules and notifications",
  description: `Counts the notifications of the last ${DAYS} days. GET /alerts/history with \`start_date\` and \`status\` lists them.`,
  tag: "Alerts",
  access: "user",
  tier: "core",
  responds: { 200: AlertSummary },
  handle: async ({ services: { alerts, clock } }) => {
    // A whole day, so that the list with the same start_date has the same notifications.
    const since = new Date(clock.now().getTime() - DAYS * DAY_MS).toISOString().slice(0, 10);
    const [rules, notifications] = await Promise.all([
      alerts.rules.all(),
      alerts.history.countsSince(new Date(`${since}T00:00:00Z`)),
    ]);
    return ok({
      rules: rules.length,
      enabledRules: rules.filter(({ enabled }) => enabled).length,
      since,
      notifications,
    });
  },
});

export const endpoints = [getAlertSummary];
