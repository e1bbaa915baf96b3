import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { StorageCorrupt } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import { DELIVERY_QUEUE, MAX_ITEMS } from "./delivery.ts";
import { isDue } from "./digest-schedule.ts";
import { createEscalationChannels } from "./escalation-channels.ts";
import { createItemFinder, type EvaluationContext, type FoundItems, type ItemFinderDeps } from "./find-items.ts";
import type { History } from "./history.ts";
import { byUrgency, type Item } from "./items.ts";
import { createFollowUps, followUpAfter } from "./reminders.ts";
import { mayHaveBeenSent, type RestoreMarker, readRestoreMarker } from "./restore-marker.ts";
import { isAboutExpiry, isTracked, type RuleRecord } from "./rule.ts";
import { createRuleNotifications, itemsFor } from "./rule-notifications.ts";
import { RuleStates, STATES, type StateRecord } from "./rule-state.ts";
import type { AlertRules } from "./rules.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";
import { readVaultSnapshot } from "./vault-changes.ts";

/**
 * The evaluation of alert rules. A timer runs it every 15 minutes, and a finished scan requests it. It finds the items that
 * each rule must notify about and creates deliveries (messages) for them. Alerts about some items stay open (tracked) until
 * they are resolved; follow-ups are reminders and escalations of open alerts.
 */

/** Maximum number of messages of one rule in one run. The next run continues. */
const MAX_ROUNDS = 50;
/**
 * Interval at which the state of a rule without items is written, so that the next evaluation reads a short range of expiry
 * dates.
 */
const REFRESH_MS = 6 * HOUR_MS;
/** A delivery that is overdue by this time has lost its queue message. */
const LOST_AFTER_MS = 30 * MINUTE_MS;

/** The items that a rule would notify about now. */
export interface Forecast {
  /** Most urgent first, at most as many as fit into one message. */
  items: Item[];
  more: boolean;
  /** Whether this is the rule's first evaluation, which reports all existing matches. */
  isFirst: boolean;
  /** Lower-cased names of vaults whose assets are excluded: out of scope, or credentials that need a license. */
  hidden: readonly string[];
}

/** The evaluation of alert rules. */
export interface Evaluation {
  /** Evaluates the rules that are due and creates deliveries for their items. */
  run(): Promise<void>;
  /**
   * Returns the items that a rule would notify about now, even if it is disabled or not due. Writes nothing.
   *
   * @param rule - A stored rule, or a new one without earlier notifications.
   */
  forecast(rule: RuleRecord): Promise<Forecast>;
}

/**
 * Creates the evaluation. It makes these writes for one rule, in this order:
 *
 * 1. The state row with the progress of the evaluation and the pending delivery. This is the commit: without it, nothing has
 *    happened; with it, the remaining steps will be completed.
 * 2. The rows of the notification log and of tracked alerts.
 * 3. The delivery and its queue message.
 * 4. The state row without the pending delivery.
 *
 * If a run crashes after the commit, the next run completes the steps before it evaluates the rule again. All steps are
 * idempotent. Of two concurrent runs, only one can commit.
 */
export function createEvaluation(
  deps: Omit<ItemFinderDeps, "resolutionsToSend"> & {
    queues: Queues;
    settings: Pick<Settings, "values">;
    rules: AlertRules;
    trackedAlerts: TrackedAlerts;
    acknowledgements: Acknowledgements;
    history: History;
    licensed: () => Promise<boolean>;
    clock: Clock;
    log: Logger;
  },
): Evaluation {
  const { tables, queues, rules, notifications, trackedAlerts, history, clock, log } = deps;
  const escalationChannels = createEscalationChannels(deps);
  const { notify, commit, completeCommit, close } = createRuleNotifications(deps, escalationChannels);
  const findItems = createItemFinder({ ...deps, resolutionsToSend: escalationChannels.resolutionsToSend });
  const followUps = createFollowUps(deps);

  async function run(): Promise<void> {
    if (!(await deps.settings.values()).enableNotifications) return log.info("Notifications are turned off");
    const now = clock.now();
    // The marker that a restore from a copy of the store leaves. Undefined if there was none lately.
    const restored = await readRestoreMarker(tables, now);
    const failures: unknown[] = [];
    const states = new Map<string, Row<StateRecord>>();
    // A rule whose state can't be read is not evaluated, because it would notify of everything again.
    const unreadable = new Map<string, StorageCorrupt>();
    const onCorrupt = (row: StorageCorrupt) => void unreadable.set(row.rowKey, row);
    for await (const rows of tables.pages(RuleStates, { partitionKey: STATES, onCorrupt }))
      for (const row of rows) states.set(row.rowKey, row);

    const forEach = async <T>(items: Iterable<T>, work: (item: T) => Promise<void>) => {
      for (const item of items) {
        try {
          await work(item);
        } catch (error) {
          // A failing rule must not stop the others. The run fails after all rules were evaluated. A conflict means that
          // another run evaluates the rule, so it is no error.
          if (!isConflict(error)) failures.push(error);
        }
      }
    };
    await forEach([...states.values()], async (state) => {
      if (state.pending) states.set(state.rowKey, await completeCommit(state, restored));
    });
    const all = await rules.all();
    failures.push(...all.flatMap(({ ruleId }) => unreadable.get(ruleId) ?? []));
    const due = all.filter(
      (rule) => !unreadable.has(rule.ruleId) && isDue(rule, evaluatedAt(rule, states.get(rule.ruleId)), now),
    );
    if (due.length > 0) {
      const context = await contextOf(due, now, true);
      await forEach(due, async (rule) => {
        const state = states.get(rule.ruleId);
        // Still pending: the completion above failed, so the rule waits for the next run.
        if (!state?.pending) await evaluateRule(rule, state, context, restored);
      });
    }
    for (const deliveryId of await history.overdue(new Date(now.getTime() - LOST_AFTER_MS))) {
      log.warn("A delivery's message seems lost and is sent again", { deliveryId });
      await queues.send(DELIVERY_QUEUE, { deliveryId });
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, `${failures.length} rules could not be evaluated`);
  }

  /**
   * Reads the data that all rules of a run share.
   *
   * @param storeVersions - Whether to store which vaults changed, so that the next run finds later changes.
   */
  async function contextOf(due: readonly RuleRecord[], now: Date, storeVersions: boolean): Promise<EvaluationContext> {
    const [vaults, snoozes] = await Promise.all([
      due.some(({ alertType }) => isAboutExpiry(alertType))
        ? readVaultSnapshot(tables, await deps.licensed(), storeVersions)
        : undefined,
      deps.snoozes.all(),
    ]);
    let violations: ReturnType<EvaluationContext["violations"]> | undefined;
    return { now, vaults, snoozes, violations: () => (violations ??= deps.violations!.readViolations()) };
  }

  /** Notifies of the new items of a rule, in as many messages as needed, and then of its follow-ups. */
  async function evaluateRule(
    rule: RuleRecord,
    stored: Row<StateRecord> | undefined,
    context: EvaluationContext,
    restored: RestoreMarker | undefined,
  ): Promise<void> {
    const { now, vaults } = context;
    // Held deliveries may have been sent between the copy and the restore, so a person must send or drop them.
    const held = mayHaveBeenSent(rule, stored, restored);
    // Each round sends at most one message and starts from the state that the last round wrote.
    let row = stored;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const before = startOf(rule, row);
      const foundItems = await findItems(rule, before, row, context);
      const isComplete = !foundItems.more && !foundItems.isIncomplete;
      await applySilently(rule, foundItems, now);
      // `adopted` are failures that an earlier version reported. They become tracked alerts without a notification.
      const opensTrackedAlert =
        foundItems.adopted.length > 0 || (isTracked(rule.alertType) && foundItems.items.length > 0);
      const after: StateRecord = {
        ...before,
        // If not all items fit into this message, the next round evaluates the same time span again and finds the others. So
        // does the next run if rows could not be read. The revision counts changes of vaults. The next evaluation reads only
        // vaults that changed after it.
        at: isComplete ? now.toISOString() : before.at,
        revision: isComplete ? (vaults?.revision ?? before.revision) : before.revision,
        ...foundItems.state,
        followed: before.followed || opensTrackedAlert || undefined,
        followUpAt: earlier(before.followUpAt, followUpAfter(rule, [...foundItems.items, ...foundItems.adopted], now)),
      };
      if (foundItems.items.length > 0) row = await notify(rule, row, after, foundItems.items, { now, held });
      // The state is also written while deliveries are held, because its time decides until when they are held.
      else if (foundItems.more || row === undefined || held || isWorthWriting(rule, row, after))
        row = await commit(rule, row, after);
      if (foundItems.more) continue;
      if (row) await followUp(rule, row, context, held);
      return;
    }
    log.warn("A rule has more items than one run may notify of. The next run continues.", { ruleId: rule.ruleId });
  }

  /** Closes and adds tracked alerts that cause no notification. If this fails, the next run repeats it. */
  async function applySilently(rule: RuleRecord, { silentlyResolved, adopted }: FoundItems, now: Date): Promise<void> {
    await close(rule.ruleId, silentlyResolved);
    if (adopted.length > 0)
      // Adds only rows of tracked alerts, which are in the table of the notification log, without a delivery (empty id).
      await notifications.add(rule.ruleId, "", [], trackedAlerts.operations("", now.toISOString(), adopted));
  }

  /** Sends reminders of persisting failures, and escalates alerts without acknowledgment. */
  async function followUp(
    rule: RuleRecord,
    stored: Row<StateRecord>,
    context: EvaluationContext,
    held: boolean,
  ): Promise<void> {
    const { now } = context;
    if (stored.followUpAt === undefined || stored.followUpAt > now.toISOString()) return;
    const { stillFailing, escalated, nextAt } = await followUps(rule, context);
    let row = stored;
    const reminders = stillFailing.slice(0, MAX_ITEMS);
    if (reminders.length > 0) row = await notify(rule, row, withoutKeys(row), reminders, { now, held });
    const escalations = escalated.slice(0, MAX_ITEMS);
    if (escalations.length > 0) {
      const channel = await escalationChannels.channelOf(rule);
      row = await notify(rule, row, withoutKeys(row), escalations, { now, held, channel });
    }
    // If one message could not contain all items, the next run continues.
    const isComplete = reminders.length === stillFailing.length && escalations.length === escalated.length;
    if (isComplete) await commit(rule, row, { ...withoutKeys(row), followUpAt: nextAt });
  }

  return {
    run,

    async forecast(rule) {
      const row = await tables.get(RuleStates, STATES, rule.ruleId);
      const context = await contextOf([rule], clock.now(), false);
      const { items, more } = await findItems(rule, startOf(rule, row), row, context);
      const { stillFailing, escalated } = await followUps(rule, context);
      // `itemsFor` leaves out resolutions if the rule does not send them.
      const all = [...itemsFor(rule, items), ...stillFailing, ...escalated].sort(byUrgency);
      return { items: all, more, isFirst: row === undefined, hidden: context.vaults?.hidden ?? [] };
    },
  };
}

const earlier = (a: string | undefined, b: string | undefined): string | undefined =>
  a === undefined || (b !== undefined && b < a) ? b : a;
const later = (a: string, b: string): string => (a > b ? a : b);

/** Returns the time of the last evaluation, or of the rule's activation if that is later. */
const evaluatedAt = (rule: RuleRecord, state: StateRecord | undefined): Date =>
  new Date(later(state?.at ?? rule.activeSince, rule.activeSince));

/**
 * Returns the state from which the evaluation resumes. If the rule's scope changed (its generation), everything is evaluated
 * again, and follow-ups are due at once.
 */
function startOf(rule: RuleRecord, state: StateRecord | undefined): StateRecord {
  const at = evaluatedAt(rule, state).toISOString();
  if (!state) return { generation: rule.generation, at, revision: 0 };
  const { violationCursor, standingCursor, violationVaults, scansSeen, followed, followUpAt } = state;
  const retained = { at, violationCursor, standingCursor, followed };
  if (state.generation === rule.generation)
    return {
      ...retained,
      generation: rule.generation,
      revision: state.revision,
      violationVaults,
      scansSeen,
      followUpAt,
    };
  return { ...retained, generation: rule.generation, revision: 0, ...(followed ? { followUpAt: at } : {}) };
}

/**
 * Returns whether the state must be written although there are no items. A digest writes it always, because its time decides when the
 * next digest is due.
 */
const isWorthWriting = (rule: RuleRecord, before: StateRecord, after: StateRecord): boolean =>
  rule.deliveryMode === "digest" ||
  // As text, because `scansSeen` is an array.
  PROGRESS.some((member) => String(before[member]) !== String(after[member])) ||
  Date.parse(after.at) - Date.parse(before.at) >= REFRESH_MS;
/**
 * Members of the state, other than the time, that record the progress of an evaluation. `generation` and `revision` count
 * changes of the rule and of vaults. The cursors are positions in the violations. `violationVaults` is the number of vaults
 * with compliance results, and `scansSeen` has ids of evaluated scans. `followed`: the rule has ever opened a tracked alert.
 */
const PROGRESS = [
  "generation",
  "revision",
  "violationCursor",
  "standingCursor",
  "violationVaults",
  "scansSeen",
  "followed",
  "followUpAt",
] as const satisfies (keyof StateRecord)[];
