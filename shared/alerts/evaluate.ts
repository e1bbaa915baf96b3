import type { Clock, Logger } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Row } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { RowChanged, RowExists, type Tables } from "../storage/tables.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, deliveryIdOf, MAX_NEWS, partsOf } from "./delivery.ts";
import { isDue } from "./due.ts";
import { type Estate, readEstate } from "./estate.ts";
import { expiringNews } from "./expiring.ts";
import { scanNews, type ViolationSource, violationNews } from "./happenings.ts";
import type { History } from "./history.ts";
import { type News, packNews, unpackNews } from "./news.ts";
import { recordOf } from "./record.ts";
import { isAboutExpiry, type RuleRecord } from "./rule.ts";
import type { RuleRoom } from "./rules.ts";
import type { SnoozeRoom } from "./snoozes.ts";
import { RuleStates, STATES, type StateRecord } from "./state.ts";
import type { ToldMarks } from "./told.ts";

/** Messages one rule may make in one run; the next run goes on. */
const MAX_ROUNDS = 50;
/** An idle rule's state is written this often, so that what a threshold passed over stays a short range. */
const REFRESH_MS = 6 * 3_600_000;
/** A delivery whose message has not come this long after it was due has lost it. */
const LOST_AFTER_MS = 30 * 60_000;

/**
 * Finds what each rule has to tell and commits to it. Of one rule, in this order: a row that says how far the rule was
 * evaluated and what came of it (the commit: before it nothing has happened, after it everything will), the marks of what
 * was told, the delivery, its message, and the row without the delivery. A run that dies after the commit is finished by
 * the next one, before that looks for anything new; each step may be done twice. Two runs at once can't both commit.
 */
export function createEvaluation(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  rules: RuleRoom;
  snoozes: SnoozeRoom;
  told: ToldMarks;
  history: History;
  violations: ViolationSource | undefined;
  ownerTag: string;
  clock: Clock;
  log: Logger;
}) {
  const { tables, queues, rules, told, history, clock, log } = deps;

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
      const [estate, snoozes] = await Promise.all([
        due.some(({ alertType }) => isAboutExpiry(alertType)) ? readEstate(tables) : undefined,
        deps.snoozes.all(),
      ]);
      await each(due, async (rule) => {
        const state = states.get(rule.ruleId);
        if (!state?.pending) await evaluateRule(rule, state, now, estate, snoozes);
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
    estate: Estate | undefined,
    snoozes: Awaited<ReturnType<SnoozeRoom["all"]>>,
  ): Promise<void> {
    let row = stored;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const before = startOf(rule, row);
      const found = await look(rule, before, now, estate, snoozes);
      const after: StateRecord = {
        generation: rule.generation,
        // What is left over is found again by looking at the same span again.
        at: found.more ? before.at : now.toISOString(),
        revision: found.more ? before.revision : (estate?.revision ?? before.revision),
        ...(found.cursor === undefined ? {} : { violationCursor: found.cursor }),
      };
      if (found.news.length > 0) row = await tell(rule, row, after, found.news, now);
      else if (found.more || row === undefined || isWorthWriting(rule, row, after))
        row = await commit(rule, row, after);
      if (!found.more) return;
    }
    log.warn("A rule has more to tell than one run may; the next one goes on", { ruleId: rule.ruleId });
  }

  async function look(
    rule: RuleRecord,
    before: StateRecord,
    now: Date,
    estate: Estate | undefined,
    snoozes: Awaited<ReturnType<SnoozeRoom["all"]>>,
  ): Promise<{ news: News[]; more: boolean; cursor?: string }> {
    const from = new Date(before.at);
    switch (rule.alertType) {
      case "expiration":
      case "expired":
        return await expiringNews(
          rule,
          { from, to: now, revision: before.revision },
          estate!,
          { tables, told, ownerTag: deps.ownerTag, ...deps.snoozes.split(snoozes, rule.ruleId, from, now) },
          MAX_NEWS,
        );
      case "scanFailure":
        return await scanNews(rule, from, { tables, told }, MAX_NEWS);
      case "complianceViolation":
        if (!deps.violations) return { news: [], more: false };
        return await violationNews(
          rule,
          before.violationCursor,
          { source: deps.violations, told, ownerTag: deps.ownerTag },
          MAX_NEWS,
        );
    }
  }

  async function tell(
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    after: StateRecord,
    news: News[],
    now: Date,
  ): Promise<Row<StateRecord>> {
    const deliveryId = deliveryIdOf(rule.ruleId, now, news);
    const pending = { deliveryId, createdAt: now.toISOString(), rule: ruleOf(rule) };
    const committed = await commit(rule, row, { ...after, pending, pendingNews: packNews(news) });
    log.info("A rule has something to tell", { ruleId: rule.ruleId, deliveryId, tellings: news.length });
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
    const news = unpackNews(pendingNews);
    await told.mark(rule.ruleId, deliveryId, news);
    await history.record(newDelivery(rule, { deliveryId, createdAt, news }));
    await queues.send(DELIVERY_QUEUE, { deliveryId });
    return await tables.replace(RuleStates, rest);
  }

  return evaluate;
}

/** A delivery of a rule that nothing was done about yet. */
export function newDelivery(
  rule: RuleRecord,
  made: { deliveryId: string; createdAt: string; news: readonly News[]; test?: boolean; requestedBy?: string },
): DeliveryRecord {
  const { deliveryId, createdAt, news, test = false, requestedBy = "system" } = made;
  return {
    ...{ deliveryId, ruleId: rule.ruleId, ruleName: rule.name, alertType: rule.alertType },
    ...{ deliveryMethod: rule.deliveryMethod, deliveryMode: rule.deliveryMode, test, requestedBy, createdAt },
    ...{ status: "pending", parts: partsOf(rule, deliveryId), nextAt: createdAt, revivals: 0 },
    ...{ newsTotal: news.length, news: packNews(news) },
  };
}

/** The rule without what the table adds to a row of it. */
const ruleOf = (rule: RuleRecord | Row<RuleRecord>): RuleRecord => ("etag" in rule ? recordOf(rule) : rule);

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
