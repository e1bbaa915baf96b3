import type { Audit } from "../audit/audit.ts";
import type { Tables } from "../storage/tables.ts";
import { type AutomationSource, automationItems } from "./automation.ts";
import { breakGlassItems } from "./break-glass.ts";
import { type CredentialSource, credentialItems } from "./credentials.ts";
import { MAX_ITEMS } from "./delivery.ts";
import { endedAssets, endedViolations, mayHaveEnded, ofKind } from "./ends.ts";
import { type ViolationReading, type ViolationSource, violationItems } from "./events.ts";
import { expiringItems } from "./expiring.ts";
import type { EndItem, Followed } from "./followed.ts";
import type { Item, ScanFailureItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";
import { scanFailures } from "./scan-failures.ts";
import type { SecondStep } from "./second-step.ts";
import type { Snoozes } from "./snoozes.ts";
import type { StateRecord } from "./state.ts";
import type { VaultSnapshot } from "./vault-changes.ts";

/** What the rules of one run are evaluated against. */
export interface Circumstances {
  now: Date;
  /** Where a rule is about expiry. */
  vaults: VaultSnapshot | undefined;
  snoozes: Awaited<ReturnType<Snoozes["all"]>>;
  /** Made when it is first asked for. */
  violations: () => Promise<ViolationReading>;
}

/** What a rule has to tell. */
export interface Found {
  items: Item[];
  /** There is more than one message holds. */
  more: boolean;
  /** How far the rule has come; what is undefined is cleared. */
  state: Partial<StateRecord>;
  /** Alerts that have ended without anybody being told. */
  untold: Pick<EndItem, "of" | "since">[];
  /** Failures that an earlier version has told of in its own way: they are followed from now on. */
  adopted: ScanFailureItem[];
}

export interface LookDeps {
  tables: Tables;
  snoozes: Snoozes;
  notifications: NotificationLog;
  followed: Followed;
  violations: ViolationSource | undefined;
  credentials: readonly CredentialSource[];
  audit: Pick<Audit, "list"> | undefined;
  automation: readonly AutomationSource[];
  endsToTell: SecondStep["endsToTell"];
  ownerTag: string;
}

/** Finds what a rule has to tell since it was evaluated the last time. Reads only. */
export function createLook(deps: LookDeps) {
  const { tables, notifications, followed } = deps;

  /**
   * @param before - How far the rule has come.
   * @param stored - What its row says; undefined before the first evaluation.
   */
  return async function look(
    rule: RuleRecord,
    before: StateRecord,
    stored: StateRecord | undefined,
    run: Circumstances,
  ): Promise<Found> {
    const from = new Date(before.at);
    switch (rule.alertType) {
      case "expiration":
      case "expired":
      case "credentialExpiry": {
        const snoozed = deps.snoozes.split(run.snoozes, rule.ruleId, from, run.now);
        const span = { from, to: run.now, revision: before.revision };
        const about = { tables, notifications, ownerTag: deps.ownerTag, ...snoozed };
        const begun = await expiringItems(rule, span, run.vaults!, about, MAX_ITEMS);
        if (!before.followed || run.vaults!.revision <= before.revision || begun.more) return nothing(begun);
        const { own, others } = ofKind((await followed.of(rule.ruleId)).values(), "asset");
        return await together(rule, begun, await endedAssets(rule, own, span, run.vaults!, deps), others);
      }
      case "complianceViolation": {
        if (!deps.violations) return nothing({ items: [], more: false });
        const about = { source: deps.violations, notifications, ownerTag: deps.ownerTag };
        const begun = await violationItems(rule, before, about, MAX_ITEMS);
        if (!before.followed || begun.more) return nothing(begun, begun.state);
        const reading = await run.violations();
        if (!mayHaveEnded(reading, from, before.violationVaults)) return nothing(begun, begun.state);
        const { own, others } = ofKind((await followed.of(rule.ruleId)).values(), "violation");
        // All of them, where nobody has looked since the rule changed.
        const since = before.violationVaults === undefined ? new Date(0) : from;
        const ended = await endedViolations(own, since, reading, tables);
        const found = await together(rule, begun, ended, others, begun.state);
        return found.more ? found : { ...found, state: { ...found.state, violationVaults: reading.vaults } };
      }
      case "scanFailure": {
        const since = { from, scansSeen: before.scansSeen };
        const alerts = () => followed.of(rule.ruleId);
        const found = await scanFailures(rule, since, { tables, notifications, alerts }, MAX_ITEMS);
        const state = { scansSeen: found.scansSeen };
        // Earlier versions told of each scan by itself, so of what fails now, too.
        const isOfEarlier = stored?.generation === rule.generation && stored.scansSeen === undefined;
        if (isOfEarlier) return { ...nothing({ items: [], more: found.more }, state), adopted: found.items };
        return await together(rule, found, found.ended, found.others, state);
      }
      case "serviceCredentialExpiry":
        return nothing(await credentialItems(rule, run.now, { sources: deps.credentials, notifications }, MAX_ITEMS));
      case "breakGlass":
        if (!deps.audit) return nothing({ items: [], more: false });
        return nothing(await breakGlassItems(rule, from, { audit: deps.audit, notifications }, MAX_ITEMS));
      case "rotationDue":
      case "rotationDone":
      case "rotationFailed":
      case "syncFailed":
      case "referenceUnresolved":
      case "unexpectedReader":
        return nothing(await automationItems(rule, from, { sources: deps.automation, notifications }, MAX_ITEMS));
    }
  };

  /**
   * What began and what has ended, in as much as one message holds.
   *
   * @param others - Alerts of what the rule was about before it was changed: nothing is told of them any more.
   */
  async function together(
    rule: RuleRecord,
    begun: { items: Item[]; more: boolean },
    ended: EndItem[],
    others: Found["untold"],
    state: Partial<StateRecord> = {},
  ): Promise<Found> {
    const toTell = await notifications.unnotified(rule.ruleId, await deps.endsToTell(rule, ended));
    // Beside what is not to be told: an end that was told before its row was gone, or whose row was written late.
    const untold = ended.filter((one) => !toTell.includes(one));
    const room = Math.max(0, MAX_ITEMS - begun.items.length);
    return {
      items: [...begun.items, ...toTell.slice(0, room)],
      more: begun.more || toTell.length > room,
      state,
      untold: [...untold, ...others],
      adopted: [],
    };
  }
}

const nothing = (begun: { items: Item[]; more: boolean }, state: Partial<StateRecord> = {}): Found => ({
  ...begun,
  state,
  untold: [],
  adopted: [],
});
