import { AlertSummary, SUMMARY_DAYS } from "../shared/alerts/api.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { DAY_MS } from "../shared/platform/time.ts";
import { endpoint } from "./declare.ts";

// The endpoint with the numbers of alert rules and notifications.

const getAlertSummary = endpoint({
  name: "getAlertSummary",
  method: "GET",
  route: "alerts/summary",
  summary: "Get the numbers of alert rules and notifications",
  description: `Counts the notifications of the last ${SUMMARY_DAYS} days. GET /alerts/history with \`start_date\` and \`status\` lists them.`,
  tag: "Alerts",
  access: "user",
  tier: "core",
  responds: { 200: AlertSummary },
  handle: async ({ services: { alerts, clock } }) => {
    // The start of a day, because `since` is a date: the list with this `start_date` must have the same notifications.
    const since = new Date(clock.now().getTime() - SUMMARY_DAYS * DAY_MS).toISOString().slice(0, 10);
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
