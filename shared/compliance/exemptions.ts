import type { Audit, AuditEvent } from "../audit/audit.ts";
import { roleNeeded } from "../http/admission.ts";
import { changedSince, requireMatch } from "../http/conditional.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import { parseAssetId } from "../inventory/asset.ts";
import type { Clock } from "../runtime.ts";
import type { Row } from "../storage/entity.ts";
import {
  insert,
  type Operation,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  replace,
  type Tables,
} from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import type { Check } from "./check.ts";
import { checkOfId } from "./checks/all.ts";
import {
  type ExemptionRecord,
  Exemptions,
  exemptionKey,
  exemptionsRange,
  STATE,
  TABLE,
  VaultStates,
  vaultStateKey,
} from "./layout.ts";
import { exemptionId, isActive } from "./overview.ts";
import { assetKey } from "./pack.ts";
import { isFailing, loadState } from "./vault-state.ts";

export interface ExemptionRequest {
  checkId: string;
  scope: { type: ExemptionRecord["scopeType"]; id?: string | undefined };
  category: ExemptionRecord["category"];
  reason: string;
  ticket?: string | undefined;
  until: Date;
}

/** An exemption, and whether it has not ended yet. */
export interface Exemption extends ExemptionRecord {
  active: boolean;
  etag: string;
}

const MAX_ATTEMPTS = 5;

/** Days from now within which an exemption ends that an operator may make or remove. */
export const OPERATOR_EXEMPTION_DAYS = 90;

const isOfAsset = (id: string): boolean => id.split(".")[1] === "asset";

/**
 * Exemptions take effect with the next answer: those of a vault or more are applied when answers are computed, those of one
 * asset stand in its vault's row too, which says whether the pair fails. They end by themselves, since answers compare
 * `until` with the clock.
 */
export function createExemptions(deps: { tables: Tables; audit: Audit; clock: Clock }) {
  const { tables, audit, clock } = deps;
  const now = () => clock.now().getTime();

  const view = ({ partitionKey: _p, rowKey: _r, ...row }: Row<ExemptionRecord>): Exemption => ({
    ...row,
    active: isActive(row, now()),
  });

  const read = (id: string) => tables.get(Exemptions, STATE, exemptionKey(id, isOfAsset(id)));

  async function get(id: string): Promise<Row<ExemptionRecord>> {
    const row = EXEMPTION_ID.test(id) ? await read(id.toLowerCase()) : undefined;
    if (!row) throw notFound(`The exemption ${id.slice(0, 300)}`);
    return row;
  }

  /** Changes the exemption's row, and in the same transaction that of the vault its asset is in. */
  async function write(record: ExemptionRecord, change: Operation, stays: boolean): Promise<string> {
    const key = exemptionKey(record.id, record.scopeType === "asset");
    const asset = record.scopeType === "asset" ? parseAssetId(record.scopeId ?? "") : undefined;
    if (!asset) return (await tables.transaction(TABLE, STATE, [change])).get(key)!;
    const vaultStateRow = vaultStateKey(asset.vaultName);
    for (let attempt = 1; ; attempt++) {
      const { row, assets } = await loadState(tables, asset.vaultName);
      const operations = [change];
      if (row) {
        const of = assetKey(asset.type, asset.name);
        const others = row.exemptions.filter((one) => one.id !== record.id);
        const { id, checkId, until } = record;
        const entry = { id, checkId, asset: of, until, failing: isFailing(assets, of, checkId) };
        const { partitionKey: _p, rowKey: _r, etag, ...state } = row;
        const exemptions = stays ? [...others, entry] : others;
        operations.push(
          row.gone && exemptions.length === 0
            ? remove(VaultStates, vaultStateRow, etag)
            : replace(VaultStates, vaultStateRow, { ...state, exemptions }, etag),
        );
      }
      try {
        return (await tables.transaction(TABLE, STATE, operations)).get(key)!;
      } catch (error) {
        // An evaluation of the vault came between.
        const ofVault = (error instanceof RowChanged || error instanceof RowMissing) && error.rowKey === vaultStateRow;
        if (!ofVault || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }

  async function recorded<T>(event: Omit<AuditEvent, "outcome">, work: () => Promise<T>): Promise<T> {
    await audit.append({ ...event, outcome: "intent" });
    let result: T;
    try {
      result = await work();
    } catch (error) {
      await audit.append({ ...event, outcome: "failure" });
      throw error;
    }
    await audit.append({ ...event, outcome: "success" });
    return result;
  }

  /** @throws {Problem} invalidRequest; forbidden; alreadyExists when the check has one for that scope that has not ended. */
  async function create(request: ExemptionRequest, caller: Caller): Promise<Exemption> {
    const { check, scopeId } = await checkedScope(request);
    if (request.until.getTime() <= now()) throw invalid("until", "must lie in the future");
    requireRole(caller, request.until, now());
    const record: ExemptionRecord = {
      id: exemptionId(check.id, request.scope.type, scopeId),
      checkId: check.id,
      scopeType: request.scope.type,
      ...(scopeId === undefined ? {} : { scopeId }),
      category: request.category,
      reason: request.reason,
      ...(request.ticket === undefined ? {} : { ticket: request.ticket }),
      until: request.until.toISOString(),
      createdAt: clock.now().toISOString(),
      createdBy: caller.actor,
      ...(caller.role === undefined ? {} : { createdByRole: caller.role }),
    };
    const standing = await read(record.id);
    if (standing && isActive(standing, now())) throw standsAlready(record.id);
    const key = exemptionKey(record.id, record.scopeType === "asset");
    const change = standing ? replace(Exemptions, key, record, standing.etag) : insert(Exemptions, key, record);
    const event = { type: "compliance.exemptionCreated", caller, target: target(record.id), after: record };
    const etag = await recorded(event, async () => {
      try {
        return await write(record, change, true);
      } catch (error) {
        if (error instanceof RowExists || error instanceof RowChanged) throw standsAlready(record.id);
        throw error;
      }
    });
    return { ...record, active: true, etag };
  }

  async function checkedScope({
    checkId,
    scope,
  }: ExemptionRequest): Promise<{ check: Check; scopeId: string | undefined }> {
    const check = checkOfId.get(checkId);
    if (!check) throw invalid("checkId", "is not a check; GET /compliance/frameworks and violations name them");
    const scopeId = scope.id?.toLowerCase();
    if (scope.type === "all") {
      if (scopeId !== undefined) throw invalid("scope.id", "can't stand beside the type all");
      return { check, scopeId };
    }
    if (scopeId === undefined) throw invalid("scope.id", `names the ${scope.type} and is missing`);
    if (scope.type === "subscription" && !GUID.test(scopeId)) {
      throw invalid("scope.id", "must be a subscription id (a GUID)");
    }
    if (scope.type === "vault") {
      const row = VAULT_NAME.test(scopeId) ? await tables.get(VaultStates, STATE, vaultStateKey(scopeId)) : undefined;
      if (!row || row.gone) throw invalid("scope.id", "is not the name of a vault that was evaluated");
    }
    if (scope.type === "asset") {
      const asset = parseAssetId(scopeId);
      if (!asset) throw invalid("scope.id", "must be an asset id such as kv-payments.secret.db-password");
      if (asset.type !== check.resourceType)
        throw invalid("scope.id", `must be a ${check.resourceType}, which ${check.id} is about`);
      const { assets } = await loadState(tables, asset.vaultName);
      if (!assets.has(assetKey(asset.type, asset.name)))
        throw invalid("scope.id", "is not an asset that was evaluated");
    }
    return { check, scopeId };
  }

  /** @throws {Problem} notFound; forbidden; preconditionFailed when `ifMatch` is stale. */
  async function end(id: string, caller: Caller, ifMatch?: string): Promise<void> {
    const row = await get(id);
    requireRole(caller, new Date(row.until), now());
    requireMatch(row.etag, ifMatch, EXEMPTION);
    const { partitionKey: _p, rowKey, etag, ...record } = row;
    const event = { type: "compliance.exemptionRemoved", caller, target: target(record.id), before: record };
    await recorded(event, async () => {
      try {
        await write(record, remove(Exemptions, rowKey, etag), false);
      } catch (error) {
        if (error instanceof RowMissing) throw notFound(`The exemption ${record.id}`);
        if (error instanceof RowChanged) throw changedSince(EXEMPTION);
        throw error;
      }
    });
  }

  return {
    create,
    end,
    get: async (id: string): Promise<Exemption> => view(await get(id)),

    /** By id, ended ones too. One request per 1,000. */
    async list(request: PageRequest): Promise<Page<Exemption>> {
      const all: Exemption[] = [];
      for await (const rows of tables.pages(Exemptions, exemptionsRange)) all.push(...rows.map(view));
      return pageOfAll(all, request, ({ id }) => id);
    },
  };
}

/** @throws {Problem} forbidden when it is an administrator's to make or remove. */
function requireRole({ role }: Caller, until: Date, now: number): void {
  if (role !== "operator" || until.getTime() <= now + OPERATOR_EXEMPTION_DAYS * DAY_MS) return;
  const remedy = `An operator's exemption ends within ${OPERATOR_EXEMPTION_DAYS} days: choose an earlier end, or ask an administrator.`;
  throw roleNeeded("admin", role, remedy);
}

const EXEMPTION_ID = /^[a-z0-9-]{1,60}\.(all|subscription|vault|asset)(\.[a-z0-9.-]{1,300})?$/i;
const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const VAULT_NAME = /^[a-z0-9-]{1,127}$/;

const target = (id: string) => ({ type: "exemption", id });
const invalid = (member: string, message: string) =>
  new Problem("invalidRequest", `Correct this and send the request again: body.${member} ${message}`, {
    errors: [{ path: `body.${member}`, message }],
  });
const standsAlready = (id: string) =>
  new Problem("alreadyExists", `The exemption ${id} is there and has not ended. Remove it first to change it.`);
/** As a problem names it. */
const EXEMPTION = "The exemption";
