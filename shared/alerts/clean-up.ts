import { decodeTime } from "ulid";
import type { Caller } from "../http/endpoint.ts";
import { ASSET_TYPES, Assets, type AssetType } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/layout.ts";
import type { Clock, Logger } from "../runtime.ts";
import { keyEnd } from "../storage/keys.ts";
import { remove, type Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import type { Followed } from "./followed.ts";
import { ESCALATION_PREFIX, escalationKey } from "./items.ts";
import { NotificationRows } from "./notification-log.ts";
import type { AlertRules } from "./rules.ts";
import type { Snoozes } from "./snoozes.ts";
import { RuleStates, STATES } from "./state.ts";

/** Rows of the notification log are kept at least this long after the expiry, or after the notification. */
const KEPT_MS = 30 * DAY_MS;

/** Rows of the notification log that mean nothing any more when they are old; see `notificationKey`. */
const EVENT_PREFIXES = ["s!", "v!", "c!", "b!", "f!", "w!", "z!"];

/** Removes rows of the notification log: of assets that are gone, of scans, violations and credentials long past, of deleted rules. */
export function createCleanUp(deps: {
  tables: Tables;
  rules: AlertRules;
  snoozes: Snoozes;
  acknowledgements: Pick<Acknowledgements, "cleanUp">;
  followed: Pick<Followed, "of">;
  clock: Clock;
  log: Logger;
}) {
  const { tables, rules, snoozes, acknowledgements, followed, clock, log } = deps;

  async function cleanUp(caller: Caller): Promise<void> {
    await snoozes.cleanUp();
    const all = await rules.all();
    await acknowledgements.cleanUp(all);
    const known = new Set(all.map(({ ruleId }) => ruleId));
    const before = new Date(clock.now().getTime() - KEPT_MS);
    const states: string[] = [];
    // What a deleted rule committed to is settled first.
    for await (const rows of tables.pages(RuleStates, { partitionKey: STATES, select: ["at", "pending"] }))
      for (const row of rows) if (known.has(row.rowKey) || !row.pending) states.push(row.rowKey);
    for (const ruleId of states) {
      if (known.has(ruleId)) {
        for (const type of ASSET_TYPES) await forgetAssets(ruleId, type, before);
        for (const prefix of EVENT_PREFIXES) await forgetEvents(ruleId, prefix, before);
        await forgetEscalations(ruleId, before);
      } else {
        for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, select: [] }))
          await forget(ruleId, rows);
        await tables.remove(RuleStates, STATES, ruleId);
        log.info("The notification log of a deleted rule is removed", { ruleId });
      }
    }
    // Last, since a key vault that does not answer ends the run.
    await rules.cleanUp(caller);
  }

  /** An asset that still has that expiry keeps its row, so that it is not notified of again however long ago it expired. */
  async function forgetAssets(ruleId: string, type: AssetType, before: Date): Promise<void> {
    const { from, before: end } = expiryBounds(type, 0, Math.floor(before.getTime() / 1000), false);
    for await (const rows of tables.pages(NotificationRows, { partitionKey: ruleId, from, before: end, select: [] })) {
      const assetKeys = rows.map(({ rowKey }) => rowKey.slice(0, rowKey.lastIndexOf("!")));
      const standing = new Set<string>();
      const range = { partitionKey: partitions.all, from: assetKeys[0]!, before: keyEnd(assetKeys.at(-1)!) };
      for await (const assets of tables.pages(Assets, { ...range, select: [] }))
        for (const { rowKey } of assets) standing.add(rowKey);
      await forget(
        ruleId,
        rows.filter((_, index) => !standing.has(assetKeys[index]!)),
      );
    }
  }

  /** An alert that has not ended keeps its row, so that it is not escalated again. */
  async function forgetEscalations(ruleId: string, before: Date): Promise<void> {
    const open = new Set(
      [...(await followed.of(ruleId)).values()].map(({ item, since }) => escalationKey(item, since)),
    );
    await forgetEvents(ruleId, ESCALATION_PREFIX, before, open);
  }

  async function forgetEvents(
    ruleId: string,
    prefix: string,
    before: Date,
    kept: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const range = { partitionKey: ruleId, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(NotificationRows, range)) {
      await forget(
        ruleId,
        rows.filter(({ rowKey, deliveryId }) => !kept.has(rowKey) && decodeTime(deliveryId) < before.getTime()),
      );
    }
  }

  const forget = (ruleId: string, rows: readonly { rowKey: string }[]) =>
    tables.write(
      NotificationRows.table,
      ruleId,
      rows.map(({ rowKey }) => remove(NotificationRows, rowKey)),
    );

  return cleanUp;
}
