import { withoutKeys } from "../platform/storage/entity.ts";
import type { EscalatedItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { opensIncidents, type RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { ResolvedItem } from "./tracked-alerts.ts";

/** The channels of a rule's escalations. */
export interface EscalationChannels {
  /** Returns the rule whose channel sends the escalations: the named rule, or the rule itself if that one is deleted or disabled. */
  channelOf(rule: RuleRecord): Promise<RuleRecord>;
  /** Returns the rule that opens incidents for escalated alerts, which needs their resolution. Undefined if there is none. */
  incidentsOf(rule: RuleRecord): Promise<RuleRecord | undefined>;
  /** Returns the resolutions to send. A rule without resolution notifications sends only those that close an escalation's incident. */
  resolutionsToSend(rule: RuleRecord, ended: ResolvedItem[]): Promise<ResolvedItem[]>;
  /** Returns the resolutions of escalated alerts. Requests as in `NotificationLog.unnotified`. */
  escalatedAmong(ruleId: string, ended: readonly ResolvedItem[]): Promise<ResolvedItem[]>;
}

/** Creates the lookup of the channels that send the escalations of a rule. */
export function createEscalationChannels(deps: {
  rules: Pick<AlertRules, "find">;
  notifications: Pick<NotificationLog, "unnotified">;
}): EscalationChannels {
  async function channelOf(rule: RuleRecord): Promise<RuleRecord> {
    const { recipients = [], ruleId } = rule.escalation ?? {};
    const named = ruleId === undefined ? undefined : await deps.rules.find(ruleId);
    // Deliveries of a disabled rule are cancelled, so another channel is used.
    if (named?.enabled) return { ...withoutKeys(named), alertType: rule.alertType };
    if (recipients.length === 0) return rule;
    return { ...rule, deliveryMethod: "email", recipients: [...recipients] };
  }

  async function incidentsOf(rule: RuleRecord): Promise<RuleRecord | undefined> {
    if (rule.escalation?.ruleId === undefined) return undefined;
    const channel = await channelOf(rule);
    const closes = opensIncidents(channel.deliveryMethod) && channel.tellRecovery !== false;
    return closes && channel.ruleId !== rule.ruleId ? channel : undefined;
  }

  async function escalatedAmong(ruleId: string, ended: readonly ResolvedItem[]): Promise<ResolvedItem[]> {
    const escalations = ended.map(
      ({ id, of, since }): EscalatedItem => ({ kind: "escalated", id, of, since, afterDays: 0 }),
    );
    const never = new Set(await deps.notifications.unnotified(ruleId, escalations));
    return ended.filter((_, at) => !never.has(escalations[at]!));
  }

  return {
    channelOf,
    incidentsOf,
    escalatedAmong,

    async resolutionsToSend(rule, ended) {
      if (rule.tellRecovery !== false || ended.length === 0) return ended;
      return (await incidentsOf(rule)) ? await escalatedAmong(rule.ruleId, ended) : [];
    },
  };
}
