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
import type { RuleRecord } from "./rule.ts";
import type { StateRecord } from "./rule-state.ts";
import { scanFailures } from "./scan-failures.ts";
import { type CredentialSource, credentialItems } from "./service-credentials.ts";
import type { Snoozes } from "./snoozes.ts";
import type { ResolvedItem, TrackedAlerts } from "./tracked-alerts.ts";
import type { VaultSnapshot } from "./vault-changes.ts";
import { type ViolationReading, type ViolationSource, violationItems } from "./violation-items.ts";

/** Data that all rules of one run are evaluated with. */
export interface EvaluationContext {
  now: Date;
  /** Defined if a rule is about expiry. */
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
  /** The progress of the rule. Undefined members are cleared. */
  state: Partial<StateRecord>;
  /** Resolved alerts that cause no notification. */
  silentlyResolved: Pick<ResolvedItem, "of" | "since">[];
  /** Failures that an earlier version reported per scan. They are tracked from now on. */
  adopted: ScanFailureItem[];
}

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

  /** @param before - Where the evaluation resumes.
   * @param stored - The rule's state. Undefined before the first evaluation.
   */
  return async function findItems(
    rule: RuleRecord,
    before: StateRecord,
    stored: StateRecord | undefined,
    run: EvaluationContext,
  ): Promise<FoundItems> {
    const from = new Date(before.at);
    switch (rule.alertType) {
      case "expiration":
      case "expired":
      case "credentialExpiry": {
        const snoozed = deps.snoozes.split(run.snoozes, rule.ruleId, from, run.now);
        const span = { from, to: run.now, revision: before.revision };
        const about = { tables, notifications, ownerTag: deps.ownerTag, ...snoozed };
        const opened = await expiringItems(rule, span, run.vaults!, about, MAX_ITEMS);
        if (!before.followed || run.vaults!.revision <= before.revision || opened.more)
          return withoutResolutions(opened);
        const { own, others } = ofKind((await trackedAlerts.of(rule.ruleId)).values(), "asset");
        return await withResolutions(rule, opened, await endedAssets(rule, own, span, run.vaults!, deps), others);
      }
      case "complianceViolation": {
        if (!deps.violations) return withoutResolutions({ items: [], more: false });
        const about = { source: deps.violations, notifications, ownerTag: deps.ownerTag };
        const opened = await violationItems(rule, before, about, MAX_ITEMS);
        if (!before.followed || opened.more) return withoutResolutions(opened, opened.state);
        const reading = await run.violations();
        if (!mayHaveEnded(reading, from, before.violationVaults)) return withoutResolutions(opened, opened.state);
        const { own, others } = ofKind((await trackedAlerts.of(rule.ruleId)).values(), "violation");
        // Check all violations if none was checked since the rule changed.
        const since = before.violationVaults === undefined ? new Date(0) : from;
        const ended = await endedViolations(own, since, reading, tables);
        const found = await withResolutions(rule, opened, ended, others, opened.state);
        return found.more ? found : { ...found, state: { ...found.state, violationVaults: reading.vaults } };
      }
      case "scanFailure": {
        const since = { from, scansSeen: before.scansSeen };
        const alerts = () => trackedAlerts.of(rule.ruleId);
        const found = await scanFailures(rule, since, { tables, notifications, alerts }, MAX_ITEMS);
        const state = { scansSeen: found.scansSeen };
        // Earlier versions reported each scan, so the current failures were already reported.
        const isOfEarlier = stored?.generation === rule.generation && stored.scansSeen === undefined;
        if (isOfEarlier) return { ...withoutResolutions({ items: [], more: found.more }, state), adopted: found.items };
        return await withResolutions(rule, found, found.ended, found.others, state);
      }
      case "serviceCredentialExpiry":
        return withoutResolutions(
          await credentialItems(rule, run.now, { sources: deps.credentials, notifications }, MAX_ITEMS),
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
        return withoutResolutions(
          await automationItems(rule, from, { sources: deps.automation, notifications }, MAX_ITEMS),
        );
    }
  };

  /** Returns new items and resolved alerts, at most one message's worth.
   *
   * @param others - Alerts from before the rule's type was changed. They are closed without a notification.
   */
  async function withResolutions(
    rule: RuleRecord,
    opened: { items: Item[]; more: boolean },
    ended: ResolvedItem[],
    others: FoundItems["silentlyResolved"],
    state: Partial<StateRecord> = {},
  ): Promise<FoundItems> {
    const toSend = await notifications.unnotified(rule.ruleId, await deps.resolutionsToSend(rule, ended));
    // Includes resolutions that were already sent but whose row remained, or whose row was written late.
    const silent = ended.filter((one) => !toSend.includes(one));
    const remainingItems = Math.max(0, MAX_ITEMS - opened.items.length);
    return {
      items: [...opened.items, ...toSend.slice(0, remainingItems)],
      more: opened.more || toSend.length > remainingItems,
      state,
      silentlyResolved: [...silent, ...others],
      adopted: [],
    };
  }
}

const withoutResolutions = (
  opened: { items: Item[]; more: boolean },
  state: Partial<StateRecord> = {},
): FoundItems => ({
  ...opened,
  state,
  silentlyResolved: [],
  adopted: [],
});
