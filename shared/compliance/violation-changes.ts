/**
 * Reads violations in the order in which evaluations found them opened or resolved, for audit streams. The rows are those that
 * alerts read (new-violations.ts), and stay for 14 days.
 */
import { createHash } from "node:crypto";
import { assetId } from "../inventory/asset.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { failureTitleOf, type ResourceType, type Severity } from "./check.ts";
import { checkOfCode } from "./checks/all.ts";
import { NewViolationRows, newViolationsFrom, newViolationsRange } from "./compliance-rows.ts";
import { MAX_WRITE_DELAY_MS } from "./new-violations.ts";
import { unpackNewViolations, unpackResolvedViolations } from "./packed-results.ts";

/** A violation that was opened or resolved. */
export interface ViolationChange {
  /** ID of the change: a hash of what changed and when, so that two attempts of one evaluation give one change the same ID. */
  id: string;
  /** Text that sorts changes in the order in which they are read. */
  sequence: string;
  change: "opened" | "resolved";
  /** Time of the evaluation, ISO 8601. */
  at: string;
  violationId: string;
  checkId: string;
  title: string;
  severity: Severity;
  resourceId: string;
  resourceType: ResourceType;
  vaultName: string;
  /** Empty if unknown. */
  subscriptionId: string;
  firstSeenAt: string;
  /** The position after this change. */
  next: ViolationPosition;
}

/** A position among the changes: the smallest key of the row that is read next, and the number of its changes that were read. */
export interface ViolationPosition {
  key: string;
  index: number;
}

/** Returns the position before all changes that are found from this time on. */
export const violationPositionAt = (instant: Date): ViolationPosition => ({
  key: newViolationsFrom(instant.toISOString()),
  index: 0,
});

/** Changes that are older than ten minutes. A slow evaluation can write earlier changes until then. */
const settledBefore = (now: Date): string =>
  newViolationsFrom(new Date(now.getTime() - MAX_WRITE_DELAY_MS).toISOString());

/** Returns the time of the oldest change after a position that can be read, ISO 8601. Null if there is none. One request. */
export async function oldestViolationChange(
  tables: Tables,
  { key }: ViolationPosition,
  now: Date,
): Promise<string | null> {
  const range = {
    ...newViolationsRange,
    from: key,
    before: settledBefore(now),
    pageSize: 1,
    select: ["name"] as const,
  };
  if (range.before <= key) return null;
  for await (const [row] of tables.pages(NewViolationRows, { ...range, onCorrupt: "leaveOut" }))
    if (row) return timeOf(row.rowKey);
  return null;
}

/** Yields the changes after a position, oldest first, until ten minutes ago. One request per 100 rows. */
export async function* violationChanges(
  tables: Tables,
  { key, index: firstIndex }: ViolationPosition,
  now: Date,
): AsyncGenerator<ViolationChange> {
  const range = { ...newViolationsRange, from: key, before: settledBefore(now), pageSize: 100 };
  if (range.before <= key) return;
  for await (const rows of tables.pages(NewViolationRows, { ...range, onCorrupt: "leaveOut" })) {
    for (const { rowKey, items, resolved, ...vault } of rows) {
      const changes = [
        ...unpackNewViolations(items).map(([code, name, since]) => ({ change: "opened" as const, code, name, since })),
        ...(resolved ? unpackResolvedViolations(resolved) : []).map(([code, name, since]) => ({
          change: "resolved" as const,
          code,
          name,
          since,
        })),
      ];
      for (let index = rowKey === key ? firstIndex : 0; index < changes.length; index++) {
        const { change, code, name, since } = changes[index]!;
        const check = checkOfCode.get(code);
        if (!check) continue;
        const { id: checkId, severity, resourceType } = check;
        const resourceId =
          resourceType === "vault" ? name.toLowerCase() : assetId({ vaultName: vault.name, type: resourceType, name });
        yield {
          id: idOf(change, `${checkId}.${resourceId}`, since),
          sequence: sequenceOf(rowKey, index),
          change,
          at: timeOf(rowKey),
          violationId: `${checkId}.${resourceId}`,
          checkId,
          title: failureTitleOf(check),
          severity,
          resourceId,
          resourceType,
          vaultName: vault.name,
          subscriptionId: vault.subscriptionId,
          firstSeenAt: new Date(since * 1000).toISOString(),
          next: index + 1 < changes.length ? { key: rowKey, index: index + 1 } : { key: `${rowKey}!`, index: 0 },
        };
      }
    }
  }
}

/** The parts of a row key: `0!<time>!<vault>!<attempt>!<chunk>`. */
const timeOf = (rowKey: string): string => rowKey.split("!")[1]!;
const sequenceOf = (rowKey: string, index: number): string =>
  `${rowKey.slice(rowKey.indexOf("!") + 1)}!${String(index).padStart(5, "0")}`;
/** A violation that fails since a time is opened once and resolved once. @param since - Unix seconds. */
const idOf = (change: ViolationChange["change"], violationId: string, since: number): string =>
  `violation.${createHash("sha256").update(`${change}|${violationId}|${since}`).digest("base64url").slice(0, 22)}`;
