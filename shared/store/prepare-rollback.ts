import * as z from "zod";
import { DELIVERY_ROW, Deliveries } from "../alerts/delivery.ts";
import { RULE_PREFIX, Rules } from "../alerts/rule.ts";
import { RuleStates } from "../alerts/rule-state.ts";
import type { AlertRules } from "../alerts/rules.ts";
import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { decode } from "../platform/storage/columns.ts";
import { type Entity, entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { removeFormat } from "../platform/storage/store-format.ts";
import { type Operation, remove, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { TypedRow, WholeTables } from "../platform/storage/whole-tables.ts";
import { Walks } from "../reconciliation/walk-record.ts";
import { isOver, type RotationRecord, Rotations, titleOf } from "../rotation/rotation.ts";
import { recordKey } from "../rotation/rows.ts";
import { EARLIER_BUILDS, type EarlierBuild, lossesOf } from "./rollback-losses.ts";

/**
 * Prepares the store of a stopped app for an earlier build. Rows that the earlier build can't read are converted if nothing is
 * lost by it, or removed. The command refuses a store whose work must first be finished or decided by a person.
 */

/** The store is not prepared. Each line of the message says what to do first. */
export class RollbackRefused extends Error {
  override readonly name = "RollbackRefused";
}

interface Dependencies {
  wholeTables: WholeTables;
  tables: Tables;
  rules: Pick<AlertRules, "remove">;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
}

/** The changes that the preparation will make. `apply` can be repeated after a crash. */
interface Plan {
  refusals: string[];
  changes: { line: string; apply: () => Promise<void> }[];
  losses: string[];
}

// What 8bbd57d7 can't read: an alert type, a delivery status, the stage of a walk and a reason of a rotation.
const NEW_ALERT_TYPE = "rowUnreadable";
const NEW_STATUS = "inDoubt";
const NEW_STAGE = "records";
const NEW_REASON = "unanswered";
/** The reason with the same effect: the place is not written, and keeps the old secret from being removed. */
const EARLIER_REASON = "uncertain" as const;
/** Number of characters that identify a commit, as Git shows it. */
const MIN_COMMIT = 7;

/** Adds to a plan what a build needs. Rows that the newest build can't read are also unreadable for the one before it. */
const PLANS: Record<EarlierBuild, ((deps: Dependencies, plan: Plan, caller: Caller) => Promise<void>)[]> = {
  "3fd3c8ae": [],
  "8bbd57d7": [planRules, planRuleStates, planDeliveries, planWalks, planRotations],
};

/** @throws {RollbackRefused} for a commit without a known preparation. */
function buildOf(commit: string): EarlierBuild {
  const build = EARLIER_BUILDS.find(
    (known) => commit.length >= MIN_COMMIT && (commit.startsWith(known) || known.startsWith(commit)),
  );
  if (build === undefined)
    throw new RollbackRefused(`The store can be prepared for ${EARLIER_BUILDS.join(" and ")} only.`);
  return build;
}

/**
 * Prepares the store for an earlier build, and records it in the audit log. The app must be stopped. The call can be repeated
 * after a crash.
 *
 * @param to - Commit of the earlier build.
 * @param dryRun - Only reports, and writes nothing.
 * @param report - Receives a line about each change, and about each thing that the earlier build loses or does differently.
 * @throws {RollbackRefused} if the store can't be prepared as it is. Nothing was written then.
 */
export async function prepareRollback(
  deps: Dependencies,
  { to, dryRun, caller, startedBy }: { to: string; dryRun: boolean; caller: Caller; startedBy?: string | undefined },
  report: (line: string) => unknown,
): Promise<void> {
  const build = buildOf(to);
  const plan: Plan = { refusals: [], changes: [], losses: [] };
  for (const add of PLANS[build]) await add(deps, plan, caller);
  await findLosses(deps, plan, build);
  const { refusals, changes, losses } = plan;
  if (refusals.length > 0) throw new RollbackRefused(refusals.join("\n"));
  for (const { line } of changes) report(line);
  for (const line of losses) report(line);
  if (dryRun) return;
  const details = { to: build, startedBy, changes: changes.map(({ line }) => line), losses };
  await audited(deps.audit, { type: "store.preparedForRollback", caller, details }, async () => {
    for (const { apply } of changes) await apply();
    // A build that does not know the row ignores it, and any other writes its own.
    await removeFormat(deps.tables);
  });
}

/** Returns a row, or undefined if this version can't read it. The members must not contain bytes. */
function read<T>({ table, schema, members }: Entity<T>, { columns, ...keys }: TypedRow): Row<T> | undefined {
  try {
    return decode<T>(table, schema, members, { ...columns, ...keys });
  } catch (error) {
    // The earlier builds can't read the row either, so nothing changes for it.
    if (error instanceof StorageCorrupt) return undefined;
    throw error;
  }
}

const namedRule = z.object({ ruleId: z.string(), name: z.string(), alertType: z.string() });
const StoredRule = entity(
  Rules.table,
  namedRule.extend({ escalation: z.object({ ruleId: z.string().optional() }).optional() }),
);

/** Removes rules of a new type, because an earlier build evaluates no rule if it can't read one of them. */
async function planRules({ wholeTables, rules }: Dependencies, plan: Plan, caller: Caller): Promise<void> {
  const removed = new Map<string, string>();
  const escalating: { name: string; to: string }[] = [];
  for await (const row of wholeTables.rows(Rules.table)) {
    const rule = row.rowKey.startsWith(RULE_PREFIX) ? read(StoredRule, row) : undefined;
    if (!rule) continue;
    const { ruleId, name, alertType, escalation } = rule;
    if (escalation?.ruleId !== undefined) escalating.push({ name, to: escalation.ruleId });
    if (alertType !== NEW_ALERT_TYPE) continue;
    removed.set(ruleId, name);
    plan.changes.push({
      line: `Removes the alert rule "${name}" of the type ${alertType}.`,
      apply: () => rules.remove(ruleId, caller, undefined),
    });
  }
  for (const { name, to } of escalating)
    if (removed.has(to))
      plan.losses.push(`The alert rule "${name}" escalates through "${removed.get(to)}". Choose another escalation.`);
}

const StoredState = entity(
  RuleStates.table,
  z.object({
    pending: z
      .object({
        rule: namedRule,
        channel: namedRule.optional(),
        secondStep: namedRule.optional(),
        held: z.boolean().optional(),
      })
      .optional(),
  }),
);

/** A pending message contains its rule, also after the rule was removed. */
async function planRuleStates({ wholeTables, tables }: Dependencies, plan: Plan): Promise<void> {
  for await (const row of wholeTables.rows(RuleStates.table)) {
    const pending = read(StoredState, row)?.pending;
    if (!pending) continue;
    const { rule, channel, secondStep, held } = pending;
    if (held || [channel, secondStep].some((other) => other?.alertType === NEW_ALERT_TYPE))
      plan.refusals.push(
        `An evaluation of the alert rule "${rule.name}" was interrupted. Start this version, wait 15 minutes for the next evaluation, and stop it.`,
      );
    else if (rule.alertType === NEW_ALERT_TYPE)
      plan.changes.push({
        line: `Removes an alert of the rule "${rule.name}" that was not sent.`,
        async apply() {
          await tables.modify(RuleStates, row.partitionKey, row.rowKey, (state) =>
            state?.pending ? { ...withoutKeys(state), pending: undefined, pendingNews: undefined } : undefined,
          );
        },
      });
  }
}

/** List entries of deliveries, whose content does not matter here. */
const ListEntries = entity("AlertHistory", z.object({}));

/** Removes messages of a new type, because an earlier build shows no list that contains one. */
async function planDeliveries({ wholeTables, tables }: Dependencies, plan: Plan): Promise<void> {
  const held: string[] = [];
  const removed: string[] = [];
  let unsent = 0;
  for await (const { partitionKey: deliveryId, columns } of wholeTables.rows(Deliveries.table)) {
    if (columns.status === NEW_STATUS) held.push(deliveryId);
    if (columns.alertType !== NEW_ALERT_TYPE) continue;
    removed.push(deliveryId);
    if (columns.status === "pending") unsent++;
  }
  if (held.length > 0)
    plan.refusals.push(
      `Held alerts: ${held.join(", ")}. Send or drop them first: npm run store -- held, send or drop.`,
    );
  // Also entries whose delivery an earlier call removed, and entries of a status that the delivery has no longer.
  const entries = new Map<string, Operation[]>();
  for await (const { partitionKey, rowKey, columns } of wholeTables.rows(ListEntries.table)) {
    if (columns.alertType !== NEW_ALERT_TYPE && columns.status !== NEW_STATUS) continue;
    entries.set(partitionKey, [...(entries.get(partitionKey) ?? []), remove(ListEntries, rowKey)]);
  }
  if (removed.length + entries.size === 0) return;
  plan.changes.push({
    line: `Removes messages of the type ${NEW_ALERT_TYPE} from the alert history: ${removed.length}. Not sent: ${unsent}.`,
    async apply() {
      for (const deliveryId of removed) await tables.remove(Deliveries, deliveryId, DELIVERY_ROW);
      for (const [partitionKey, operations] of entries) await tables.write(ListEntries.table, partitionKey, operations);
    },
  });
}

/** Removes the position of a walk in a stage that an earlier build does not have. Its next walk starts at the beginning. */
async function planWalks({ wholeTables, tables }: Dependencies, plan: Plan): Promise<void> {
  for await (const { partitionKey, rowKey, columns } of wholeTables.rows(Walks.table)) {
    if (columns.stage !== NEW_STAGE) continue;
    plan.changes.push({
      line: `Removes the ${rowKey} record of the reconciliation. A new run starts at the beginning.`,
      apply: async () => void (await tables.remove(Walks, partitionKey, rowKey)),
    });
  }
}

async function planRotations(deps: Dependencies, plan: Plan): Promise<void> {
  for await (const row of deps.wholeTables.rows(Rotations.table)) {
    if (!row.rowKey.startsWith(recordKey(""))) continue;
    const rotation = read(Rotations, row);
    if (!rotation) continue;
    const name = `Rotation ${rotation.rotationId} of ${titleOf(rotation)}`;
    if (!isOver(rotation.status) && rotation.consumers?.some(({ brokenBefore }) => brokenBefore))
      plan.losses.push(`${name} rolls back if a consumer that did not work before it still fails.`);
    if (rotation.notUpdated.some(({ reason }) => reason === NEW_REASON))
      plan.changes.push({
        line: `${name}: changes the reason ${NEW_REASON} of places to ${EARLIER_REASON}.`,
        apply: () => convertReasons(deps, row),
      });
  }
}

/** Converts a rotation and signs it again. */
async function convertReasons({ tables, clock, randomness }: Dependencies, location: TypedRow): Promise<void> {
  const row = await tables.get(Rotations, location.partitionKey, location.rowKey);
  if (!row) return;
  const notUpdated = row.notUpdated.map((place) =>
    place.reason === NEW_REASON ? { ...place, reason: EARLIER_REASON } : place,
  );
  const value: RotationRecord = { ...withoutKeys(row), notUpdated, writeId: randomness.ulid(clock.now()) };
  await tables.transaction(Rotations.table, row.partitionKey, [replace(Rotations, row.rowKey, value, row.etag)]);
}

/** Counts the rows whose members or content the build ignores or drops. */
async function findLosses({ wholeTables }: Dependencies, plan: Plan, build: EarlierBuild): Promise<void> {
  for (const loss of lossesOf(build)) {
    let count = 0;
    for await (const { columns } of wholeTables.rows(loss.table)) if (loss.isIn(columns)) count++;
    if (count > 0) plan.losses.push(loss.line(count));
  }
}
