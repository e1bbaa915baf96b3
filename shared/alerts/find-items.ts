import type { Audit } from "../audit/audit.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type AutomationSource, automationItems } from "./automation-events.ts";
import { breakGlassItems } from "./break-glass.ts";
import { MAX_ITEMS } from "./delivery.ts";
import type { EscalationChannels } from "./escalation-channels.ts";
import { expiringItems } from "./expiring-assets.ts";
import type { Item, ScanFailureItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { endedAssets, endedViolations, mayHaveEnded, ofKind } from "./resolved-alerts.ts";
import { opensIncidents, type RuleRecord } from "./rule.ts";
import type { StateRecord } from "./rule-state.ts";
import { scanFailures } from "./scan-failures.ts";
import { type CredentialSource, credentialItems } from "./service-credentials.ts";
import type { Snoozes } from "./snoozes.ts";
import type { ResolvedItem, TrackedAlerts } from "./tracked-alerts.ts";
import type { VaultSnapshot } from "./vault-changes.ts";
import { type ViolationReading, type ViolationSource, violationItems } from "./violation-items.ts";

/** Finds the items that an alert rule must notify about, for the evaluation: new items, and resolutions of its open alerts. */

/** Data that all rules of one run share. */
export interface EvaluationContext {
  now: Date;
  /** Which vaults changed. Defined if one of the rules is about expiry. */
  vaults: VaultSnapshot | undefined;
  snoozes: Awaited<ReturnType<Snoozes["all"]>>;
  /** Read on first use. */
  violations: () => Promise<ViolationReading>;
}

/** The result of an evaluation of one rule. */
export interface FoundItems {
  items: Item[];
  /** Whether there are more items than fit into one message. */
  more: boolean;
  /** Whether rows could not be read, so that the same time span must be evaluated again. */
  isIncomplete?: boolean;
  /** The progress of the rule. Undefined members are cleared. */
  state: Partial<StateRecord>;
  /** Resolved alerts that cause no notification. */
  silentlyResolved: Pick<ResolvedItem, "of" | "since">[];
  /** Failures that an earlier version reported. They become tracked alerts without a notification. */
  adopted: ScanFailureItem[];
}

/** The stores and sources that the finder reads. */
export interface ItemFinderDeps {
  tables: Tables;
  snoozes: Snoozes;
  notifications: NotificationLog;
  trackedAlerts: TrackedAlerts;
  violations: ViolationSource | undefined;
  credentials: readonly CredentialSource[];
  audit: Pick<Audit, "list"> | undefined;
  automation: readonly AutomationSource[];
  resolutionsToSend: EscalationChannels["resolutionsToSend"];
  ownerTag: string;
}

/** Creates a function that returns the new items of a rule since its last evaluation. Reads only. */
export function createItemFinder(deps: ItemFinderDeps) {
  const { tables, notifications, trackedAlerts } = deps;

  /**
   * Returns the items of a rule.
   *
   * @param progress - The state from which the evaluation resumes.
   * @param stored - The rule's state. Undefined before the first evaluation.
   */
  return async function findItems(
    rule: RuleRecord,
    progress: StateRecord,
    stored: StateRecord | undefined,
    context: EvaluationContext,
  ): Promise<FoundItems> {
    const from = new Date(progress.at);
    switch (rule.alertType) {
      case "expiration":
      case "expired":
      case "credentialExpiry":
      case "lateRenewal": {
        const snoozed = deps.snoozes.split(context.snoozes, rule.ruleId, from, context.now);
        const span = { from, to: context.now, revision: progress.revision };
        const findDeps = { tables, notifications, ownerTag: deps.ownerTag, ...snoozed };
        const newItems = await expiringItems(rule, span, context.vaults!, findDeps, MAX_ITEMS);
        if (newItems.isIncomplete) return { ...withoutResolutions(newItems), isIncomplete: true };
        // Alerts can be resolved only if the rule has ever opened one (`followed`) and a vault changed since the last
        // evaluation.
        if (!progress.followed || context.vaults!.revision <= progress.revision || newItems.more)
          return withoutResolutions(newItems);
        const { ofType, others } = ofKind((await trackedAlerts.ofRule(rule.ruleId)).values(), "asset");
        const { resolved, silent } = separateSilent(rule, await endedAssets(rule, ofType, span, context.vaults!, deps));
        return await withResolutions(rule, newItems, resolved, [...others, ...silent]);
      }
      case "complianceViolation": {
        if (!deps.violations) return withoutResolutions({ items: [], more: false });
        const findDeps = { source: deps.violations, notifications, ownerTag: deps.ownerTag };
        const newItems = await violationItems(rule, progress, findDeps, MAX_ITEMS);
        if (!progress.followed || newItems.more) return withoutResolutions(newItems, newItems.state);
        const reading = await context.violations();
        if (!mayHaveEnded(reading, from, progress.violationVaults)) return withoutResolutions(newItems, newItems.state);
        const { ofType, others } = ofKind((await trackedAlerts.ofRule(rule.ruleId)).values(), "violation");
        // `violationVaults` is missing if the rule's scope changed since the last check. All violations are then checked.
        const since = progress.violationVaults === undefined ? new Date(0) : from;
        const { resolved, silent } = separateSilent(rule, await endedViolations(ofType, since, reading, tables));
        const closed = [...others, ...silent];
        const result = await withResolutions(rule, newItems, resolved, closed, newItems.state);
        // With more items, `violationVaults` stays as it was, so that the next round checks the same alerts again.
        return result.more ? result : { ...result, state: { ...result.state, violationVaults: reading.vaults } };
      }
      case "scanFailure": {
        const since = { from, scansSeen: progress.scansSeen };
        const alerts = () => trackedAlerts.ofRule(rule.ruleId);
        const result = await scanFailures(rule, since, { tables, notifications, alerts }, MAX_ITEMS);
        const state = { scansSeen: result.scansSeen };
        // Earlier versions reported each scan, so the current failures were already reported.
        const isFirstByThisVersion = stored?.generation === rule.generation && stored.scansSeen === undefined;
        if (isFirstByThisVersion)
          return { ...withoutResolutions({ items: [], more: result.more }, state), adopted: result.items };
        return await withResolutions(rule, result, result.ended, result.others, state);
      }
      case "serviceCredentialExpiry":
        return withoutResolutions(
          await credentialItems(rule, context.now, { sources: deps.credentials, notifications }, MAX_ITEMS),
        );
      case "breakGlass":
        if (!deps.audit) return withoutResolutions({ items: [], more: false });
        return withoutResolutions(await breakGlassItems(rule, from, { audit: deps.audit, notifications }, MAX_ITEMS));
      case "rotationDue":
      case "rotationDone":
      case "rotationFailed":
      case "syncFailed":
      case "referenceUnresolved":
      case "unexpectedReader":
      case "rowUnreadable":
      case "staleEndpoint":
      case "auditStreamFailing":
        return withoutResolutions(
          await automationItems(rule, from, { sources: deps.automation, notifications }, MAX_ITEMS),
        );
    }
  };

  /**
   * Returns new items and resolved alerts, at most as many as fit into one message.
   *
   * @param others - Alerts from before the rule's type was changed. They are closed without a notification.
   */
  async function withResolutions(
    rule: RuleRecord,
    newItems: { items: Item[]; more: boolean },
    resolved: ResolvedItem[],
    others: FoundItems["silentlyResolved"],
    state: Partial<StateRecord> = {},
  ): Promise<FoundItems> {
    const toSend = await notifications.unnotified(rule.ruleId, await deps.resolutionsToSend(rule, resolved));
    // These include resolutions that were already sent, but whose alert's row remained because of a crash or a late write.
    const silent = resolved.filter((item) => !toSend.includes(item));
    const remainingItems = Math.max(0, MAX_ITEMS - newItems.items.length);
    return {
      items: [...newItems.items, ...toSend.slice(0, remainingItems)],
      more: newItems.more || toSend.length > remainingItems,
      state,
      silentlyResolved: [...silent, ...others],
      adopted: [],
    };
  }
}

/**
 * Separates resolutions to send from silent ones. `joined` are alerts about credentials that became entries of another asset. The
 * alert about that asset continues, so users need no message. A rule that opens incidents sends all, because only a message closes
 * an incident.
 */
const separateSilent = (
  { deliveryMethod }: RuleRecord,
  { resolved, joined }: Awaited<ReturnType<typeof endedAssets>>,
): { resolved: ResolvedItem[]; silent: ResolvedItem[] } =>
  opensIncidents(deliveryMethod) ? { resolved: [...resolved, ...joined], silent: [] } : { resolved, silent: joined };

const withoutResolutions = (
  newItems: { items: Item[]; more: boolean },
  state: Partial<StateRecord> = {},
): FoundItems => ({
  ...newItems,
  state,
  silentlyResolved: [],
  adopted: [],
});
