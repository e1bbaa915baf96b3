import type { Audit } from "../audit/audit.ts";
import type { Clock, Logger } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { RowChanged, RowExists, type Tables } from "../storage/tables.ts";
import { HOUR_MS, MINUTE_MS } from "../time.ts";
import { type AutomationSource, automationItems } from "./automation.ts";
import { breakGlassItems } from "./break-glass.ts";
import { type CredentialSource, credentialItems } from "./credentials.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, deliveryIdOf, MAX_ITEMS, partsOf } from "./delivery.ts";
import { isDue } from "./due.ts";
import { scanItems, type ViolationSource, violationItems } from "./events.ts";
import { expiringItems } from "./expiring.ts";
import type { History } from "./history.ts";
import { type Item, packItems, unpackItems } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { isAboutExpiry, type RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { Snoozes } from "./snoozes.ts";
import { RuleStates, STATES, type StateRecord } from "./state.ts";
import { readVaultSnapshot, type VaultSnapshot } from "./vault-changes.ts";

/** Messages of one rule in one run; the next run goes on. */
const MAX_ROUNDS = 50;
/** An idle rule's state is written this often, so that what a threshold passed over stays a short range. */
const REFRESH_MS = 6 * HOUR_MS;
/** A delivery whose message has not come this long after it was due has lost it. */
const LOST_AFTER_MS = 30 * MINUTE_MS;

/**
 * Finds what each rule has to notify of and commits to it. Of one rule, in this order: a row that says how far the rule
 * was evaluated and what came of it (the commit: before it nothing has happened, after it everything will), the rows of
 * the notification log, the delivery, its message, and the row without the delivery. A run that dies after the commit is
 * finished by the next one, before that looks for anything new; each step may be done twice. Two runs at once can't both
 * commit.
 */
export function createEvaluation(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  rules: AlertRules;
  snoozes: Snoozes;
  notifications: NotificationLog;
  history: History;
  licensed: () => Promise<boolean>;
  violations: ViolationSource | undefined;
  credentials: readonly CredentialSource[];
  audit: Pick<Audit, "list"> | undefined;
  automation: readonly AutomationSource[];
  ownerTag: string;
  clock: Clock;
  log: Logger;
}) {
  const { tables, queues, rules, notifications, history, clock, log } = deps;

  async function evaluate(): Promise<void> {
    if (!(await deps.settings.values()).enableNotifications) return log.info("Notifications are turned off");
    const now = clock.now();
    const failures: unknown[] = [];
    const states = new Map<string, Row<StateRecord>>();
    for await (const rows of tables.pages(RuleStates, { partitionKey: STATES }))
      for (const row of rows) states.set(row.rowKey, row);

    const each = async <T>(items: Iterable<T>, work: (item: T) => Promise<void>) => {
      for (const item of items) {
        try {
          await work(item);
        } catch (error) {
          // One rule's failure is not the others': all are tried, then the run fails and is seen to.
          if (!(error instanceof RowChanged || error instanceof RowExists)) failures.push(error);
        }
      }
    };
    await each([...states.values()], async (state) => {
      if (state.pending) states.set(state.rowKey, await settle(state));
    });
    const due = (await rules.all()).filter((rule) => isDue(rule, evaluatedAt(rule, states.get(rule.ruleId)), now));
    if (due.length > 0) {
      const [vaults, snoozes] = await Promise.all([
        due.some(({ alertType }) => isAboutExpiry(alertType))
          ? readVaultSnapshot(tables, await deps.licensed())
          : undefined,
        deps.snoozes.all(),
      ]);
      await each(due, async (rule) => {
        const state = states.get(rule.ruleId);
        if (!state?.pending) await evaluateRule(rule, state, now, vaults, snoozes);
      });
    }
    for (const deliveryId of await history.overdue(new Date(now.getTime() - LOST_AFTER_MS))) {
      log.warn("A delivery's message seems lost and is sent again", { deliveryId });
      await queues.send(DELIVERY_QUEUE, { deliveryId });
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, `${failures.length} rules could not be evaluated`);
  }

  async function evaluateRule(
    rule: RuleRecord,
    stored: Row<StateRecord> | undefined,
    now: Date,
    vaults: VaultSnapshot | undefined,
    snoozes: Awaited<ReturnType<Snoozes["all"]>>,
  ): Promise<void> {
    let row = stored;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const before = startOf(rule, row);
      const found = await look(rule, before, now, vaults, snoozes);
      const after: StateRecord = {
        generation: rule.generation,
        // What is left over is found again by looking at the same span again.
        at: found.more ? before.at : now.toISOString(),
        revision: found.more ? before.revision : (vaults?.revision ?? before.revision),
        ...(found.cursor === undefined ? {} : { violationCursor: found.cursor }),
      };
      if (found.items.length > 0) row = await notify(rule, row, after, found.items, now);
      else if (found.more || row === undefined || isWorthWriting(rule, row, after))
        row = await commit(rule, row, after);
      if (!found.more) return;
    }
    log.warn("A rule has more items than one run may notify of; the next one goes on", { ruleId: rule.ruleId });
  }

  async function look(
    rule: RuleRecord,
    before: StateRecord,
    now: Date,
    vaults: VaultSnapshot | undefined,
    snoozes: Awaited<ReturnType<Snoozes["all"]>>,
  ): Promise<{ items: Item[]; more: boolean; cursor?: string }> {
    const from = new Date(before.at);
    switch (rule.alertType) {
      case "expiration":
      case "expired":
      case "credentialExpiry":
        return await expiringItems(
          rule,
          { from, to: now, revision: before.revision },
          vaults!,
          { tables, notifications, ownerTag: deps.ownerTag, ...deps.snoozes.split(snoozes, rule.ruleId, from, now) },
          MAX_ITEMS,
        );
      case "scanFailure":
        return await scanItems(rule, from, { tables, notifications }, MAX_ITEMS);
      case "serviceCredentialExpiry":
        return await credentialItems(rule, now, { sources: deps.credentials, notifications }, MAX_ITEMS);
      case "breakGlass":
        if (!deps.audit) return { items: [], more: false };
        return await breakGlassItems(rule, from, { audit: deps.audit, notifications }, MAX_ITEMS);
      case "rotationDue":
      case "rotationDone":
      case "rotationFailed":
      case "syncFailed":
      case "referenceUnresolved":
        return await automationItems(rule, from, { sources: deps.automation, notifications }, MAX_ITEMS);
      case "complianceViolation":
        if (!deps.violations) return { items: [], more: false };
        return await violationItems(
          rule,
          before.violationCursor,
          { source: deps.violations, notifications, ownerTag: deps.ownerTag },
          MAX_ITEMS,
        );
    }
  }

  async function notify(
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    after: StateRecord,
    items: Item[],
    now: Date,
  ): Promise<Row<StateRecord>> {
    const deliveryId = deliveryIdOf(rule.ruleId, now, items);
    const pending = { deliveryId, createdAt: now.toISOString(), rule: withoutKeys(rule) };
    const committed = await commit(rule, row, { ...after, pending, pendingNews: packItems(items) });
    log.info("A rule notifies", { ruleId: rule.ruleId, deliveryId, items: items.length });
    return await settle(committed);
  }

  const commit = (
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    value: StateRecord,
  ): Promise<Row<StateRecord>> =>
    row
      ? tables.replace(RuleStates, { ...value, partitionKey: STATES, rowKey: rule.ruleId, etag: row.etag })
      : tables.insert(RuleStates, STATES, rule.ruleId, value);

  /** Does all that a commit promised. */
  async function settle(state: Row<StateRecord>): Promise<Row<StateRecord>> {
    const { pending, pendingNews, ...rest } = state;
    if (!pending || !pendingNews) return state;
    const { deliveryId, createdAt, rule } = pending;
    const items = unpackItems(pendingNews);
    await notifications.add(rule.ruleId, deliveryId, items);
    await history.record(newDelivery(rule, { deliveryId, createdAt, items }));
    await queues.send(DELIVERY_QUEUE, { deliveryId });
    return await tables.replace(RuleStates, rest);
  }

  return evaluate;
}

/** A delivery of a rule that nothing was done about yet. */
export function newDelivery(
  rule: RuleRecord,
  made: { deliveryId: string; createdAt: string; items: readonly Item[]; test?: boolean; requestedBy?: string },
): DeliveryRecord {
  const { deliveryId, createdAt, items, test = false, requestedBy = "system" } = made;
  return {
    deliveryId,
    ruleId: rule.ruleId,
    ruleName: rule.name,
    alertType: rule.alertType,
    deliveryMethod: rule.deliveryMethod,
    deliveryMode: rule.deliveryMode,
    test,
    requestedBy,
    createdAt,
    status: "pending",
    parts: partsOf(rule, deliveryId),
    nextAt: createdAt,
    revivals: 0,
    newsTotal: items.length,
    news: packItems(items),
  };
}

const later = (a: string, b: string): string => (a > b ? a : b);

const evaluatedAt = (rule: RuleRecord, state: StateRecord | undefined): Date =>
  new Date(later(state?.at ?? rule.activeSince, rule.activeSince));

/** Where to go on: at the last evaluation, but not before the rule became active; at everything when its scope changed. */
function startOf(rule: RuleRecord, state: StateRecord | undefined): StateRecord {
  const same = state?.generation === rule.generation;
  return {
    generation: rule.generation,
    at: evaluatedAt(rule, state).toISOString(),
    revision: same ? state.revision : 0,
    ...(state?.violationCursor === undefined ? {} : { violationCursor: state.violationCursor }),
  };
}

const isWorthWriting = (rule: RuleRecord, before: StateRecord, after: StateRecord): boolean =>
  rule.deliveryMode === "digest" ||
  before.generation !== after.generation ||
  before.revision !== after.revision ||
  before.violationCursor !== after.violationCursor ||
  Date.parse(after.at) - Date.parse(before.at) >= REFRESH_MS;
