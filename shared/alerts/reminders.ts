import pMap from "p-map";
import { type AssetRecord, Assets, idsOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import type { EvaluationContext } from "./find-items.ts";
import {
  alertKey,
  type EscalatedItem,
  type Item,
  type StillFailingItem,
  type TrackedItem,
  trackedItemOf,
} from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { isAboutExpiry, matchesFilters, type RuleRecord } from "./rule.ts";
import { matchesRule } from "./scan-failures.ts";
import { isSnoozed, type Snoozes } from "./snoozes.ts";
import type { TrackedAlert, TrackedAlerts } from "./tracked-alerts.ts";

/**
 * Follow-ups of alerts that stay open after their notification: reminders of failures, and escalations. An escalation is the
 * message to other recipients about an alert that was not acknowledged in time.
 */

/** Interval between reminders of a persisting failure. */
export const REMINDER_MS = 7 * DAY_MS;
/**
 * Delay before the next check of an alert that is due but can't be escalated, because it is snoozed, exempt or acknowledged.
 */
const RECHECK_MS = DAY_MS;
/** Number of concurrent reads. */
const PARALLEL = 8;

/** Reminders and escalations of a rule's open alerts. */
export interface FollowUps {
  stillFailing: StillFailingItem[];
  escalated: EscalatedItem[];
  /** Time of the next reminder or escalation, ISO 8601. */
  nextAt: string | undefined;
}

/** Creates the follow-ups of open alerts: reminders and escalations. */
export function createFollowUps(deps: {
  tables: Tables;
  trackedAlerts: TrackedAlerts;
  notifications: NotificationLog;
  acknowledgements: Pick<Acknowledgements, "ofRule">;
  snoozes: Pick<Snoozes, "split">;
  ownerTag: string;
}) {
  const { tables, trackedAlerts, notifications } = deps;

  /**
   * Finds the follow-ups of a rule's open alerts that are due. Costs one request per 1,000 alerts, and one per alert to
   * escalate.
   */
  return async function followUps(rule: RuleRecord, context: EvaluationContext): Promise<FollowUps> {
    const now = context.now.getTime();
    const alerts = [...(await trackedAlerts.ofRule(rule.ruleId)).values()].filter(({ item }) =>
      matchesType(rule, item),
    );
    /** Times of later follow-ups. */
    const laterTimes: number[] = [];
    /** Returns whether a follow-up is due. If not, records its time. */
    const isDueAt = (time: number): boolean => {
      if (time > now) laterTimes.push(time);
      return time <= now;
    };
    // `toldAt` is the time of the last notification of an alert, and `times` the number of its notifications.
    const stillFailing = alerts.flatMap(({ item: of, since, toldAt, times }): StillFailingItem[] => {
      if (of.kind !== "scanFailure" || !matchesRule(rule, of) || !isDueAt(Date.parse(toldAt) + REMINDER_MS)) return [];
      laterTimes.push(now + REMINDER_MS);
      return [{ kind: "stillFailing", id: of.id, of, since, times }];
    });
    const escalated = await findEscalations(rule, alerts, context, isDueAt);
    if (escalated.mustRecheck) laterTimes.push(now + RECHECK_MS);
    const nextAt = laterTimes.length === 0 ? undefined : new Date(Math.min(...laterTimes)).toISOString();
    return { stillFailing, escalated: escalated.items, nextAt };
  };

  /** Finds the alerts to escalate. `mustRecheck`: some alerts are due but can't be escalated now. */
  async function findEscalations(
    rule: RuleRecord,
    alerts: readonly TrackedAlert[],
    context: EvaluationContext,
    isDueAt: (time: number) => boolean,
  ): Promise<{ items: EscalatedItem[]; mustRecheck: boolean }> {
    const { escalation } = rule;
    if (!escalation) return { items: [], mustRecheck: false };
    const { afterDays } = escalation;
    const acknowledged = await deps.acknowledgements.ofRule(rule.ruleId);
    const due = alerts.filter(
      ({ item, since }) =>
        acknowledged.get(alertKey(item))?.since !== since && isDueAt(Date.parse(since) + afterDays * DAY_MS),
    );
    const items = due.map(
      ({ item: of, since }): EscalatedItem => ({ kind: "escalated", id: of.id, of, since, afterDays }),
    );
    const candidates = await notifications.unnotified(rule.ruleId, items);
    const violations = candidates.flatMap(({ of }) => (of.kind === "violation" ? [of] : []));
    const existing = violations.length > 0 ? await (await context.violations()).findExisting(violations) : new Map();
    const snoozed = deps.snoozes.split(context.snoozes, rule.ruleId, context.now, context.now);
    const canEscalate = await pMap(
      candidates,
      async ({ of }) => {
        if (of.kind === "violation") return existing.get(of.id)?.exempted === false;
        if (of.kind === "scanFailure") return matchesRule(rule, of);
        if (context.vaults?.hidden.includes(of.vaultName.toLowerCase())) return false;
        const key = [partitions.vault(of.vaultName), nameKey(of.type, of.name, of.vaultName)] as const;
        const asset: AssetRecord | undefined = await tables.get(Assets, ...key);
        if (!asset?.enabled || asset.expiresOn !== of.expiresOn) return false;
        return (
          matchesFilters(rule.filters, asset, deps.ownerTag) && !isSnoozed(snoozed, idsOf(asset), asset, deps.ownerTag)
        );
      },
      { concurrency: PARALLEL },
    );
    // The acknowledgment of an alert can be removed, after which the alert is escalated.
    const isAcknowledged = alerts.some(({ item, since }) => acknowledged.get(alertKey(item))?.since === since);
    return {
      items: candidates.filter((_, index) => canEscalate[index]),
      mustRecheck: isAcknowledged || canEscalate.includes(false),
    };
  }
}

/** Returns whether an alert matches the rule's type, which may have changed since. */
const matchesType = ({ alertType }: RuleRecord, { kind }: TrackedItem): boolean =>
  kind === "asset"
    ? isAboutExpiry(alertType)
    : kind === (alertType === "complianceViolation" ? "violation" : alertType);

/** Returns when new items need a reminder or an escalation. Undefined if never. */
export function followUpAfter(rule: RuleRecord, items: readonly Item[], now: Date): string | undefined {
  // Leaves out resolutions, whose tracked item is the one of an earlier notification.
  const tracked = items.filter((item) => trackedItemOf(item) === item);
  if (tracked.length === 0) return undefined;
  const delays = [
    ...(rule.escalation ? [rule.escalation.afterDays * DAY_MS] : []),
    ...(tracked.some((item) => trackedItemOf(item)?.kind === "scanFailure") ? [REMINDER_MS] : []),
  ];
  return delays.length === 0 ? undefined : new Date(now.getTime() + Math.min(...delays)).toISOString();
}
