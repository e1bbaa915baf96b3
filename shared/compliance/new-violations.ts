import * as z from "zod";
import { assetId, placesOf } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor } from "../platform/http/paging.ts";
import { withCorruptRowErrors } from "../platform/storage/packed-members.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import type { ResourceType, Severity } from "./check.ts";
import { checkOfCode } from "./checks/all.ts";
import { NewViolationRows, newViolationsFrom, newViolationsRange, STATE, TABLE } from "./layout.ts";
import { isActive, type Overview } from "./overview.ts";
import { assetKey, unpackNewViolations } from "./pack.ts";

/** A violation that was not there before. */
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

/** Longest time between the instant an evaluation is made for and its rows being there, with room for clocks that differ. */
const OVERLAP_MS = 10 * MINUTE_MS;
/** How long they are kept for who tells of them. */
const KEEP_MS = 14 * DAY_MS;

/** The row to begin with, how many of its violations were handed over, and, on the way, where the next walk begins. */
const Cursor = z.object({ k: z.string().max(512), i: z.int().min(0), next: z.string().max(512).optional() });
type Cursor = z.infer<typeof Cursor>;
const encode = (cursor: Cursor): string => encodeCursor(cursor);

/**
 * Violations that arose behind the cursor, the oldest first, without exempted ones. None is left out, so those of the last
 * minutes come again: evaluations made at the same time end at different ones. Without a cursor: none, and the cursor of
 * this moment.
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
  const { k, i, next: begun } = decodeCursor(Cursor, cursor);
  // What comes late, however long this walk takes, comes behind where it stood settled when the walk began.
  const settled = newViolationsFrom(new Date(now.getTime() - OVERLAP_MS).toISOString());
  const next = begun ?? [k, settled].sort()[1]!;
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

/** Removes those that arose more than two weeks ago. */
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
