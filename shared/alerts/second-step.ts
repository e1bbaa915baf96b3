import { withoutKeys } from "../storage/entity.ts";
import type { EndItem } from "./followed.ts";
import type { EscalatedItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { opensIncidents, type RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";

/** Where a rule's escalations go. */
export interface SecondStep {
  /** By what an escalation goes out, and to whom; by the rule itself where the named rule is gone or disabled. */
  channelOf(rule: RuleRecord): Promise<RuleRecord>;
  /** The rule that opens an incident for each alert that is escalated to it, and so has to be told of the end; undefined where none does. */
  incidentsOf(rule: RuleRecord): Promise<RuleRecord | undefined>;
  /** Which of these ends are to be told: of a rule that tells none those of alerts for which an escalation opened an incident. */
  endsToTell(rule: RuleRecord, ended: EndItem[]): Promise<EndItem[]>;
  /** The ends of those alerts that were escalated. Requests as `NotificationLog.unnotified`. */
  escalatedAmong(ruleId: string, ended: readonly EndItem[]): Promise<EndItem[]>;
}

export function createSecondStep(deps: {
  rules: Pick<AlertRules, "find">;
  notifications: Pick<NotificationLog, "unnotified">;
}): SecondStep {
  async function channelOf(rule: RuleRecord): Promise<RuleRecord> {
    const { recipients = [], ruleId } = rule.escalation ?? {};
    const named = ruleId === undefined ? undefined : await deps.rules.find(ruleId);
    // What a disabled rule is given is cancelled.
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

  async function escalatedAmong(ruleId: string, ended: readonly EndItem[]): Promise<EndItem[]> {
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

    async endsToTell(rule, ended) {
      if (rule.tellRecovery !== false || ended.length === 0) return ended;
      return (await incidentsOf(rule)) ? await escalatedAmong(rule.ruleId, ended) : [];
    },
  };
}
