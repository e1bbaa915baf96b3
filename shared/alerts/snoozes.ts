import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { invalidBody, notFound, Problem } from "../http/problem.ts";
import { Assets, assetId, placesOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/layout.ts";
import type { Clock } from "../runtime.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../time.ts";
import { isAboutExpiry } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import { SNOOZES, type SnoozeRecord, SnoozeRows, snoozeId, snoozeKey } from "./snooze.ts";

/** Ended snoozes are kept this long: until every digest has seen that they ended. */
const KEPT_MS = 30 * DAY_MS;
/** How far back an end is looked for before the last evaluation, for instances whose clocks differ. */
const OVERLAP_MS = 10 * MINUTE_MS;

/**
 * While a snooze lasts, its rule says nothing of its asset. When it ends, by itself or by a request, the rule notifies of
 * the lowest threshold that was crossed meanwhile.
 */
export interface Snoozes {
  /** Those that last, and those that ended in the last 30 days. One request per 1,000. */
  all(): Promise<Row<SnoozeRecord>[]>;
  /** Of one rule: the assets that are snoozed at `to`, and those whose snooze ended since `from`. */
  split(
    snoozes: readonly SnoozeRecord[],
    ruleId: string,
    from: Date,
    to: Date,
  ): { snoozed: ReadonlySet<string>; awake: readonly string[] };
  /** Those that last, by rule and asset. */
  list(filter: { ruleId?: string | undefined }, request: PageRequest): Promise<Page<SnoozeRecord>>;
  /**
   * @throws {Problem} notFound for an unknown rule or asset; invalidRequest for a rule or an end that can't be;
   * alreadyExists while a snooze of both lasts.
   */
  create(
    request: { ruleId: string; assetId: string; reason: string; until: Date },
    caller: Caller,
  ): Promise<SnoozeRecord>;
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
}): Snoozes {
  const { tables, rules, audit, clock } = deps;

  async function all(): Promise<Row<SnoozeRecord>[]> {
    const found: Row<SnoozeRecord>[] = [];
    for await (const rows of tables.pages(SnoozeRows, { partitionKey: SNOOZES })) found.push(...rows);
    return found;
  }

  return {
    all,

    split(snoozes, ruleId, from, to) {
      const own = snoozes.filter((one) => one.ruleId === ruleId);
      const since = new Date(from.getTime() - OVERLAP_MS).toISOString();
      return {
        snoozed: new Set(own.filter(({ until }) => until > to.toISOString()).map((one) => one.assetId)),
        awake: own.filter(({ until }) => until > since && until <= to.toISOString()).map((one) => one.assetId),
      };
    },

    async list(filter, request) {
      const now = clock.now().toISOString();
      const lasting = (await all()).filter(
        ({ ruleId, until }) => until > now && (filter.ruleId === undefined || ruleId === filter.ruleId),
      );
      return pageOfAll(lasting, request, snoozeId);
    },

    async create(request, caller) {
      const now = clock.now();
      const [rule, ...found] = await Promise.all([
        rules.get(request.ruleId),
        ...placesOf(request.assetId).map(({ vaultName, type, name }) =>
          tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName)),
        ),
      ]);
      const asset = found.find((one) => one !== undefined);
      if (!asset) throw notFound(`The asset ${request.assetId.slice(0, 300)}`);
      if (!isAboutExpiry(rule.alertType)) {
        throw new Problem(
          "invalidRequest",
          "Only rules about expiry can be snoozed. Exempt a violation with POST /compliance/exemptions instead.",
          { errors: [{ path: "body.ruleId", message: `is a rule of the type ${rule.alertType}` }] },
        );
      }
      if (request.until <= now || request.until.getTime() > now.getTime() + 366 * DAY_MS) {
        throw invalidBody("until", "must lie in the future, at most a year ahead");
      }
      const snooze: SnoozeRecord = {
        ruleId: rule.ruleId,
        assetId: assetId(asset),
        reason: request.reason,
        until: request.until.toISOString(),
        createdAt: now.toISOString(),
        createdBy: caller.actor,
      };
      const event = { type: "alertSnooze.created", caller, target: targetOf(snooze), after: snooze };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, snoozeKey(snooze.ruleId, snooze.assetId), (known) => {
          if (known && known.until > now.toISOString()) {
            throw new Problem("alreadyExists", `It is snoozed until ${known.until} already. Delete that snooze first.`);
          }
          return snooze;
        }),
      );
      return snooze;
    },

    async end(id, caller) {
      const at = id.indexOf(".");
      const key = snoozeKey(id.slice(0, at), id.slice(at + 1).toLowerCase());
      const now = clock.now().toISOString();
      const known = /^[0-9A-Z]{26}\.[a-z0-9.-]{1,300}$/i.test(id)
        ? await tables.get(SnoozeRows, SNOOZES, key)
        : undefined;
      if (!known || known.until <= now) throw notFound(`The snooze ${id.slice(0, 300)}`);
      const event = { type: "alertSnooze.deleted", caller, target: targetOf(known), before: withoutKeys(known) };
      await audited(audit, event, () =>
        tables.modify(SnoozeRows, SNOOZES, key, (row) => row && { ...withoutKeys(row), until: now }),
      );
    },

    async cleanUp() {
      const end = new Date(clock.now().getTime() - KEPT_MS).toISOString();
      for (const { rowKey, until, etag } of await all())
        if (until < end) await tables.remove(SnoozeRows, SNOOZES, rowKey, etag);
    },
  };
}

const targetOf = (snooze: SnoozeRecord) => ({ type: "alertSnooze", id: snoozeId(snooze) });
