import { invalidBody } from "../platform/http/problem.ts";
import type { NewEscalation, RuleChange } from "./api.ts";
import {
  type Escalation,
  hasThresholds,
  isAboutAutomation,
  isAboutExpiry,
  isTracked,
  type RuleFilters,
  type RuleRecord,
} from "./rule.ts";

/** Applies changes to alert rules and checks the result. */

/** Returns the members that determine which assets a rule matches and when alerts are escalated, as text. */
export const scopeOf = ({ alertType: type, thresholds, filters, escalation }: RuleRecord): string =>
  JSON.stringify([type, thresholds, Object.entries(filters).sort(), escalation?.afterDays]);

/** Returns the rule with a change applied. @throws {Problem} if the result is invalid. */
export function withChange(rule: RuleRecord, given: RuleChange, defaultThresholdDays: number): RuleRecord {
  const { webhookUrl: _, credentials: _c, thresholdDays, thresholds, recipients, escalation, ...otherMembers } = given;
  const givenMembers = Object.fromEntries(Object.entries(otherMembers).filter(([, value]) => value !== undefined));
  const next: RuleRecord = { ...rule, ...givenMembers };
  if (recipients) next.recipients = withoutDuplicates(recipients);
  if (escalation === null) delete next.escalation;
  else if (escalation) next.escalation = escalationOf(escalation);
  if (thresholds) next.thresholds = [...new Set(thresholds)].sort((a, b) => b - a);
  else if (thresholdDays !== undefined) next.thresholds = [thresholdDays];
  if (thresholds && thresholdDays !== undefined && thresholdDays !== next.thresholds[0]) {
    throw invalidBody("thresholdDays", "must be the highest of thresholds, or be omitted if thresholds is given");
  }
  if (!hasThresholds(next.alertType)) next.thresholds = [];
  else if (next.thresholds.length === 0) next.thresholds = [defaultThresholdDays];
  if (next.deliveryMethod === "email" && next.recipients.length === 0) {
    throw invalidBody("recipients", "must have at least one email address for the delivery method email");
  }
  if (next.escalation && !isTracked(next.alertType))
    throw invalidBody("escalation", `is not supported for the alert type ${next.alertType}`);
  checkFilters(next);
  return next;
}

function escalationOf({ afterDays, recipients = [], ruleId }: NewEscalation): Escalation {
  if ((ruleId === undefined) === (recipients.length === 0))
    throw invalidBody("escalation", "must have either recipients or a ruleId");
  return { afterDays, recipients: withoutDuplicates(recipients), ...(ruleId === undefined ? {} : { ruleId }) };
}

/** Rejects filters that don't apply to the rule's type. They would silence the rule or be ignored. */
function checkFilters({ alertType: type, filters }: RuleRecord): void {
  const rejectFilter = (filter: keyof RuleFilters) => {
    if (filters[filter] !== undefined)
      throw invalidBody(`filters.${filter}`, `is not supported for the alert type ${type}`);
  };
  if (type !== "complianceViolation") rejectFilter("severity");
  if (!isAboutExpiry(type) || type === "credentialExpiry" || type === "lateRenewal") rejectFilter("source");
  if (type === "lateRenewal") rejectFilter("type");
  if (type === "credentialExpiry") for (const filter of ["vault", "subscription", "tag"] as const) rejectFilter(filter);
  if (type === "scanFailure") for (const filter of ["vault", "type", "tag", "owner"] as const) rejectFilter(filter);
  if (type === "serviceCredentialExpiry" || type === "breakGlass" || isAboutAutomation(type)) {
    for (const filter of ["vault", "type", "subscription", "tag", "owner"] as const) rejectFilter(filter);
  }
}

/** Removes duplicate addresses, ignoring case. */
function withoutDuplicates(addresses: readonly string[]): string[] {
  const byLowerCase = new Map(addresses.map((address) => [address.toLowerCase(), address]));
  return [...byLowerCase.values()];
}
