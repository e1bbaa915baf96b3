import { decodeTime } from "ulid";
import { ASSET_TYPES, Assets, type AssetType } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/asset-keys.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import { ESCALATION_PREFIX, escalationKey } from "./items.ts";
import { NotificationRows } from "./notification-log.ts";
import { RuleStates, STATES } from "./rule-state.ts";
import type { AlertRules } from "./rules.ts";
import type { Snoozes } from "./snoozes.ts";
import type { TrackedAlerts } from "./tracked-alerts.ts";

/** Minimum age of rows in the notification log before removal, after the expiry or the notification. */
const RETENTION_MS = 30 * DAY_MS;

/** Prefixes of rows that are obsolete once they are old; see `notificationKey`. */
const EVENT_PREFIXES = ["s!", "v!", "c!", "b!", "f!", "w!", "z!"];

/** Removes obsolete rows of the notification log: deleted assets, old scans, violations and credentials, deleted rules. */
export function createCleanUp(deps: {
  tables: Tables;
  rules: AlertRules;
  snoozes: Snoozes;
  acknowledgements: Pick<Acknowledgements, "cleanUp">;
  trackedAlerts: Pick<TrackedAlerts, "of">;
  clock: Clock;
  log: Logger;
}) {
  const { tables, rules, snoozes, acknowledgements, trackedAlerts, clock, log } = deps;

  async function cleanUp(caller: Caller): Promise<void> {
    await snoozes.cleanUp();
    const all = await rules.all();
    await acknowledgements.cleanUp(all);
    const known = new Set(all.map(({ ruleId }) => ruleId));
    const before = new Date(clock.now().getTime() - RETENTION_MS);
    const states: string[] = [];
    // A deleted rule with a pending commit is kept until the commit is completed.
    for await (const rows of tables.pages(RuleStates, { partitionKey: STATES, select: ["at", "pending"] }))
      for (const row of rows) if (known.has(row.rowKey) || !row.pending) states.push(row.rowKey);
    for (const ruleId of states) {
      if (known.has(ruleId)) {
        for (const type of ASSET_TYPES) await removeAssetRows(ruleId, type, before);
        for (const prefix of EVENT_PREFIXES) await removeEventRows(ruleId, prefix, before);
        await removeEscalationRows(ruleId, before);
      } else {
        for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, select: [] }))
          await removeRows(ruleId, rows);
        await tables.remove(RuleStates, STATES, ruleId);
        log.info("The notification log of a deleted rule is removed", { ruleId });
      }
    }
    // Last, because a key vault failure ends the run.
    await rules.cleanUp(caller);
  }

  /** Keeps the row of an asset with an unchanged expiry, so that an expired asset causes no second notification. */
  async function removeAssetRows(ruleId: string, type: AssetType, before: Date): Promise<void> {
    const { from, before: end } = expiryBounds(type, 0, Math.floor(before.getTime() / 1000), false);
    for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, from, before: end, select: [] })) {
      const assetKeys = rows.map(({ rowKey }) => rowKey.slice(0, rowKey.lastIndexOf("!")));
      const existing = new Set<string>();
      const range = { partitionKey: partitions.all, from: assetKeys[0]!, before: keyEnd(assetKeys.at(-1)!) };
      for await (const assets of tables.pages(Assets, { ...range, select: [] }))
        for (const { rowKey } of assets) existing.add(rowKey);
      await removeRows(
        ruleId,
        rows.filter((_, index) => !existing.has(assetKeys[index]!)),
      );
    }
  }

  /** Keeps the row of an open alert, so that it is not escalated again. */
  async function removeEscalationRows(ruleId: string, before: Date): Promise<void> {
    const open = new Set(
      [...(await trackedAlerts.of(ruleId)).values()].map(({ item, since }) => escalationKey(item, since)),
    );
    await removeEventRows(ruleId, ESCALATION_PREFIX, before, open);
  }

  async function removeEventRows(
    ruleId: string,
    prefix: string,
    before: Date,
    retained: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const range = { partitionKey: ruleId, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(NotificationRows, range)) {
      await removeRows(
        ruleId,
        rows.filter(({ rowKey, deliveryId }) => !retained.has(rowKey) && decodeTime(deliveryId) < before.getTime()),
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
