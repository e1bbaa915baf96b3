import * as z from "zod";
import type { Clock, Logger } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { isConflict } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import { pack, unpackBytes, unpacking } from "../storage/packed.ts";
import type { Queues } from "../storage/queues.ts";
import { HOUR_MS, MINUTE_MS } from "../time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, deliveryIdOf, MAX_ITEMS, partsOf } from "./delivery.ts";
import { isDue } from "./due.ts";
import { createFollowUps, followUpAfter } from "./follow-up.ts";
import type { EndItem, Followed } from "./followed.ts";
import type { History } from "./history.ts";
import { byUrgency, type Item, Item as ItemSchema } from "./items.ts";
import { type Circumstances, createLook, type Found, type LookDeps } from "./look.ts";
import { isAboutExpiry, isFollowed, type RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { createSecondStep } from "./second-step.ts";
import { RuleStates, STATES, type StateRecord } from "./state.ts";
import { readVaultSnapshot } from "./vault-changes.ts";

/** Messages of one rule in one run; the next run goes on. */
const MAX_ROUNDS = 50;
/** An idle rule's state is written this often, so that what a threshold passed over stays a short range. */
const REFRESH_MS = 6 * HOUR_MS;
/** A delivery whose message has not come this long after it was due has lost it. */
const LOST_AFTER_MS = 30 * MINUTE_MS;

/** What a rule would tell at an instant. */
export interface Forecast {
  /** The most urgent first, as many as one message holds. */
  items: Item[];
  more: boolean;
  /** Nothing was ever told by it: it tells what stands. */
  isFirst: boolean;
  /** Lower-cased names of vaults of whose assets nothing is told. */
  hidden: readonly string[];
}

/** Finds what the rules have to tell. */
export interface Evaluation {
  /** Evaluates the rules that are due and commits to what they have to tell. */
  run(): Promise<void>;
  /**
   * What a rule would tell now, whether it is enabled and due or not. Writes nothing.
   *
   * @param rule - As it is stored, or one that is not stored: nothing was told by that.
   */
  forecast(rule: RuleRecord): Promise<Forecast>;
}

/**
 * Finds what each rule has to notify of and commits to it. Of one rule, in this order: a row that says how far the rule
 * was evaluated and what came of it (the commit: before it nothing has happened, after it everything will), the rows of
 * the notification log and of the alerts that are followed, the delivery, its message, and the row without the delivery. A
 * run that dies after the commit is finished by the next one, before that looks for anything new; each step may be done
 * twice. Two runs at once can't both commit.
 */
export function createEvaluation(
  deps: Omit<LookDeps, "endsToTell"> & {
    queues: Queues;
    settings: Pick<Settings, "values">;
    rules: AlertRules;
    followed: Followed;
    acknowledgements: Acknowledgements;
    history: History;
    licensed: () => Promise<boolean>;
    clock: Clock;
    log: Logger;
  },
): Evaluation {
  const { tables, queues, rules, notifications, followed, acknowledgements, history, clock, log } = deps;
  const secondSteps = createSecondStep(deps);
  const look = createLook({ ...deps, endsToTell: secondSteps.endsToTell });
  const followUps = createFollowUps(deps);

  async function run(): Promise<void> {
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
          if (!isConflict(error)) failures.push(error);
        }
      }
    };
    await each([...states.values()], async (state) => {
      if (state.pending) states.set(state.rowKey, await settle(state));
    });
    const due = (await rules.all()).filter((rule) => isDue(rule, evaluatedAt(rule, states.get(rule.ruleId)), now));
    if (due.length > 0) {
      const circumstances = await circumstancesOf(due, now, true);
      await each(due, async (rule) => {
        const state = states.get(rule.ruleId);
        if (!state?.pending) await evaluateRule(rule, state, circumstances);
      });
    }
    for (const deliveryId of await history.overdue(new Date(now.getTime() - LOST_AFTER_MS))) {
      log.warn("A delivery's message seems lost and is sent again", { deliveryId });
      await queues.send(DELIVERY_QUEUE, { deliveryId });
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, `${failures.length} rules could not be evaluated`);
  }

  /** @param keep - Whether it is kept which vaults have changed, so that the next run finds those that change from here on. */
  async function circumstancesOf(due: readonly RuleRecord[], now: Date, keep: boolean): Promise<Circumstances> {
    const [vaults, snoozes] = await Promise.all([
      due.some(({ alertType }) => isAboutExpiry(alertType))
        ? readVaultSnapshot(tables, await deps.licensed(), keep)
        : undefined,
      deps.snoozes.all(),
    ]);
    let violations: ReturnType<Circumstances["violations"]> | undefined;
    return { now, vaults, snoozes, violations: () => (violations ??= deps.violations!.readViolations()) };
  }

  async function evaluateRule(
    rule: RuleRecord,
    stored: Row<StateRecord> | undefined,
    circumstances: Circumstances,
  ): Promise<void> {
    const { now, vaults } = circumstances;
    let row = stored;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const before = startOf(rule, row);
      const found = await look(rule, before, row, circumstances);
      await keep(rule, found, now);
      const follows = found.adopted.length > 0 || (isFollowed(rule.alertType) && found.items.length > 0);
      const after: StateRecord = {
        ...before,
        // What is left over is found again by looking at the same span again.
        at: found.more ? before.at : now.toISOString(),
        revision: found.more ? before.revision : (vaults?.revision ?? before.revision),
        ...found.state,
        followed: before.followed || follows || undefined,
        followUpAt: earlier(before.followUpAt, followUpAfter(rule, [...found.items, ...found.adopted], now)),
      };
      if (found.items.length > 0) row = await notify(rule, row, after, found.items, now);
      else if (found.more || row === undefined || isWorthWriting(rule, row, after))
        row = await commit(rule, row, after);
      if (found.more) continue;
      if (row) await followUp(rule, row, circumstances);
      return;
    }
    log.warn("A rule has more items than one run may notify of; the next one goes on", { ruleId: rule.ruleId });
  }

  /** What is followed from now on, or not any more, without anybody being told. Done again by the next run where it fails. */
  async function keep(rule: RuleRecord, { untold, adopted }: Found, now: Date): Promise<void> {
    await close(rule.ruleId, untold);
    if (adopted.length > 0)
      await notifications.add(rule.ruleId, "", [], followed.operations("", now.toISOString(), adopted));
  }

  async function close(ruleId: string, ended: readonly Pick<EndItem, "of" | "since">[]): Promise<void> {
    await followed.close(ruleId, ended);
    await acknowledgements.end(ruleId, ended);
  }

  /** Tells of what lasts, and escalates what nobody acknowledged. */
  async function followUp(rule: RuleRecord, stored: Row<StateRecord>, circumstances: Circumstances): Promise<void> {
    const { now } = circumstances;
    if (stored.followUpAt === undefined || stored.followUpAt > now.toISOString()) return;
    const { stillFailing, escalated, nextAt } = await followUps(rule, circumstances);
    let row = stored;
    const first = stillFailing.slice(0, MAX_ITEMS);
    if (first.length > 0) row = await notify(rule, row, withoutKeys(row), first, now);
    const second = escalated.slice(0, MAX_ITEMS);
    if (second.length > 0)
      row = await notify(rule, row, withoutKeys(row), second, now, await secondSteps.channelOf(rule));
    // Where one message did not hold all of it, the next run goes on.
    const whole = first.length === stillFailing.length && second.length === escalated.length;
    if (whole) await commit(rule, row, { ...withoutKeys(row), followUpAt: nextAt });
  }

  async function notify(
    rule: RuleRecord,
    row: Row<StateRecord> | undefined,
    after: StateRecord,
    items: Item[],
    now: Date,
    channel?: RuleRecord,
  ): Promise<Row<StateRecord>> {
    const deliveryId = deliveryIdOf(rule.ruleId, now, items);
    const delivery = { deliveryId, createdAt: now.toISOString(), rule: withoutKeys(rule) };
    const secondStep = !channel && items.some(isEnd) ? await secondSteps.incidentsOf(rule) : undefined;
    const pending = {
      ...delivery,
      ...(channel && { channel: withoutKeys(channel) }),
      ...(secondStep && { secondStep: withoutKeys(secondStep) }),
    };
    const committed = await commit(rule, row, { ...after, pending, pendingNews: pack(items) });
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
    const { deliveryId, createdAt, rule, channel, secondStep } = pending;
    const items = unpacking(RuleStates, state, "pendingNews", () => unpackBytes(pendingNews, z.array(ItemSchema)));
    const ended = items.filter(isEnd);
    await notifications.add(rule.ruleId, deliveryId, items, followed.operations(deliveryId, createdAt, items));
    await close(rule.ruleId, ended);
    const escalatedFrom = { escalatedFrom: rule.ruleId };
    const made = { deliveryId, createdAt, items: itemsFor(rule, items) };
    if (made.items.length > 0)
      await handOver(channel ? newDelivery(channel, { ...made, ...escalatedFrom }) : newDelivery(rule, made));
    const escalated = secondStep ? await secondSteps.escalatedAmong(rule.ruleId, ended) : [];
    if (secondStep && escalated.length > 0) {
      const id = deliveryIdOf(secondStep.ruleId, new Date(createdAt), escalated);
      await handOver(newDelivery(secondStep, { deliveryId: id, createdAt, items: escalated, ...escalatedFrom }));
    }
    return await tables.replace(RuleStates, rest);
  }

  async function handOver(delivery: DeliveryRecord): Promise<void> {
    await history.record(delivery);
    await queues.send(DELIVERY_QUEUE, { deliveryId: delivery.deliveryId });
  }

  return {
    run,

    async forecast(rule) {
      const row = await tables.get(RuleStates, STATES, rule.ruleId);
      const circumstances = await circumstancesOf([rule], clock.now(), false);
      const { items, more } = await look(rule, startOf(rule, row), row, circumstances);
      const { stillFailing, escalated } = await followUps(rule, circumstances);
      const all = [...itemsFor(rule, items), ...stillFailing, ...escalated].sort(byUrgency);
      return { items: all, more, isFirst: row === undefined, hidden: circumstances.vaults?.hidden ?? [] };
    },
  };
}

/** A delivery of a rule that nothing was done about yet. */
export function newDelivery(
  rule: RuleRecord,
  made: Pick<DeliveryRecord, "deliveryId" | "createdAt" | "escalatedFrom"> & {
    items: readonly Item[];
    test?: boolean;
    requestedBy?: string;
  },
): DeliveryRecord {
  const { deliveryId, createdAt, items, test = false, requestedBy = "system", escalatedFrom } = made;
  return {
    deliveryId,
    ruleId: rule.ruleId,
    ruleName: rule.name,
    alertType: rule.alertType,
    deliveryMethod: rule.deliveryMethod,
    // An escalation does not wait for a digest.
    deliveryMode: escalatedFrom === undefined ? rule.deliveryMode : "immediate",
    test,
    requestedBy,
    createdAt,
    status: "pending",
    parts: partsOf(rule),
    nextAt: createdAt,
    revivals: 0,
    newsTotal: items.length,
    news: pack(items),
    ...(escalatedFrom === undefined ? {} : { escalatedFrom }),
  };
}

const isEnd = (item: Item): item is EndItem => item.kind === "renewed" || item.kind === "recovered";

/** Without the ends that only its second step is told of. */
const itemsFor = ({ tellRecovery }: RuleRecord, items: Item[]): Item[] =>
  tellRecovery === false ? items.filter((one) => !isEnd(one)) : items;

const earlier = (a: string | undefined, b: string | undefined): string | undefined =>
  a === undefined || (b !== undefined && b < a) ? b : a;
const later = (a: string, b: string): string => (a > b ? a : b);

const evaluatedAt = (rule: RuleRecord, state: StateRecord | undefined): Date =>
  new Date(later(state?.at ?? rule.activeSince, rule.activeSince));

/** Where to go on: at the last evaluation, but not before the rule became active; at everything when its scope changed. */
function startOf(rule: RuleRecord, state: StateRecord | undefined): StateRecord {
  const at = evaluatedAt(rule, state).toISOString();
  if (!state) return { generation: rule.generation, at, revision: 0 };
  const { violationCursor, standingCursor, violationVaults, scansSeen, followed, followUpAt } = state;
  const kept = { at, violationCursor, standingCursor, followed };
  if (state.generation === rule.generation)
    return { ...kept, generation: rule.generation, revision: state.revision, violationVaults, scansSeen, followUpAt };
  return { ...kept, generation: rule.generation, revision: 0, ...(followed ? { followUpAt: at } : {}) };
}

const isWorthWriting = (rule: RuleRecord, before: StateRecord, after: StateRecord): boolean =>
  rule.deliveryMode === "digest" ||
  PLACES.some((member) => String(before[member]) !== String(after[member])) ||
  Date.parse(after.at) - Date.parse(before.at) >= REFRESH_MS;
/** What says how far a rule has come, beside the instant. */
const PLACES = [
  "generation",
  "revision",
  "violationCursor",
  "standingCursor",
  "violationVaults",
  "scansSeen",
  "followed",
  "followUpAt",
] as const satisfies (keyof StateRecord)[];
