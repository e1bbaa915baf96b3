/** The API's words about rules, as people say them. */
import type { Schemas } from "../../api/client.ts";

type Rule = Schemas["AlertRule"];

export const TYPES: Record<Rule["alertType"], string> = {
  expiration: "An asset is about to end",
  expired: "An asset has ended",
  credentialExpiry: "An application's credential is about to end",
  complianceViolation: "Something is not compliant",
  scanFailure: "A scan failed",
  serviceCredentialExpiry: "A credential of this service is about to end",
  breakGlass: "The break-glass administrator signed in",
  rotationDue: "A rotation is due",
  rotationDone: "A rotation is done",
  rotationFailed: "A rotation failed",
  syncFailed: "A copy could not be made",
  referenceUnresolved: "A reference can't be followed",
  unexpectedReader: "Somebody unexpected read an asset",
};

export const METHODS = {
  email: "Mail",
  webhook: "Webhook",
  slack: "Slack",
  teams: "Microsoft Teams",
  pagerDuty: "PagerDuty",
  serviceNow: "ServiceNow",
} as const satisfies Record<Rule["deliveryMethod"], string>;

/** Those whose rules go by days before the end, which a rule may choose. */
export const hasThresholds = (type: Rule["alertType"]): boolean => type === "expiration" || type === "credentialExpiry";

/** Those whose alerts are followed to their end, so that they can be escalated. */
export const isFollowed = (type: Rule["alertType"]): boolean =>
  hasThresholds(type) || ["expired", "complianceViolation", "scanFailure"].includes(type);

type Filter = keyof Schemas["AlertRuleFilters"];
const OF_ASSETS = ["vault", "type", "subscription", "tag", "owner"] as const satisfies Filter[];

/** What a snooze goes by. */
export const SNOOZE_FILTERS: readonly Filter[] = [...OF_ASSETS, "source"];

/** What a rule of a type can be confined to. The API refuses the others. */
export function filtersFor(type: Rule["alertType"]): readonly Filter[] {
  if (type === "expiration" || type === "expired") return SNOOZE_FILTERS;
  if (type === "complianceViolation") return [...OF_ASSETS, "severity"];
  if (type === "credentialExpiry") return ["type", "owner"];
  return type === "scanFailure" ? ["subscription"] : [];
}

export const sent = ({ deliveryMode, digestFrequency }: Rule): string =>
  deliveryMode === "digest" ? `${digestFrequency} digest` : "at once";

/** What a rule or a snooze is confined to, such as "vault kv-shop, owner payments". */
export const filtersText = (filters: Schemas["AlertRuleFilters"] | null): string =>
  Object.entries(filters ?? {})
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(", ");
