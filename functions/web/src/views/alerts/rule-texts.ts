/** Display texts for the API's alert enums. */
import type { Schemas } from "../../api/client.ts";

type Rule = Schemas["AlertRule"];

/** Events that a rule can notify about. */
export const TYPES: Record<Rule["alertType"], string> = {
  expiration: "Asset expires soon",
  expired: "Asset expired",
  credentialExpiry: "Application credential expires soon",
  lateRenewal: "Certificate renewal is late",
  complianceViolation: "Compliance violation",
  scanFailure: "Scan failed or could not read everything",
  serviceCredentialExpiry: "Credential of this service expires soon",
  breakGlass: "Break-glass administrator signed in",
  rotationDue: "Secret is due for rotation",
  rotationDone: "Rotation completed",
  rotationFailed: "Rotation failed or needs attention",
  syncFailed: "Sync failed or target was changed",
  referenceUnresolved: "Key Vault reference not resolved",
  unexpectedReader: "Asset was read by an unexpected identity",
  rowUnreadable: "Stored row can't be read",
  staleEndpoint: "Endpoint does not serve the current certificate",
  auditStreamFailing: "Audit stream does not reach its receiver",
};

/** Returns whether rules of this type have thresholds in days before expiry. */
export const hasThresholds = (type: Rule["alertType"]): boolean => type === "expiration" || type === "credentialExpiry";

/** Returns whether alerts of this type stay open until resolved, so that they can be escalated. */
export const canEscalate = (type: Rule["alertType"]): boolean =>
  hasThresholds(type) || ["expired", "lateRenewal", "complianceViolation", "scanFailure"].includes(type);

type Filter = keyof Schemas["AlertRuleFilters"];
/** Filters of rules about assets. */
const ASSET_FILTERS = ["vault", "type", "subscription", "tag", "owner"] as const satisfies Filter[];

/** The filters of a snooze, which also apply to rules about the expiry of assets. */
export const SNOOZE_FILTERS: readonly Filter[] = [...ASSET_FILTERS, "source"];

/** Returns the filters of a rule type. The API rejects others. */
export function filtersFor(type: Rule["alertType"]): readonly Filter[] {
  if (type === "expiration" || type === "expired") return SNOOZE_FILTERS;
  if (type === "lateRenewal") return ["vault", "subscription", "tag", "owner"];
  if (type === "complianceViolation") return [...ASSET_FILTERS, "severity"];
  if (type === "credentialExpiry") return ["type", "owner"];
  return type === "scanFailure" ? ["subscription"] : [];
}

/** Returns how often a rule sends notifications. */
export const frequencyOf = ({ deliveryMode, digestFrequency }: Rule): string =>
  deliveryMode === "digest" ? `as a ${digestFrequency} digest` : "immediately";

/** Returns the filters of a rule or snooze as text, such as "vault kv-shop, owner payments". */
export const filtersText = (filters: Schemas["AlertRuleFilters"] | null): string =>
  Object.entries(filters ?? {})
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(", ");
