import { decodeTime } from "ulid";
import { ASSET_TYPES, Assets, type AssetType } from "../inventory/asset.ts";
import { DAY } from "../inventory/health.ts";
import { expiryBounds, partitions } from "../inventory/layout.ts";
import type { Clock, Logger } from "../runtime.ts";
import { keyEnd } from "../storage/keys.ts";
import { remove, type Tables } from "../storage/tables.ts";
import type { RuleRoom } from "./rules.ts";
import type { SnoozeRoom } from "./snoozes.ts";
import { RuleStates, STATES } from "./state.ts";
import { Told } from "./told.ts";

/** Marks are kept at least this long after the expiry, or after the telling where there is none. */
const KEPT_MS = 30 * DAY;

/** Forgets the marks of assets that are gone, of scans and violations long told of, and all of rules that are gone. */
export function createCleanUp(deps: {
  tables: Tables;
  rules: RuleRoom;
  snoozes: SnoozeRoom;
  clock: Clock;
  log: Logger;
}) {
  const { tables, rules, snoozes, clock, log } = deps;

  async function cleanUp(): Promise<void> {
    await snoozes.cleanUp();
    const known = new Set((await rules.all()).map(({ ruleId }) => ruleId));
    const before = new Date(clock.now().getTime() - KEPT_MS);
    const states: string[] = [];
    // What a deleted rule committed to is settled first.
    for await (const rows of tables.pages(RuleStates, { partitionKey: STATES, select: ["at", "pending"] }))
      for (const row of rows) if (known.has(row.rowKey) || !row.pending) states.push(row.rowKey);
    for (const ruleId of states) {
      if (known.has(ruleId)) {
        for (const type of ASSET_TYPES) await forgetAssets(ruleId, type, before);
        for (const prefix of ["s!", "v!"]) await forgetHappenings(ruleId, prefix, before);
      } else {
        for await (const rows of tables.pages(Told, { partitionKey: ruleId, select: [] })) await forget(ruleId, rows);
        await tables.remove(RuleStates, STATES, ruleId);
        log.info("What a deleted rule had told is forgotten", { ruleId });
      }
    }
  }

  /** A mark keeps an asset that still has that expiry from being told of again, however long ago it expired. */
  async function forgetAssets(ruleId: string, type: AssetType, before: Date): Promise<void> {
    const { from, before: end } = expiryBounds(type, 0, Math.floor(before.getTime() / 1000), false);
    for await (const rows of tables.pages(Told, { partitionKey: ruleId, from, before: end, select: [] })) {
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

  async function forgetHappenings(ruleId: string, prefix: string, before: Date): Promise<void> {
    const range = { partitionKey: ruleId, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(Told, range)) {
      await forget(
        ruleId,
        rows.filter(({ deliveryId }) => decodeTime(deliveryId) < before.getTime()),
      );
    }
  }

  const forget = (ruleId: string, rows: readonly { rowKey: string }[]) =>
    tables.write(
      Told.table,
      ruleId,
      rows.map(({ rowKey }) => remove(Told, rowKey)),
    );

  return cleanUp;
}
