import { SECOND_MS } from "../time.ts";
import type { ViolationItem } from "./items.ts";
import type { NotificationLog } from "./notification-log.ts";
import { fits, type RuleRecord, type Subject } from "./rule.ts";

/** A violation as the compliance room hands it over. */
export interface NewViolation extends Omit<ViolationItem, "kind" | "owner"> {
  tags?: Record<string, string> | undefined;
}

/** Where violations come from. */
export interface ViolationSource {
  /**
   * Violations that arose behind the cursor, the oldest first, none left out; some may come again. Without a cursor: none,
   * and the cursor of this moment.
   */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /** A page of those that stand now, the most severe first, without exempted ones; no cursor behind the last page. */
  standingViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor?: string }>;
  /** What tells whether violations that were told of still stand. */
  readViolations(): Promise<ViolationReading>;
}

/** One reading of what is evaluated now. */
export interface ViolationReading {
  /** How many vaults have results. */
  vaults: number;
  /** When a result of any vault was last changed, ISO 8601; empty where there is none. */
  changedAt: string;
  /** Whether a vault has results. */
  has(vaultName: string): boolean;
  /** Whether a vault's results changed since, or it has none any more. */
  changedSince(vaultName: string, at: string): boolean;
  /** Those that still stand, by id, and whether they are exempted. */
  standing(
    violations: readonly Pick<ViolationItem, "id" | "checkId" | "resourceId" | "resourceType" | "vaultName">[],
  ): Promise<Map<string, { exempted: boolean }>>;
}

/** Pages of what stands that are read for one message. */
const MAX_PAGES = 20;

/** How far a rule has come with violations. */
export interface ViolationPlace {
  /** Behind what arose and was looked at; undefined before the first evaluation. */
  violationCursor?: string | undefined;
  /** While the first evaluation goes through what stands: behind what was looked at of it. */
  standingCursor?: string | undefined;
}

/**
 * Violations in the rule's scope that it has not told of: at its first evaluation those that stand, then those that arise.
 * What arises while the first one goes on comes behind it.
 */
export async function violationItems(
  rule: RuleRecord,
  place: ViolationPlace,
  deps: { source: ViolationSource; notifications: NotificationLog; ownerTag: string },
  limit: number,
): Promise<{ items: ViolationItem[]; more: boolean; state: ViolationPlace }> {
  const { source } = deps;
  const untold = (violations: readonly NewViolation[]) =>
    deps.notifications.unnotified(
      rule.ruleId,
      violations
        .filter((one) => fits(rule.filters, subjectOf(one), deps.ownerTag))
        .map((one) => itemOf(one, deps.ownerTag)),
    );
  if (place.violationCursor === undefined || place.standingCursor !== undefined) {
    const violationCursor = place.violationCursor ?? (await source.newViolations(undefined, limit)).cursor;
    const items: ViolationItem[] = [];
    let standingCursor = place.standingCursor;
    // As much as one message holds, of however little of a page the rule is about.
    for (let pages = 0; pages < MAX_PAGES && items.length < limit; pages++) {
      const page = await source.standingViolations(standingCursor, limit - items.length);
      items.push(...(await untold(page.violations)));
      standingCursor = page.cursor;
      if (standingCursor === undefined) break;
    }
    return { items, more: standingCursor !== undefined, state: { violationCursor, standingCursor } };
  }
  const found = await source.newViolations(place.violationCursor, limit);
  // What arose while the rule was disabled is not told. Violations say the second they were first seen.
  const activeSince = Math.floor(Date.parse(rule.activeSince) / SECOND_MS) * SECOND_MS;
  const arisen = found.violations.filter(({ firstSeenAt }) => Date.parse(firstSeenAt) >= activeSince);
  return { items: await untold(arisen), more: found.more, state: { violationCursor: found.cursor } };
}

function itemOf({ tags, ...one }: NewViolation, ownerTag: string): ViolationItem {
  const owner = tags && Object.hasOwn(tags, ownerTag) ? tags[ownerTag] : undefined;
  return { kind: "violation", ...one, ...(owner === undefined ? {} : { owner }) };
}

const subjectOf = ({ vaultName, resourceType, subscriptionId, tags, severity }: NewViolation): Subject => ({
  vaultName,
  type: resourceType,
  subscriptionId,
  tags,
  severity,
});
