import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { invalidBody, notFound, Problem } from "../http/problem.ts";
import { Assets, assetId, placesOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/layout.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../time.ts";
import { isUlid } from "../ulid.ts";
import { fits, isAboutExpiry, type RuleRecord, type Subject } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { SNOOZES, type SnoozeFilters, type SnoozeRecord, SnoozeRows, snoozeIdOf, snoozeKey } from "./snooze.ts";

/** Ended snoozes are kept this long: until every digest has seen that they ended. */
const KEPT_MS = 30 * DAY_MS;
/** How far back an end is looked for before the last evaluation, for instances whose clocks differ. */
const OVERLAP_MS = 10 * MINUTE_MS;

/** What the snoozes of a run mean for one rule. */
export interface SnoozesOfRule {
  /** Ids of assets of which it says nothing now. */
  snoozed: ReadonlySet<string>;
  /** Filters of what it says nothing of now. */
  filters: readonly SnoozeFilters[];
  /** Ids of assets whose snooze ended. */
  awake: readonly string[];
  /** Since when something was passed over by a filter whose snooze ended; undefined where nothing was. */
  passedOverSince: Date | undefined;
}

/** Whether a rule says nothing of an asset now. */
export const isAsleep = (
  { snoozed, filters }: Pick<SnoozesOfRule, "snoozed" | "filters">,
  id: string,
  asset: Subject,
  ownerTag: string,
): boolean => snoozed.has(id) || filters.some((one) => fits(one, asset, ownerTag));

/** What a snooze is asked to be about: one asset for a rule, or what filters fit, for a rule or for all. */
export interface NewSnoozeRequest {
  ruleId?: string | undefined;
  assetId?: string | undefined;
  filters?: SnoozeFilters | undefined;
  reason: string;
  until: Date;
}

/**
 * While a snooze lasts, its rule says nothing of its assets but that one it told of before was renewed or has gone. When it
 * ends, by itself or by a request, the rule notifies of the lowest threshold that each has crossed meanwhile.
 */
export interface Snoozes {
  /** Those that last, and those that ended in the last 30 days. One request per 1,000. */
  all(): Promise<Row<SnoozeRecord>[]>;
  /** Of one rule: what is snoozed at `to`, and what is not any more since `from`. */
  split(snoozes: readonly SnoozeRecord[], ruleId: string, from: Date, to: Date): SnoozesOfRule;
  /** Those that last, or with `ended` also those that ended in the last 30 days; by rule and asset, those with filters first. */
  list(
    filter: { ruleId?: string | undefined; ended?: boolean | undefined },
    request: PageRequest,
  ): Promise<Page<SnoozeRecord>>;
  /**
   * @throws {Problem} notFound for an unknown rule or asset; invalidRequest for a rule or an end that can't be, and for
   * anything but either an asset of a rule or filters; alreadyExists while a snooze of the asset lasts.
   */
  create(request: NewSnoozeRequest, caller: Caller): Promise<SnoozeRecord>;
  /** Ends a snooze now. @throws {Problem} notFound when none of that id lasts. */
  end(id: string, caller: Caller): Promise<void>;
  /** Forgets snoozes that ended long ago. */
  cleanUp(): Promise<void>;
}

export function createSnoozes(deps: {
  tables: Tables;
  rules: Pick<AlertRules, "get">;
  audit: Pick<Audit, "append">;
  clock: Clock;
  randomness: Randomness;
}): Snoozes {
  const { tables, rules, audit, clock } = deps;

  async function all(): Promise<Row<SnoozeRecord>[]> {
    const found: Row<SnoozeRecord>[] = [];
    for await (const rows of tables.pages(SnoozeRows, { partitionKey: SNOOZES })) found.push(...rows);
    return found;
  }

  /** Rule, asset or filters of a request, checked. */
  async function aboutOf(request: NewSnoozeRequest): Promise<Pick<SnoozeRecord, "ruleId" | "assetId" | "filters">> {
    const { ruleId, filters } = request;
    if (filters) {
      if (request.assetId !== undefined) throw invalidBody("assetId", "can't stand beside filters");
      if (ruleId === undefined) return { filters };
      requireExpiry(await rules.get(ruleId));
      return { ruleId, filters };
    }
    if (request.assetId === undefined) throw invalidBody("assetId", "is needed where there are no filters");
    if (ruleId === undefined) throw invalidBody("ruleId", "is needed where there are no filters");
    const [rule, ...found] = await Promise.all([
      rules.get(ruleId),
      ...placesOf(request.assetId).map(({ vaultName, type, name }) =>
        tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
      ),
    ]);
    const asset = found.find((one) => one !== undefined);
    if (!asset) throw notFound(`The asset ${request.assetId.slice(0, 300)}`);
    requireExpiry(rule);
    return { ruleId, assetId: assetId(asset) };
  }

  async function find(id: string): Promise<Row<SnoozeRecord> | undefined> {
    if (isUlid(id)) return (await all()).find(({ snoozeId }) => snoozeId === id);
    const at = id.indexOf(".");
    const place = { ruleId: id.slice(0, at), assetId: id.slice(at + 1).toLowerCase() };
    if (!isUlid(place.ruleId) || !/^[a-z0-9._-]{1,300}$/.test(place.assetId)) return undefined;
    const key = snoozeKey(place);
    return await tables.get(SnoozeRows, SNOOZES, key);
  }

  return {
    all,

    split(snoozes, ruleId, from, to) {
      const own = snoozes.filter((one) => one.ruleId === undefined || one.ruleId === ruleId);
      const since = new Date(from.getTime() - OVERLAP_MS).toISOString();
      const lasting = own.filter(({ until }) => until > to.toISOString());
      const ended = own.filter(({ until }) => until > since && until <= to.toISOString());
      const starts = ended.flatMap(({ filters, createdAt }) => (filters ? [Date.parse(createdAt)] : []));
      return {
        snoozed: new Set(lasting.flatMap((one) => one.assetId ?? [])),
        filters: lasting.flatMap((one) => one.filters ?? []),
        awake: ended.flatMap((one) => one.assetId ?? []),
        passedOverSince: starts.length === 0 ? undefined : new Date(Math.min(...starts)),
      };
    },

    async list({ ruleId, ended = false }, request) {
      const now = clock.now().toISOString();
      const shown = (await all()).filter(
        (one) =>
          (ended || one.until > now) && (ruleId === undefined || one.ruleId === undefined || one.ruleId === ruleId),
      );
      return pageOfAll(shown, request, snoozeKey);
    },

    async create(request, caller) {
      const now = clock.now();
      if (request.until <= now || request.until.getTime() > now.getTime() + 366 * DAY_MS) {
        throw invalidBody("until", "must lie in the future, at most a year ahead");
      }
      const about = await aboutOf(request);
      const snooze: SnoozeRecord = {
        ...about,
        ...(about.filters ? { snoozeId: deps.randomness.ulid(now) } : {}),
        reason: request.reason,
        until: request.until.toISOString(),
        createdAt: now.toISOString(),
        createdBy: caller.actor,
      };
      const event = { type: "alertSnooze.created", caller, target: targetOf(snooze), after: snooze };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, snoozeKey(snooze), (known) => {
          if (known && known.until > now.toISOString()) {
            throw new Problem("alreadyExists", `It is snoozed until ${known.until} already. Delete that snooze first.`);
          }
          return snooze;
        }),
      );
      return snooze;
    },

    async end(id, caller) {
      const now = clock.now().toISOString();
      const known = await find(id);
      if (!known || known.until <= now) throw notFound(`The snooze ${id.slice(0, 300)}`);
      const event = { type: "alertSnooze.deleted", caller, target: targetOf(known), before: withoutKeys(known) };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, known.rowKey, (row) => row && { ...withoutKeys(row), until: now }),
      );
    },

    async cleanUp() {
      const end = new Date(clock.now().getTime() - KEPT_MS).toISOString();
      for (const { rowKey, until, etag } of await all())
        if (until < end) await tables.remove(SnoozeRows, SNOOZES, rowKey, etag);
    },
  };
}

const targetOf = (snooze: SnoozeRecord) => ({ type: "alertSnooze", id: snoozeIdOf(snooze) });

function requireExpiry({ alertType }: RuleRecord): void {
  if (isAboutExpiry(alertType)) return;
  throw new Problem(
    "invalidRequest",
    "Only rules about expiry can be snoozed. Exempt a violation with POST /compliance/exemptions instead.",
    { errors: [{ path: "body.ruleId", message: `is a rule of the type ${alertType}` }] },
  );
}
