import { ownersOf } from "../inventory/holder.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { ViolationItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { matchesFilters, type RuleRecord, type Subject } from "./rule.ts";

/** Finds the compliance violations that an alert rule must notify about. */

/** A violation from the compliance module. */
export interface NewViolation extends Omit<ViolationItem, "kind" | "owner"> {
  /** Tags of the resource. One of them names its owner. */
  tags?: Record<string, string> | undefined;
}

/** The compliance module as a source of violations. */
export interface ViolationSource {
  /**
   * Returns all violations that were found after the cursor, oldest first. Some may be returned repeatedly. Without a cursor:
   * none, and a cursor for the current time.
   */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /** Returns a page of current violations, most severe first, without exempt ones. The last page has no cursor. */
  currentViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor?: string }>;
  /** Returns a reader that finds out which violations still exist. */
  readViolations(): Promise<ViolationReading>;
}

/** A snapshot of the compliance results. */
export interface ViolationReading {
  /** Number of vaults with results. */
  vaults: number;
  /** Time of the last change of any result, ISO 8601. Empty if there are no results. */
  changedAt: string;
  /** Returns whether a vault has results. */
  has(vaultName: string): boolean;
  /** Returns whether a vault's results changed since a time or were removed. */
  changedSince(vaultName: string, at: string): boolean;
  /** Returns the violations that still exist, by id, and whether they are exempt. */
  findExisting(
    violations: readonly Pick<ViolationItem, "id" | "checkId" | "resourceId" | "resourceType" | "vaultName">[],
  ): Promise<Map<string, { exempted: boolean }>>;
}

/** Maximum number of pages of current violations that are read for one message. */
const MAX_PAGES = 20;

/** The progress of a rule about violations. */
export interface ViolationProgress {
  /** Cursor after the last evaluated violation. Undefined before the first evaluation. */
  violationCursor?: string | undefined;
  /** Cursor of the first evaluation in the current (standing) violations, while it reads them in several runs. */
  standingCursor?: string | undefined;
}

/**
 * Returns violations that match the rule and have no notification yet. The first evaluation reports the current violations,
 * later ones report new violations, including those found during the first evaluation.
 */
export async function violationItems(
  rule: RuleRecord,
  progress: ViolationProgress,
  deps: { source: ViolationSource; notifications: NotificationLog; ownerTag: string },
  limit: number,
): Promise<{ items: ViolationItem[]; more: boolean; state: ViolationProgress }> {
  const { source } = deps;
  const unnotified = (violations: readonly NewViolation[]) =>
    deps.notifications.unnotified(
      rule.ruleId,
      violations
        .filter((violation) => matchesFilters(rule.filters, subjectOf(violation), deps.ownerTag))
        .map((violation) => itemOf(violation, deps.ownerTag)),
    );
  if (progress.violationCursor === undefined || progress.standingCursor !== undefined) {
    const violationCursor = progress.violationCursor ?? (await source.newViolations(undefined, limit)).cursor;
    const items: ViolationItem[] = [];
    let standingCursor = progress.standingCursor;
    // Read further pages until the message is full, because the rule may match few violations per page.
    for (let pages = 0; pages < MAX_PAGES && items.length < limit; pages++) {
      const page = await source.currentViolations(standingCursor, limit - items.length);
      items.push(...(await unnotified(page.violations)));
      standingCursor = page.cursor;
      if (standingCursor === undefined) break;
    }
    return { items, more: standingCursor !== undefined, state: { violationCursor, standingCursor } };
  }
  const result = await source.newViolations(progress.violationCursor, limit);
  // Violations that were found while the rule was disabled are ignored. Their time has a precision of one second.
  const activeSince = Math.floor(Date.parse(rule.activeSince) / SECOND_MS) * SECOND_MS;
  const recent = result.violations.filter(({ firstSeenAt }) => Date.parse(firstSeenAt) >= activeSince);
  return { items: await unnotified(recent), more: result.more, state: { violationCursor: result.cursor } };
}

function itemOf({ tags, ...violation }: NewViolation, ownerTag: string): ViolationItem {
  const [owner] = ownersOf({ ...(tags && { tags }) }, ownerTag);
  return { kind: "violation", ...violation, ...(owner === undefined ? {} : { owner }) };
}

const subjectOf = ({ vaultName, resourceType, subscriptionId, tags, severity }: NewViolation): Subject => ({
  vaultName,
  type: resourceType,
  subscriptionId,
  tags,
  severity,
});
