import { withoutKeys } from "../platform/storage/entity.ts";
import type { EscalatedItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { opensIncidents, type RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { ResolvedItem } from "./tracked-alerts.ts";

/**
 * The channels of escalations. An escalation is the message about an alert that was not acknowledged in time; it is sent to
 * other recipients by mail, or through the channel of another rule.
 */

/** The channels of a rule's escalations. */
export interface EscalationChannels {
  /**
   * Returns the rule through whose channel escalations are sent: the rule that `escalation.ruleId` names, if it is enabled.
   * Otherwise the given rule, which sends a mail if the escalation has recipients of its own.
   */
  channelOf(rule: RuleRecord): Promise<RuleRecord>;
  /**
   * Returns the other rule whose channel opens incidents for escalated alerts, and must close them. Undefined if there is none.
   */
  incidentsOf(rule: RuleRecord): Promise<RuleRecord | undefined>;
  /**
   * Returns the resolutions to send. A rule without resolution notifications sends only those that close an escalation's
   * incident.
   */
  resolutionsToSend(rule: RuleRecord, resolved: ResolvedItem[]): Promise<ResolvedItem[]>;
  /** Returns the resolutions of escalated alerts. Costs as many requests as `NotificationLog.unnotified`. */
  escalatedAmong(ruleId: string, resolved: readonly ResolvedItem[]): Promise<ResolvedItem[]>;
}

/** Creates the lookup of the channels that send the escalations of a rule. */
export function createEscalationChannels(deps: {
  rules: Pick<AlertRules, "find">;
  notifications: Pick<NotificationLog, "unnotified">;
}): EscalationChannels {
  async function channelOf(rule: RuleRecord): Promise<RuleRecord> {
    const { recipients = [], ruleId } = rule.escalation ?? {};
    const channelRule = ruleId === undefined ? undefined : await deps.rules.find(ruleId);
    // If that rule is disabled, its deliveries would be cancelled, so the rule's own channel is used.
    if (channelRule?.enabled) return { ...withoutKeys(channelRule), alertType: rule.alertType };
    if (recipients.length === 0) return rule;
    return { ...rule, deliveryMethod: "email", recipients: [...recipients] };
  }

  async function incidentsOf(rule: RuleRecord): Promise<RuleRecord | undefined> {
    if (rule.escalation?.ruleId === undefined) return undefined;
    const channel = await channelOf(rule);
    const closesIncidents = opensIncidents(channel.deliveryMethod) && channel.tellRecovery !== false;
    return closesIncidents && channel.ruleId !== rule.ruleId ? channel : undefined;
  }

  async function escalatedAmong(ruleId: string, resolved: readonly ResolvedItem[]): Promise<ResolvedItem[]> {
    // The items that an escalation of these alerts would have had. `afterDays` is not part of the key in the notification log.
    const escalations = resolved.map(
      ({ id, of, since }): EscalatedItem => ({ kind: "escalated", id, of, since, afterDays: 0 }),
    );
    const notEscalated = new Set(await deps.notifications.unnotified(ruleId, escalations));
    return resolved.filter((_, index) => !notEscalated.has(escalations[index]!));
  }

  return {
    channelOf,
    incidentsOf,
    escalatedAmong,

    async resolutionsToSend(rule, resolved) {
      if (rule.tellRecovery !== false || resolved.length === 0) return resolved;
      return (await incidentsOf(rule)) ? await escalatedAmong(rule.ruleId, resolved) : [];
    },
  };
}
