import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import { Assets, assetId, parseAssetId } from "../inventory/asset.ts";
import { DAY } from "../inventory/health.ts";
import { nameKey, partitions } from "../inventory/layout.ts";
import type { Clock } from "../runtime.ts";
import { entity, type Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { audited } from "./audited.ts";
import { isAboutExpiry } from "./rule.ts";
import type { RuleRoom } from "./rules.ts";

export const SnoozeRecord = z.object({
  ruleId: z.string(),
  assetId: z.string(),
  reason: z.string(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
});
export type SnoozeRecord = z.infer<typeof SnoozeRecord>;

/** One partition: a run of the rules reads all of them. */
const Snoozes = entity("AlertSnoozes", SnoozeRecord);
const SNOOZES = "snoozes";
const keyOf = (ruleId: string, asset: string): string => `${ruleId}|${asset}`;
export const snoozeId = ({ ruleId, assetId: asset }: Pick<SnoozeRecord, "ruleId" | "assetId">): string =>
  `${ruleId}.${asset}`;

/** Ended snoozes are kept this long: until every digest has seen that they ended. */
const KEPT_MS = 30 * DAY;
/** How far back an end is looked for before the last evaluation, for instances whose clocks differ. */
const OVERLAP_MS = 10 * 60_000;

/**
 * While a snooze lasts, its rule says nothing of its asset. When it ends, by itself or by hand, the rule tells of the
 * lowest threshold that was crossed meanwhile.
 */
export function createSnoozes(deps: { tables: Tables; rules: RuleRoom; audit: Pick<Audit, "append">; clock: Clock }) {
  const { tables, rules, audit, clock } = deps;

  async function all(): Promise<Row<SnoozeRecord>[]> {
    const found: Row<SnoozeRecord>[] = [];
    for await (const rows of tables.pages(Snoozes, { partitionKey: SNOOZES })) found.push(...rows);
    return found;
  }

  return {
    all,

    /** Of one rule: the assets that are snoozed at `to`, and those whose snooze ended since `from`. */
    split(snoozes: readonly SnoozeRecord[], ruleId: string, from: Date, to: Date) {
      const own = snoozes.filter((one) => one.ruleId === ruleId);
      const since = new Date(from.getTime() - OVERLAP_MS).toISOString();
      return {
        snoozed: new Set(own.filter(({ until }) => until > to.toISOString()).map((one) => one.assetId)),
        awake: own.filter(({ until }) => until > since && until <= to.toISOString()).map((one) => one.assetId),
      };
    },

    /** Those that last, by rule and asset. */
    async list(filter: { ruleId?: string | undefined }, request: PageRequest): Promise<Page<SnoozeRecord>> {
      const now = clock.now().toISOString();
      const lasting = (await all()).filter(
        ({ ruleId, until }) => until > now && (filter.ruleId === undefined || ruleId === filter.ruleId),
      );
      return pageOfAll(lasting, request, snoozeId);
    },

    /** @throws {Problem} notFound for an unknown rule or asset; alreadyExists while a snooze of both lasts. */
    async create(
      request: { ruleId: string; assetId: string; reason: string; until: Date },
      caller: Caller,
    ): Promise<SnoozeRecord> {
      const now = clock.now();
      const parts = parseAssetId(request.assetId);
      const [rule, asset] = await Promise.all([
        rules.get(request.ruleId),
        parts &&
          tables.get(Assets, partitions.vault(parts.vaultName), nameKey(parts.type, parts.name, parts.vaultName)),
      ]);
      if (!parts || !asset) throw notFound(`The asset ${request.assetId.slice(0, 300)}`);
      if (!isAboutExpiry(rule.alertType)) {
        throw new Problem(
          "invalidRequest",
          "Only rules about expiry can be snoozed. Exempt a violation with POST /compliance/exemptions instead.",
          { errors: [{ path: "body.ruleId", message: `is a rule of the type ${rule.alertType}` }] },
        );
      }
      if (request.until <= now || request.until.getTime() > now.getTime() + 366 * DAY) {
        const message = "must lie in the future, at most a year ahead";
        throw new Problem("invalidRequest", `The end of a snooze ${message}.`, {
          errors: [{ path: "body.until", message }],
        });
      }
      const snooze: SnoozeRecord = {
        ...{ ruleId: rule.ruleId, assetId: assetId(asset), reason: request.reason },
        ...{ until: request.until.toISOString(), createdAt: now.toISOString(), createdBy: caller.actor },
      };
      const event = { type: "alertSnooze.created", caller, target: targetOf(snooze), after: snooze };
      await audited(audit, event, () =>
        tables.modify(Snoozes, SNOOZES, keyOf(snooze.ruleId, snooze.assetId), (known) => {
          if (known && known.until > now.toISOString()) {
            throw new Problem("alreadyExists", `It is snoozed until ${known.until} already. Delete that snooze first.`);
          }
          return snooze;
        }),
      );
      return snooze;
    },

    /** Ends a snooze now. @throws {Problem} notFound when none of that id lasts. */
    async end(id: string, caller: Caller): Promise<void> {
      const at = id.indexOf(".");
      const key = keyOf(id.slice(0, at), id.slice(at + 1).toLowerCase());
      const now = clock.now().toISOString();
      const known = /^[0-9A-Z]{26}\.[a-z0-9.-]{1,300}$/i.test(id) ? await tables.get(Snoozes, SNOOZES, key) : undefined;
      if (!known || known.until <= now) throw notFound(`The snooze ${id.slice(0, 300)}`);
      const event = { type: "alertSnooze.deleted", caller, target: targetOf(known), before: viewOf(known) };
      await audited(audit, event, () =>
        tables.modify(Snoozes, SNOOZES, key, (row) => row && { ...viewOf(row), until: now }),
      );
    },

    /** Forgets snoozes that ended long ago. */
    async cleanUp(): Promise<void> {
      const end = new Date(clock.now().getTime() - KEPT_MS).toISOString();
      for (const { rowKey, until, etag } of await all())
        if (until < end) await tables.remove(Snoozes, SNOOZES, rowKey, etag);
    },
  };
}

export type SnoozeRoom = ReturnType<typeof createSnoozes>;

const targetOf = (snooze: SnoozeRecord) => ({ type: "alertSnooze", id: snoozeId(snooze) });
const viewOf = ({ ruleId, assetId: asset, reason, until, createdAt, createdBy }: SnoozeRecord): SnoozeRecord => ({
  ...{ ruleId, assetId: asset, reason, until, createdAt, createdBy },
});
