import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { Assets, assetId, locationsOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { isUlid } from "../platform/ulid.ts";
import { isAboutExpiry, matchesFilters, type RuleRecord, type Subject } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { SNOOZES, type SnoozeFilters, type SnoozeRecord, SnoozeRows, snoozeIdOf, snoozeKey } from "./snooze.ts";

/** Retention of expired snoozes, long enough for every digest to see the expiry. */
const RETENTION_MS = 30 * DAY_MS;
/** Overlap with the last evaluation when searching for expired snoozes, for clock differences between instances. */
const OVERLAP_MS = 10 * MINUTE_MS;

/** The effect of the snoozes on one rule. */
export interface SnoozesOfRule {
  /** Ids of snoozed assets. */
  snoozed: ReadonlySet<string>;
  /** Filters of active snoozes. */
  filters: readonly SnoozeFilters[];
  /** Ids of assets whose snooze ended since the last evaluation, and which are evaluated again. */
  recentlyEnded: readonly string[];
  /** Start of the earliest snooze with filters that ended since the last evaluation. Undefined if none did. */
  suppressedSince: Date | undefined;
}

/** Returns whether an asset is snoozed. @param ids - All IDs of the asset, see `idsOf`. */
export const isSnoozed = (
  { snoozed, filters }: Pick<SnoozesOfRule, "snoozed" | "filters">,
  ids: readonly string[],
  asset: Subject,
  ownerTag: string,
): boolean => ids.some((id) => snoozed.has(id)) || filters.some((filter) => matchesFilters(filter, asset, ownerTag));

/** A new snooze: one asset for a rule, or filters for a rule or all rules. */
export interface NewSnoozeRequest {
  ruleId?: string | undefined;
  assetId?: string | undefined;
  filters?: SnoozeFilters | undefined;
  reason: string;
  until: Date;
}

/**
 * While a snooze is active, its rule sends no notifications about the snoozed assets, except that an alert is resolved. When
 * the snooze ends, the rule notifies of the lowest threshold that each asset reached meanwhile.
 */
export interface Snoozes {
  /** Returns active snoozes and those that expired in the last 30 days. One request per 1,000. */
  all(): Promise<Row<SnoozeRecord>[]>;
  /** Returns the active snoozes of a rule at `to`, and the snoozes that ended since `from`. */
  split(snoozes: readonly SnoozeRecord[], ruleId: string, from: Date, to: Date): SnoozesOfRule;
  /**
   * Returns a page of active snoozes; with `ended`, also of those that expired in the last 30 days. Sorted by rule and asset.
   */
  list(
    filter: { ruleId?: string | undefined; ended?: boolean | undefined },
    request: PageRequest,
  ): Promise<Page<SnoozeRecord>>;
  /** Returns a snooze, also one that ended in the last 30 days. @throws {Problem} notFound */
  get(id: string): Promise<SnoozeRecord>;
  /**
   * @throws {Problem} notFound for an unknown rule or asset; invalidRequest for an unsupported rule, an invalid end, or a
   *   request without either an asset or filters; alreadyExists if the asset is already snoozed.
   */
  create(request: NewSnoozeRequest, caller: Caller): Promise<SnoozeRecord>;
  /** Ends a snooze now. @throws {Problem} notFound if there is no active snooze with this id. */
  end(id: string, caller: Caller): Promise<void>;
  /** Removes snoozes that expired more than 30 days ago. */
  cleanUp(): Promise<void>;
}

/** Creates the store of snoozes, which suppress notifications until a date. */
export function createSnoozes(deps: {
  tables: Tables;
  rules: Pick<AlertRules, "get">;
  audit: Pick<Audit, "append">;
  clock: Clock;
  randomness: Randomness;
}): Snoozes {
  const { tables, rules, audit, clock } = deps;

  /** Leaves out snoozes that can't be read: an alert too many is better than none at all. */
  async function all(): Promise<Row<SnoozeRecord>[]> {
    const snoozes: Row<SnoozeRecord>[] = [];
    for await (const rows of tables.pages(SnoozeRows, { partitionKey: SNOOZES, onCorrupt: "leaveOut" }))
      snoozes.push(...rows);
    return snoozes;
  }

  /** Returns rule, asset and filters of a request. @throws {Problem} if they are invalid. */
  async function subjectOf(request: NewSnoozeRequest): Promise<Pick<SnoozeRecord, "ruleId" | "assetId" | "filters">> {
    const { ruleId, filters } = request;
    if (filters) {
      if (request.assetId !== undefined) throw invalidBody("assetId", "can't be combined with filters");
      if (ruleId === undefined) return { filters };
      requireExpiry(await rules.get(ruleId));
      return { ruleId, filters };
    }
    if (request.assetId === undefined) throw invalidBody("assetId", "is required without filters");
    if (ruleId === undefined) throw invalidBody("ruleId", "is required without filters");
    // The id of an application's credential does not contain its type, so `locationsOf` returns a location for each type.
    const [rule, ...assets] = await Promise.all([
      rules.get(ruleId),
      ...locationsOf(request.assetId).map(({ vaultName, type, name }) =>
        tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
      ),
    ]);
    const asset = assets.find((candidate) => candidate !== undefined);
    if (!asset) throw notFound(`The asset ${request.assetId.slice(0, 300)}`);
    requireExpiry(rule);
    return { ruleId, assetId: assetId(asset) };
  }

  /** Finds a snooze by its id: a ULID for a snooze with filters, else `<rule>.<asset>`. */
  async function find(id: string): Promise<Row<SnoozeRecord> | undefined> {
    if (isUlid(id)) return (await all()).find(({ snoozeId }) => snoozeId === id);
    const dot = id.indexOf(".");
    const named = { ruleId: id.slice(0, dot), assetId: id.slice(dot + 1).toLowerCase() };
    if (!isUlid(named.ruleId) || !/^[a-z0-9._-]{1,300}$/.test(named.assetId)) return undefined;
    const key = snoozeKey(named);
    return await tables.get(SnoozeRows, SNOOZES, key);
  }

  return {
    all,

    split(snoozes, ruleId, from, to) {
      const ofRule = snoozes.filter((snooze) => snooze.ruleId === undefined || snooze.ruleId === ruleId);
      const since = new Date(from.getTime() - OVERLAP_MS).toISOString();
      const active = ofRule.filter(({ until }) => until > to.toISOString());
      const ended = ofRule.filter(({ until }) => until > since && until <= to.toISOString());
      const starts = ended.flatMap(({ filters, createdAt }) => (filters ? [Date.parse(createdAt)] : []));
      return {
        snoozed: new Set(active.flatMap(({ assetId }) => assetId ?? [])),
        filters: active.flatMap(({ filters }) => filters ?? []),
        recentlyEnded: ended.flatMap(({ assetId }) => assetId ?? []),
        suppressedSince: starts.length === 0 ? undefined : new Date(Math.min(...starts)),
      };
    },

    async list({ ruleId, ended = false }, request) {
      const now = clock.now().toISOString();
      const matching = (await all()).filter(
        (snooze) =>
          (ended || snooze.until > now) &&
          (ruleId === undefined || snooze.ruleId === undefined || snooze.ruleId === ruleId),
      );
      return pageOfAll(matching, request, snoozeKey);
    },

    async get(id) {
      const snooze = await find(id);
      if (!snooze) throw notFound(`The snooze ${id.slice(0, 300)}`);
      return snooze;
    },

    async create(request, caller) {
      const now = clock.now();
      if (request.until <= now || request.until.getTime() > now.getTime() + 366 * DAY_MS) {
        throw invalidBody("until", "must be in the future, at most one year ahead");
      }
      const subject = await subjectOf(request);
      const snooze: SnoozeRecord = {
        ...subject,
        ...(subject.filters ? { snoozeId: deps.randomness.ulid(now) } : {}),
        reason: request.reason,
        until: request.until.toISOString(),
        createdAt: now.toISOString(),
        createdBy: caller.actor,
      };
      const event = { type: "alertSnooze.created", caller, target: targetOf(snooze), after: snooze };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, snoozeKey(snooze), (existing) => {
          if (existing && existing.until > now.toISOString()) {
            throw new Problem(
              "alreadyExists",
              `The asset is already snoozed until ${existing.until}. Delete that snooze first.`,
            );
          }
          return snooze;
        }),
      );
      return snooze;
    },

    async end(id, caller) {
      const now = clock.now().toISOString();
      const snooze = await find(id);
      if (!snooze || snooze.until <= now) throw notFound(`The snooze ${id.slice(0, 300)}`);
      const event = { type: "alertSnooze.deleted", caller, target: targetOf(snooze), before: withoutKeys(snooze) };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, snooze.rowKey, (row) => row && { ...withoutKeys(row), until: now }),
      );
    },

    async cleanUp() {
      const end = new Date(clock.now().getTime() - RETENTION_MS).toISOString();
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
    { errors: [{ path: "body.ruleId", message: `is a rule of type ${alertType}` }] },
  );
}
