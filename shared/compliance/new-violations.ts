/**
 * Violations that evaluations found for the first time, for alerts. Alerts read them with a cursor, so that none is missed. The
 * row keys are `0!<time of the evaluation>!<vault>!<attempt>!<number>`, so rows are sorted by time. Audit streams read the same
 * rows (violation-changes.ts).
 */
import * as z from "zod";
import { assetId, locationsOf } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor } from "../platform/http/paging.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { failureTitleOf, type ResourceType, type Severity } from "./check.ts";
import { checkOfCode } from "./checks/all.ts";
import { NewViolationRows, newViolationsFrom, newViolationsRange, STATE, TABLE } from "./compliance-rows.ts";
import { isActive, type Overview } from "./overview.ts";
import { assetKey, unpackNewViolations } from "./packed-results.ts";

/** A violation that did not exist before. */
export interface NewViolation {
  id: string;
  checkId: string;
  title: string;
  severity: Severity;
  resourceId: string;
  resourceType: ResourceType;
  vaultName: string;
  vaultId: string;
  subscriptionId: string;
  firstSeenAt: string;
  tags: Record<string, string>;
}

/** Longest time from an evaluation's timestamp to the write of its rows, including differences between clocks. */
export const MAX_WRITE_DELAY_MS = 10 * MINUTE_MS;
/** After this time, rows of new violations are deleted. */
const RETENTION_MS = 14 * DAY_MS;

/**
 * The cursor. One pass reads all rows from a start position, in several calls. `k`: key of the next row to read. `i`: number of
 * its violations that were already returned. `next`: start position of the next pass, if this pass is not finished.
 */
const Cursor = z.object({ k: z.string().max(512), i: z.int().min(0), next: z.string().max(512).optional() });
type Cursor = z.infer<typeof Cursor>;
const encodePosition = (cursor: Cursor): string => encodeCursor(cursor);

/**
 * Returns violations that are new since the cursor, oldest first, without exempted ones. Each pass returns the violations of
 * the last ten minutes again, because a slow evaluation may still write rows with an earlier time. The caller leaves out those for
 * which it sent an alert. Without a cursor, returns none and the current cursor.
 */
export async function newViolations(
  tables: Tables,
  readOverview: () => Promise<Overview>,
  now: Date,
  cursor: string | undefined,
  limit: number,
): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }> {
  if (cursor === undefined) {
    return { violations: [], cursor: encodePosition({ k: newViolationsFrom(now.toISOString()), i: 0 }), more: false };
  }
  const { k: firstKey, i: firstIndex, next: decidedStart } = decodeCursor(Cursor, cursor);
  // The next pass starts ten minutes before the start of this one, so that it reads rows that are written late, but not before the
  // start position of this pass (the later of two keys sorts last).
  const tenMinutesAgo = newViolationsFrom(new Date(now.getTime() - MAX_WRITE_DELAY_MS).toISOString());
  const nextStart = decidedStart ?? [firstKey, tenMinutesAgo].sort()[1]!;
  const foundViolations: NewViolation[] = [];
  for await (const rows of tables.pages(NewViolationRows, {
    ...newViolationsRange,
    from: firstKey,
    pageSize: 100,
    onCorrupt: "leaveOut",
  })) {
    for (const row of rows) {
      const { rowKey, items, ...vault } = row;
      const newItems = unpackNewViolations(items);
      for (let index = rowKey === firstKey ? firstIndex : 0; index < newItems.length; index++) {
        if (foundViolations.length === limit) {
          const violations = await withoutExempted(foundViolations, readOverview);
          return { violations, cursor: encodePosition({ k: rowKey, i: index, next: nextStart }), more: true };
        }
        const [code, name, since, tags] = newItems[index]!;
        const check = checkOfCode.get(code);
        if (!check) continue;
        const { id: checkId, severity, resourceType } = check;
        const resourceId =
          resourceType === "vault" ? name.toLowerCase() : assetId({ vaultName: vault.name, type: resourceType, name });
        foundViolations.push({
          id: `${checkId}.${resourceId}`,
          checkId,
          title: failureTitleOf(check),
          severity,
          resourceId,
          resourceType,
          tags,
          vaultName: vault.name,
          vaultId: vault.vaultId,
          subscriptionId: vault.subscriptionId,
          firstSeenAt: new Date(since * 1000).toISOString(),
        });
      }
    }
  }
  return {
    violations: await withoutExempted(foundViolations, readOverview),
    cursor: encodePosition({ k: nextStart, i: 0 }),
    more: false,
  };
}

async function withoutExempted(
  foundViolations: NewViolation[],
  readOverview: () => Promise<Overview>,
): Promise<NewViolation[]> {
  if (foundViolations.length === 0) return foundViolations;
  const overview = await readOverview();
  const vaults = new Map(overview.vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  return foundViolations.filter(({ checkId, resourceType, resourceId, vaultName }) => {
    const vault = vaults.get(vaultName.toLowerCase());
    // The vault was removed or excluded since, so the violation no longer counts.
    if (!vault) return false;
    if (overview.exemptionFor(checkId, vault)) return false;
    if (resourceType === "vault") return true;
    const location = locationsOf(resourceId).find(({ type }) => type === resourceType);
    const asset = location && assetKey(location.type, location.name);
    return !vault.exemptions.some(
      (exemption) => exemption.checkId === checkId && exemption.asset === asset && isActive(exemption, overview.now),
    );
  });
}

/** Deletes rows of new violations older than the retention. */
export async function removeOldNewViolations(tables: Tables, now: Date): Promise<void> {
  const retentionLimit = newViolationsFrom(new Date(now.getTime() - RETENTION_MS).toISOString());
  for await (const rows of tables.pages(NewViolationRows, {
    ...newViolationsRange,
    before: retentionLimit,
    select: ["name"],
  })) {
    await tables.write(
      TABLE,
      STATE,
      rows.map(({ rowKey }) => remove(NewViolationRows, rowKey)),
    );
  }
}
