/** Display texts for the API's enums of alert deliveries. */
import type { Schemas } from "../api/client.ts";

export const METHODS = {
  email: "Email",
  webhook: "Webhook",
  slack: "Slack",
  teams: "Microsoft Teams",
  pagerDuty: "PagerDuty",
  serviceNow: "ServiceNow",
} as const satisfies Record<Schemas["AlertRule"]["deliveryMethod"], string>;

export const DELIVERY_STATUSES = {
  pending: "Pending",
  delivered: "Delivered",
  partial: "Partially delivered",
  failed: "Failed",
  cancelled: "Canceled",
  // Waits for a decision: the tables were restored from a backup, and the service may have sent it before.
  inDoubt: "Held after a restore",
} as const satisfies Record<Schemas["AlertHistoryEntry"]["status"], string>;

export const RECIPIENT_STATUSES = {
  pending: "pending",
  accepted: "accepted by the mail service",
  delivered: "delivered",
  failed: "failed",
  cancelled: "canceled",
} as const satisfies Record<Schemas["AlertRecipient"]["status"], string>;
