import { encodeTime } from "ulid";
import { SCAN_LIST, Scans } from "../discovery/scan.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { newestFirst } from "../ulid.ts";
import type { ScanItem, ViolationItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { fits, type RuleRecord, type Subject } from "./rule.ts";

/** A violation as the compliance room hands it over. */
export interface NewViolation extends Omit<ViolationItem, "kind" | "owner"> {
  tags?: Record<string, string> | undefined;
}

/** Where new violations come from. */
export interface ViolationSource {
  /**
   * Violations that arose behind the cursor, the oldest first, none left out; some may come again. Without a cursor: none,
   * and the cursor of this moment.
   */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
}

/** New violations in the rule's scope, and the cursor behind them. */
export async function violationItems(
  rule: RuleRecord,
  cursor: string | undefined,
  deps: { source: ViolationSource; notifications: NotificationLog; ownerTag: string },
  limit: number,
): Promise<{ items: ViolationItem[]; cursor: string; more: boolean }> {
  const found = await deps.source.newViolations(cursor, limit);
  const inScope = found.violations
    .filter((one) => one.firstSeenAt > rule.activeSince && fits(rule.filters, subjectOf(one), deps.ownerTag))
    .map(({ tags, ...one }): ViolationItem => {
      const owner = tags && Object.hasOwn(tags, deps.ownerTag) ? tags[deps.ownerTag] : undefined;
      return { kind: "violation", ...one, ...(owner === undefined ? {} : { owner }) };
    });
  return { items: await deps.notifications.unnotified(rule.ruleId, inScope), cursor: found.cursor, more: found.more };
}

const subjectOf = ({ vaultName, resourceType, subscriptionId, tags, severity }: NewViolation): Subject => ({
  vaultName,
  type: resourceType,
  subscriptionId,
  tags,
  severity,
});

/** A scan may take a day; one that began this long before the last evaluation has ended and was notified of. */
const LONGEST_SCAN_MS = 2 * DAY_MS;
const BAD_ENDS = new Set(["partial", "failed", "timedOut"]);
const SCAN_COLUMNS = [
  "scanId",
  "mode",
  "status",
  "subscriptions",
  "finishedAt",
  "vaultsTotal",
  "vaultsFailed",
  "failure",
] as const;

/** Scans that ended badly since the rule is active. One request for what two days hold. */
export async function scanItems(
  rule: RuleRecord,
  from: Date,
  deps: { tables: Tables; notifications: NotificationLog },
  limit: number,
): Promise<{ items: ScanItem[]; more: boolean }> {
  const oldest = newestFirst(encodeTime(Math.max(0, from.getTime() - LONGEST_SCAN_MS)) + "0".repeat(16));
  const { subscription } = rule.filters;
  const items: ScanItem[] = [];
  const range = { partitionKey: SCAN_LIST, before: keyEnd(oldest), select: [...SCAN_COLUMNS] };
  for await (const rows of deps.tables.pages(Scans, range)) {
    for (const scan of rows) {
      const { finishedAt, subscriptions, failure } = scan;
      if (!BAD_ENDS.has(scan.status) || finishedAt === undefined || finishedAt <= rule.activeSince) continue;
      const covers = !subscription || !subscriptions || subscriptions.includes(subscription.toLowerCase());
      if (!covers) continue;
      items.push({
        kind: "scan",
        id: scan.scanId,
        mode: scan.mode,
        status: scan.status,
        finishedAt,
        vaultsTotal: scan.vaultsTotal,
        vaultsFailed: scan.vaultsFailed ?? 0,
        ...(failure ? { message: `${failure.message} ${failure.remedy}` } : {}),
      });
    }
  }
  const unnotified = await deps.notifications.unnotified(rule.ruleId, items);
  return { items: unnotified.slice(0, limit), more: unnotified.length > limit };
}
