import { decodeTime } from "ulid";
import { ASSET_TYPES, Assets, type AssetType } from "../inventory/asset.ts";
import { type ExpiryIndex, expiryBounds, expiryPrefix, partitions, RENEWED } from "../inventory/asset-keys.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import { type AutomationSource, listedAutomationIds } from "./automation-events.ts";
import { AUTOMATION_PREFIX, automationKey, ESCALATION_PREFIX, escalationKey } from "./items.ts";
import { NotificationRows } from "./notification-log.ts";
import type { RuleRecord } from "./rule.ts";
import { RuleStates, STATES } from "./rule-state.ts";
import type { AlertRules } from "./rules.ts";
import type { Snoozes } from "./snoozes.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";

/**
 * The daily clean-up of the alerts' tables. The notification log has a row for each notification of a rule, so that no
 * notification is sent twice.
 */

/** Minimum time from the asset's expiry, or from the notification, until the row of the notification is removed. */
const RETENTION_MS = 30 * DAY_MS;

/**
 * Prefixes of the notification log's rows that are removed by age alone: `s!` a scan (written by earlier versions), `v!` a
 * violation, `c!` a credential of the service, `b!` a break-glass sign-in, `f!` a failure of scans, `w!` its weekly reminder,
 * `z!` a resolution.
 */
const EVENT_PREFIXES = ["s!", "v!", "c!", "b!", "f!", "w!", "z!"];

/**
 * Creates the clean-up. It removes rows of deleted assets and rules, old rows about events, and obsolete snoozes and secrets.
 */
export function createCleanUp(deps: {
  tables: Tables;
  rules: AlertRules;
  snoozes: Snoozes;
  acknowledgements: Pick<Acknowledgements, "cleanUp">;
  trackedAlerts: Pick<TrackedAlerts, "ofRule">;
  automation: readonly AutomationSource[];
  clock: Clock;
  log: Logger;
}) {
  const { tables, rules, snoozes, acknowledgements, trackedAlerts, automation, clock, log } = deps;

  async function cleanUp(caller: Caller): Promise<void> {
    await snoozes.cleanUp();
    // Including rules that can't be read, so that their rows stay.
    const existingRules = await rules.ids();
    await acknowledgements.cleanUp(existingRules);
    const readableRules = new Map((await rules.all()).map((rule) => [rule.ruleId, rule]));
    const retainedFrom = new Date(clock.now().getTime() - RETENTION_MS);
    /** The rules whose rows are cleaned up. Every evaluated rule has a state row, also after its deletion. */
    const ruleIds: string[] = [];
    // A state row is `pending` from the commit of a notification until its delivery is queued. If the run crashed in between,
    // the next evaluation completes it, even for a deleted rule. Until then the rows of a deleted rule stay.
    for await (const rows of tables.pages(RuleStates, {
      partitionKey: STATES,
      select: ["at", "pending"],
      onCorrupt: "leaveOut",
    }))
      for (const row of rows) if (existingRules.has(row.rowKey) || !row.pending) ruleIds.push(row.rowKey);
    for (const ruleId of ruleIds) {
      if (existingRules.has(ruleId)) {
        for (const type of ASSET_TYPES) await removeAssetRows(ruleId, type, retainedFrom);
        for (const prefix of EVENT_PREFIXES) await removeEventRows(ruleId, prefix, retainedFrom);
        await removeEscalationRows(ruleId, retainedFrom);
        const rule = readableRules.get(ruleId);
        if (rule) await removeAutomationRows(rule, retainedFrom);
      } else {
        for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, select: [] }))
          await removeRows(ruleId, rows);
        await tables.remove(RuleStates, STATES, ruleId);
        log.info("The notification log of a deleted rule is removed", { ruleId });
      }
    }
    // Last, because it deletes secrets of deleted rules from the key vault, and a failure there ends the run.
    await rules.cleanUp(caller);
  }

  /**
   * Removes rows about assets that expired before `retainedFrom`, except those of an existing asset with an unchanged expiry,
   * so that it causes no second notification. A row's key is that of the asset in the index by expiry, `!` and the threshold.
   */
  async function removeAssetRows(ruleId: string, type: AssetType, retainedFrom: Date): Promise<void> {
    const { from, before } = expiryBounds(type, 0, Math.floor(retainedFrom.getTime() / 1000), false);
    for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, from, before, select: [] })) {
      const assetKeys = rows.map(({ rowKey }) => rowKey.slice(0, rowKey.lastIndexOf("!")));
      const existing = new Set<string>();
      // Certificates with a renewal plan have an index of their own, with the same keys after the prefix.
      const indexes: ExpiryIndex[] = type === "certificate" ? [type, RENEWED] : [type];
      for (const index of indexes) {
        const keyOf = (key: string) => expiryPrefix(index) + key.slice(expiryPrefix(type).length);
        const range = {
          partitionKey: partitions.all,
          from: keyOf(assetKeys[0]!),
          before: keyEnd(keyOf(assetKeys.at(-1)!)),
        };
        for await (const assets of tables.pages(Assets, { ...range, select: [] }))
          for (const { rowKey } of assets) existing.add(expiryPrefix(type) + rowKey.slice(expiryPrefix(index).length));
      }
      await removeRows(
        ruleId,
        rows.filter((_, index) => !existing.has(assetKeys[index]!)),
      );
    }
  }

  /** Removes rows of escalations, except those of open alerts, so that they are not escalated again. */
  async function removeEscalationRows(ruleId: string, retainedFrom: Date): Promise<void> {
    const keysOfOpenAlerts = new Set(
      [...(await trackedAlerts.ofRule(ruleId)).values()].map(({ item, since }) => escalationKey(item, since)),
    );
    await removeEventRows(ruleId, ESCALATION_PREFIX, retainedFrom, keysOfOpenAlerts);
  }

  /**
   * Removes rows of automation events, except those that the sources still list, so that a state that lasts longer than the
   * retention causes no second notification.
   */
  async function removeAutomationRows(rule: RuleRecord, retainedFrom: Date): Promise<void> {
    const listed = new Set<string>();
    for await (const id of listedAutomationIds(rule, automation, retainedFrom)) listed.add(automationKey(id));
    await removeEventRows(rule.ruleId, AUTOMATION_PREFIX, retainedFrom, listed);
  }

  /** Removes the rows under a prefix whose delivery was created before `retainedFrom`, except the row keys `retained`. */
  async function removeEventRows(
    ruleId: string,
    prefix: string,
    retainedFrom: Date,
    retained: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const range = { partitionKey: ruleId, from: prefix, before: keyEnd(prefix), onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(NotificationRows, range)) {
      await removeRows(
        ruleId,
        rows.filter(
          ({ rowKey, deliveryId }) => !retained.has(rowKey) && decodeTime(deliveryId) < retainedFrom.getTime(),
        ),
      );
    }
  }

  const removeRows = (ruleId: string, rows: readonly { rowKey: string }[]) =>
    tables.write(
      NotificationRows.table,
      ruleId,
      rows.map(({ rowKey }) => remove(NotificationRows, rowKey)),
    );

  return cleanUp;
}
