import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { assetId } from "../inventory/asset.ts";
import { assetWithEntry } from "../inventory/joined-credentials.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { itemsIn } from "./delivery.ts";
import type { History } from "./history.ts";
import { alertKey, type TrackedItem, trackedItemOf } from "./items.ts";
import { assetLocationOf } from "./resolved-alerts.ts";
import type { AlertRules } from "./rules.ts";
import type { ResolvedItem, TrackedAlert, TrackedAlerts } from "./tracked-alerts.ts";

/**
 * A user's acknowledgment of an alert (`acknowledgement` in names). The alert is not escalated unless it is resolved and opened
 * again.
 */
export const AcknowledgementRecord = z.object({
  ruleId: z.string(),
  /** The id of the alert's item, such as the asset's id. */
  itemId: z.string(),
  /** Time of the alert's first notification. Distinguishes the alert from a later one about the same item. */
  since: z.string(),
  note: z.string().optional(),
  acknowledgedAt: z.string(),
  acknowledgedBy: z.string(),
});
export type AcknowledgementRecord = z.infer<typeof AcknowledgementRecord>;

/** Stored in the table of snoozes, in one partition that one request reads. */
export const AcknowledgementRows = entity("AlertSnoozes", AcknowledgementRecord);
const ACKNOWLEDGEMENTS = "acknowledgements";
/**
 * Returns the row key of an acknowledgment.
 *
 * @param alert - Result of `alertKey`, such as `a!<vault>!<type>!<name>`. Empty to get the prefix of the rule's row keys.
 */
const rowKeyOf = (ruleId: string, alert: string): string => `${ruleId}|${alert}`;

export const acknowledgementId = ({ ruleId, itemId }: Pick<AcknowledgementRecord, "ruleId" | "itemId">): string =>
  `${ruleId}.${itemId}`;

/** An open alert with its acknowledgment. */
export interface OpenAlert extends TrackedAlert {
  acknowledgement: AcknowledgementRecord | undefined;
}

/** The acknowledgments of open alerts, for the endpoints and for the evaluation of rules. */
export interface Acknowledgements {
  /** Returns the acknowledgments of a rule by `alertKey`. One request per 1,000. */
  ofRule(ruleId: string): Promise<Map<string, Row<AcknowledgementRecord>>>;
  /**
   * Returns a page of a rule's open alerts: first those about assets, by expiry, then the others by item. Two requests per 1,000.
   *
   * @throws {Problem} notFound
   */
  listOpen(
    ruleId: string,
    filter: { acknowledged?: boolean | undefined },
    request: PageRequest,
  ): Promise<Page<OpenAlert>>;
  /** Returns a page of acknowledgments, sorted by rule and item. */
  list(filter: { ruleId?: string | undefined }, request: PageRequest): Promise<Page<AcknowledgementRecord>>;
  /**
   * Acknowledges the alert of one item, or all open alerts of a notification.
   *
   * @throws {Problem} notFound for an unknown rule or notification, and if none of its alerts is open; alreadyExists if all
   *   of them are acknowledged.
   */
  create(
    request: { ruleId: string; itemId?: string | undefined; historyId?: string | undefined; note?: string | undefined },
    caller: Caller,
  ): Promise<AcknowledgementRecord[]>;
  /** Removes an acknowledgment, so that the alert can be escalated again. @throws {Problem} notFound */
  remove(id: string, caller: Caller): Promise<void>;
  /**
   * Removes the acknowledgments of resolved alerts. If the alert was about an entry of a token-signing certificate that became
   * part of another asset, the open alert about that asset becomes acknowledged.
   */
  removeResolved(ruleId: string, resolved: readonly Pick<ResolvedItem, "of" | "since">[]): Promise<void>;
  /** Removes acknowledgments of deleted rules, and of alerts that were resolved while a user acknowledged them. */
  cleanUp(ruleIds: ReadonlySet<string>): Promise<void>;
}

/** Creates the store of acknowledgments: users confirm that they work on an alert. */
export function createAcknowledgements(deps: {
  tables: Tables;
  rules: Pick<AlertRules, "get">;
  trackedAlerts: TrackedAlerts;
  history: Pick<History, "get">;
  audit: Pick<Audit, "append">;
  clock: Clock;
}): Acknowledgements {
  const { tables, rules, trackedAlerts, audit, clock } = deps;

  /**
   * Returns the key and the open alert about the asset that a resolved item became part of. Undefined if the item is not an entry
   * of a token-signing certificate that another asset now contains.
   */
  async function alertOfJoined(resolvedItem: TrackedItem, ruleId: string): Promise<[string, TrackedAlert] | undefined> {
    const place = assetLocationOf(resolvedItem);
    const asset = place && (await assetWithEntry(place, tables));
    if (!asset) return undefined;
    const id = assetId(asset).toLowerCase();
    return [...(await trackedAlerts.ofRule(ruleId))].find(([, { item }]) => {
      if (item.kind === "asset") return resolvedItem.kind === "asset" && item.id.toLowerCase() === id;
      const isSameCheck =
        item.kind === "violation" && resolvedItem.kind === "violation" && item.checkId === resolvedItem.checkId;
      return isSameCheck && item.resourceId.toLowerCase() === id;
    });
  }

  async function readRows(prefix: string): Promise<Row<AcknowledgementRecord>[]> {
    const acknowledgements: Row<AcknowledgementRecord>[] = [];
    const range = prefix === "" ? {} : { from: prefix, before: keyEnd(prefix) };
    const pages = tables.pages(AcknowledgementRows, { partitionKey: ACKNOWLEDGEMENTS, ...range });
    for await (const rows of pages) acknowledgements.push(...rows);
    return acknowledgements;
  }

  async function ofRule(ruleId: string): Promise<Map<string, Row<AcknowledgementRecord>>> {
    const prefix = rowKeyOf(ruleId, "");
    return new Map((await readRows(prefix)).map((row) => [row.rowKey.slice(prefix.length), row]));
  }

  /** Returns the open alerts that a request acknowledges, by key. */
  async function alertsOf(request: Parameters<Acknowledgements["create"]>[0]): Promise<Map<string, TrackedAlert>> {
    const { ruleId, itemId = "", historyId } = request;
    const openAlerts = await trackedAlerts.ofRule(ruleId);
    if (historyId === undefined) {
      const lowerCaseId = itemId.toLowerCase();
      return new Map([...openAlerts].filter(([, { item }]) => item.id.toLowerCase() === lowerCaseId));
    }
    // The delivery of an escalation names the rule that sends it, and in `escalatedFrom` the rule of the alerts.
    const delivery = await deps.history.get(historyId);
    if (!delivery || (delivery.escalatedFrom ?? delivery.ruleId) !== ruleId)
      throw notFound(`The history entry ${historyId.slice(0, 64)} of this rule`);
    const keys = itemsIn(delivery).flatMap((item) => {
      const trackedItem = trackedItemOf(item);
      return trackedItem ? [alertKey(trackedItem)] : [];
    });
    return new Map(keys.flatMap((key) => (openAlerts.has(key) ? [[key, openAlerts.get(key)!] as const] : [])));
  }

  return {
    ofRule,

    async listOpen(ruleId, { acknowledged }, request) {
      await rules.get(ruleId);
      const [openAlerts, acknowledgements] = await Promise.all([trackedAlerts.ofRule(ruleId), ofRule(ruleId)]);
      const alerts = [...openAlerts].map(([key, row]): OpenAlert & { key: string } => {
        const stored = acknowledgements.get(key);
        // The acknowledgment of an earlier alert about the same item does not count.
        const acknowledgement = stored?.since === row.since ? withoutKeys(stored) : undefined;
        return { ...withoutKeys(row), key, acknowledgement };
      });
      const matching = alerts.filter(
        ({ acknowledgement }) => acknowledged === undefined || (acknowledgement !== undefined) === acknowledged,
      );
      return pageOfAll(matching, request, ({ item, key }) => {
        // Digits sort before the letters with which other keys start. Twelve digits are enough for every expiry.
        return item.kind === "asset" ? `${String(item.expiresOn).padStart(12, "0")}!${key}` : key;
      });
    },

    async list({ ruleId }, request) {
      return pageOfAll(
        await readRows(ruleId === undefined ? "" : rowKeyOf(ruleId, "")),
        request,
        ({ rowKey }) => rowKey,
      );
    },

    async create(request, caller) {
      const { ruleId, itemId, historyId, note } = request;
      await rules.get(ruleId);
      const alerts = await alertsOf(request);
      if (alerts.size === 0)
        throw notFound(`An open alert of this rule about ${(itemId ?? historyId ?? "").slice(0, 300)}`);
      const existing = await ofRule(ruleId);
      const now = clock.now().toISOString();
      const created = [...alerts].flatMap(([key, { item, since }]): [string, AcknowledgementRecord][] => {
        if (existing.get(key)?.since === since) return [];
        const record = { ruleId, itemId: item.id, since, acknowledgedAt: now, acknowledgedBy: caller.actor };
        return [[key, { ...record, ...(note === undefined ? {} : { note }) }]];
      });
      if (created.length === 0) throw new Problem("alreadyExists", "The alert is already acknowledged.");
      const details = {
        ...(itemId === undefined ? { historyId } : { itemId }),
        alerts: created.length,
        note: note ?? null,
      };
      const event = { type: "alert.acknowledged", caller, target: { type: "alertRule", id: ruleId }, details };
      await audited(audit, event, () =>
        tables.write(
          AcknowledgementRows.table,
          ACKNOWLEDGEMENTS,
          created.map(([key, record]) => put(AcknowledgementRows, rowKeyOf(ruleId, key), record)),
        ),
      );
      return created.map(([, record]) => record);
    },

    async remove(id, caller) {
      const ruleId = id.slice(0, id.indexOf("."));
      const row = isUlid(ruleId)
        ? [...(await ofRule(ruleId)).values()].find(
            (stored) => acknowledgementId(stored).toLowerCase() === id.toLowerCase(),
          )
        : undefined;
      if (!row) throw notFound(`The acknowledgment ${id.slice(0, 300)}`);
      const { itemId } = row;
      const target = { type: "alertRule", id: ruleId };
      const event = { type: "alert.acknowledgementRemoved", caller, target, details: { itemId } };
      await audited(audit, event, () => tables.remove(AcknowledgementRows, ACKNOWLEDGEMENTS, row.rowKey));
    },

    async removeResolved(ruleId, resolved) {
      if (resolved.length === 0) return;
      const acknowledgements = await ofRule(ruleId);
      for (const item of resolved) {
        const row = acknowledgements.get(alertKey(item.of));
        if (!row || row.since !== item.since) continue;
        const [key, alert] = (await alertOfJoined(item.of, ruleId)) ?? [];
        if (key !== undefined && alert && acknowledgements.get(key)?.since !== alert.since) {
          const moved = { ...withoutKeys(row), itemId: alert.item.id, since: alert.since };
          await tables.put(AcknowledgementRows, ACKNOWLEDGEMENTS, rowKeyOf(ruleId, key), moved);
        }
        await tables.remove(AcknowledgementRows, ACKNOWLEDGEMENTS, row.rowKey);
      }
    },

    async cleanUp(ruleIds) {
      const acknowledged = Map.groupBy(await readRows(""), ({ ruleId }) => ruleId);
      for (const [ruleId, rows] of acknowledged) {
        const openAlerts = ruleIds.has(ruleId) ? await trackedAlerts.ofRule(ruleId) : new Map<string, TrackedAlert>();
        const prefix = rowKeyOf(ruleId, "");
        const obsolete = rows.filter(
          ({ rowKey, since }) => openAlerts.get(rowKey.slice(prefix.length))?.since !== since,
        );
        await tables.write(
          AcknowledgementRows.table,
          ACKNOWLEDGEMENTS,
          obsolete.map(({ rowKey }) => remove(AcknowledgementRows, rowKey)),
        );
      }
    },
  };
}
