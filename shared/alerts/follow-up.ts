import pMap from "p-map";
import { type AssetRecord, Assets } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/layout.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import type { Acknowledgements } from "./acknowledgements.ts";
import type { Followed, FollowedAlert } from "./followed.ts";
import {
  alertKey,
  type EscalatedItem,
  type FollowedItem,
  followedIn,
  type Item,
  type StillFailingItem,
} from "./items.ts";
import type { Circumstances } from "./look.ts";
import type { NotificationLog } from "./notification-log.ts";
import { fits, isAboutExpiry, type RuleRecord } from "./rule.ts";
import { isAbout } from "./scan-failures.ts";
import { isAsleep, type Snoozes } from "./snoozes.ts";

/** A failure that lasts is told of again so often. */
export const REMINDER_MS = 7 * DAY_MS;
/** What can't be escalated now, since it is snoozed or exempted, is looked at again after so long. */
const LATER_MS = DAY_MS;
const PARALLEL = 8;

/** What a rule has to say of alerts that it told before and that have not ended. */
export interface FollowUps {
  stillFailing: StillFailingItem[];
  escalated: EscalatedItem[];
  /** When there is more to say if nothing changes, ISO 8601. */
  nextAt: string | undefined;
}

export function createFollowUps(deps: {
  tables: Tables;
  followed: Followed;
  notifications: NotificationLog;
  acknowledgements: Pick<Acknowledgements, "of">;
  snoozes: Pick<Snoozes, "split">;
  ownerTag: string;
}) {
  const { tables, followed, notifications } = deps;

  /** Looks at all that the rule has told and that has not ended: 1,000 a request, and one for each that is to be escalated. */
  return async function followUps(rule: RuleRecord, run: Circumstances): Promise<FollowUps> {
    const now = run.now.getTime();
    const alerts = [...(await followed.of(rule.ruleId)).values()].filter(({ item }) => isOf(rule, item));
    const instants: number[] = [];
    const dueOf = (instant: number): boolean => {
      if (instant > now) instants.push(instant);
      return instant <= now;
    };
    const stillFailing = alerts.flatMap(({ item: of, since, toldAt, times }): StillFailingItem[] => {
      if (of.kind !== "scanFailure" || !isAbout(rule, of) || !dueOf(Date.parse(toldAt) + REMINDER_MS)) return [];
      instants.push(now + REMINDER_MS);
      return [{ kind: "stillFailing", id: of.id, of, since, times }];
    });
    const escalated = await toEscalate(rule, alerts, run, dueOf);
    if (escalated.later) instants.push(now + LATER_MS);
    const next = instants.length === 0 ? undefined : new Date(Math.min(...instants)).toISOString();
    return { stillFailing, escalated: escalated.items, nextAt: next };
  };

  async function toEscalate(
    rule: RuleRecord,
    alerts: readonly FollowedAlert[],
    run: Circumstances,
    dueOf: (instant: number) => boolean,
  ): Promise<{ items: EscalatedItem[]; later: boolean }> {
    const { escalation } = rule;
    if (!escalation) return { items: [], later: false };
    const { afterDays } = escalation;
    const acknowledged = await deps.acknowledgements.of(rule.ruleId);
    const due = alerts.filter(
      ({ item, since }) =>
        acknowledged.get(alertKey(item))?.since !== since && dueOf(Date.parse(since) + afterDays * DAY_MS),
    );
    const items = due.map(
      ({ item: of, since }): EscalatedItem => ({ kind: "escalated", id: of.id, of, since, afterDays }),
    );
    const untold = await notifications.unnotified(rule.ruleId, items);
    const violations = untold.flatMap(({ of }) => (of.kind === "violation" ? [of] : []));
    const standing = violations.length > 0 ? await (await run.violations()).standing(violations) : new Map();
    const snoozed = deps.snoozes.split(run.snoozes, rule.ruleId, run.now, run.now);
    const audible = await pMap(
      untold,
      async ({ of }) => {
        if (of.kind === "violation") return standing.get(of.id)?.exempted === false;
        if (of.kind === "scanFailure") return isAbout(rule, of);
        if (run.vaults?.hidden.includes(of.vaultName.toLowerCase())) return false;
        const place = [partitions.vault(of.vaultName), nameKey(of.type, of.name, of.vaultName)] as const;
        const asset: AssetRecord | undefined = await tables.get(Assets, ...place);
        if (!asset?.enabled || asset.expiresOn !== of.expiresOn) return false;
        return fits(rule.filters, asset, deps.ownerTag) && !isAsleep(snoozed, of.id, asset, deps.ownerTag);
      },
      { concurrency: PARALLEL },
    );
    // An acknowledgement may be taken back.
    const held = alerts.some(({ item, since }) => acknowledged.get(alertKey(item))?.since === since);
    return { items: untold.filter((_, at) => audible[at]), later: held || audible.includes(false) };
  }
}

/** Not of what the rule was about before it was changed. */
const isOf = ({ alertType }: RuleRecord, { kind }: FollowedItem): boolean =>
  kind === "asset"
    ? isAboutExpiry(alertType)
    : kind === (alertType === "complianceViolation" ? "violation" : alertType);

/** When what is told now is to be looked at again; undefined where never. */
export function followUpAfter(rule: RuleRecord, items: readonly Item[], now: Date): string | undefined {
  const followed = items.filter((one) => followedIn(one) === one || one.kind === "stillFailing");
  if (followed.length === 0) return undefined;
  const instants = [
    ...(rule.escalation ? [rule.escalation.afterDays * DAY_MS] : []),
    ...(followed.some((one) => followedIn(one)?.kind === "scanFailure") ? [REMINDER_MS] : []),
  ];
  return instants.length === 0 ? undefined : new Date(now.getTime() + Math.min(...instants)).toISOString();
}
