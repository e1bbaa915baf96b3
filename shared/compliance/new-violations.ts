import * as z from "zod";
import { assetId, placesOf } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor } from "../platform/http/paging.ts";
import { withCorruptRowErrors } from "../platform/storage/packed-members.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import type { ResourceType, Severity } from "./check.ts";
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

/** Longest time between the time of an evaluation and the write of its rows, with tolerance for clock differences. */
const OVERLAP_MS = 10 * MINUTE_MS;
/** How long new violations are kept for alerts. */
const KEEP_MS = 14 * DAY_MS;

/**
 * The first row to read, the number of its violations already returned and, during a walk, the position from which the next
 * walk starts.
 */
const Cursor = z.object({ k: z.string().max(512), i: z.int().min(0), next: z.string().max(512).optional() });
type Cursor = z.infer<typeof Cursor>;
const encode = (cursor: Cursor): string => encodeCursor(cursor);

/**
 * Returns violations that arose after the cursor, oldest first, without exempted ones. None is skipped: those of the last
 * minutes are returned again, because concurrent evaluations finish at different times. Without a cursor, returns none and the
 * current cursor.
 */
export async function newViolations(
  tables: Tables,
  readOverview: () => Promise<Overview>,
  now: Date,
  cursor: string | undefined,
  limit: number,
): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }> {
  if (cursor === undefined) {
    return { violations: [], cursor: encode({ k: newViolationsFrom(now.toISOString()), i: 0 }), more: false };
  }
  const { k, i, next: position } = decodeCursor(Cursor, cursor);
  // Rows that are written late sort after the position from which the next walk starts.
  const settled = newViolationsFrom(new Date(now.getTime() - OVERLAP_MS).toISOString());
  const next = position ?? [k, settled].sort()[1]!;
  const found: NewViolation[] = [];
  for await (const rows of tables.pages(NewViolationRows, { ...newViolationsRange, from: k, pageSize: 100 })) {
    for (const row of rows) {
      const { rowKey, items, ...vault } = row;
      const arisen = withCorruptRowErrors(NewViolationRows, row, "items", () => unpackNewViolations(items));
      for (let at = rowKey === k ? i : 0; at < arisen.length; at++) {
        if (found.length === limit) {
          const violations = await withoutExempted(found, readOverview);
          return { violations, cursor: encode({ k: rowKey, i: at, next }), more: true };
        }
        const [code, name, since, tags] = arisen[at]!;
        const check = checkOfCode.get(code);
        if (!check) continue;
        const { id: checkId, title, severity, resourceType } = check;
        const resourceId =
          resourceType === "vault" ? name.toLowerCase() : assetId({ vaultName: vault.name, type: resourceType, name });
        found.push({
          id: `${checkId}.${resourceId}`,
          checkId,
          title,
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
  return { violations: await withoutExempted(found, readOverview), cursor: encode({ k: next, i: 0 }), more: false };
}

async function withoutExempted(found: NewViolation[], readOverview: () => Promise<Overview>): Promise<NewViolation[]> {
  if (found.length === 0) return found;
  const overview = await readOverview();
  const vaults = new Map(overview.vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  return found.filter(({ checkId, resourceType, resourceId, vaultName }) => {
    const vault = vaults.get(vaultName.toLowerCase());
    if (!vault) return false;
    if (overview.exemptionOf(checkId, vault)) return false;
    if (resourceType === "vault") return true;
    const place = placesOf(resourceId).find(({ type }) => type === resourceType);
    const asset = place && assetKey(place.type, place.name);
    return !vault.exemptions.some(
      (one) => one.checkId === checkId && one.asset === asset && isActive(one, overview.now),
    );
  });
}

/** Removes violations that arose more than two weeks ago. */
export async function removeOldNewViolations(tables: Tables, now: Date): Promise<void> {
  const before = newViolationsFrom(new Date(now.getTime() - KEEP_MS).toISOString());
  for await (const rows of tables.pages(NewViolationRows, { ...newViolationsRange, before, select: ["name"] })) {
    await tables.write(
      TABLE,
      STATE,
      rows.map(({ rowKey }) => remove(NewViolationRows, rowKey)),
    );
  }
}
