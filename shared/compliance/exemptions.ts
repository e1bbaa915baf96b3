import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { placesOf } from "../inventory/asset.ts";
import { roleRequired } from "../platform/http/admission.ts";
import { entityTag, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { writeChanged } from "./changed-results.ts";
import type { Check } from "./check.ts";
import { checkOfId } from "./checks/all.ts";
import {
  type ExemptionRecord,
  Exemptions,
  exemptionKey,
  exemptionsRange,
  STATE,
  TABLE,
  type VaultState,
  VaultStates,
  vaultStateKey,
} from "./compliance-rows.ts";
import { exemptionId, isActive } from "./overview.ts";
import { assetKey } from "./packed-results.ts";
import { isFailing, loadState } from "./vault-state.ts";

export interface ExemptionRequest {
  checkId: string;
  scope: { type: ExemptionRecord["scopeType"]; id?: string | undefined };
  category: ExemptionRecord["category"];
  reason: string;
  ticket?: string | undefined;
  until: Date;
}

/** An exemption, and whether it is active. */
export interface Exemption extends Omit<ExemptionRecord, "writeId"> {
  active: boolean;
  etag: string;
}

/** Longest duration in days of an exemption that an operator may create or remove. */
export const OPERATOR_EXEMPTION_DAYS = 90;

const isOfAsset = (id: string): boolean => id.split(".")[1] === "asset";

/**
 * Manages exemptions. They take effect with the next response: exemptions of a vault or more are applied when results are read.
 * Those of one asset are also in its vault's row, which has whether the pair fails. They expire automatically, because reads
 * compare `until` with the clock.
 */
export interface ExemptionStore {
  /** @throws {Problem} invalidRequest; forbidden; alreadyExists when the check has an active exemption with that scope. */
  create(request: ExemptionRequest, caller: Caller): Promise<Exemption>;
  /** @throws {Problem} notFound; forbidden; preconditionFailed when `ifMatch` is stale. */
  end(id: string, caller: Caller, ifMatch?: string): Promise<void>;
  /** @throws {Problem} notFound */
  get(id: string): Promise<Exemption>;
  /** Lists all exemptions by ID, including expired ones. One request per 1,000. */
  list(request: PageRequest): Promise<Page<Exemption>>;
  all(): Promise<Exemption[]>;
}

export function createExemptions(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  clock: Clock;
  randomness: Randomness;
}): ExemptionStore {
  const { tables, audit, clock, randomness } = deps;
  const now = () => clock.now().getTime();

  const view = (record: ExemptionRecord, etag: string): Exemption => {
    const { writeId: _, ...shown } = record;
    return { ...shown, active: isActive(record, now()), etag: entityTag({ etag }) };
  };
  const viewOf = (row: Row<ExemptionRecord>): Exemption => view(withoutKeys(row), row.etag);

  const read = (id: string) => tables.get(Exemptions, STATE, exemptionKey(id, isOfAsset(id)));

  async function get(id: string): Promise<Row<ExemptionRecord>> {
    const row = EXEMPTION_ID.test(id) ? await read(id.toLowerCase()) : undefined;
    if (!row) throw notFound(`The exemption ${id.slice(0, 300)}`);
    return row;
  }

  /** Changes the exemption's row and, in the same transaction, the row of its asset's vault. */
  async function write(record: ExemptionRecord, change: Operation, stays: boolean): Promise<string> {
    // Starts again if an evaluation of the vault interfered.
    const etags = await repeatOnConflict(async () => {
      const of = await vaultChange(record, stays);
      if (!of) return await tables.transaction(TABLE, STATE, [change]);
      return await writeChanged(of.before.name, of, (mark) =>
        tables.transaction(TABLE, STATE, [change, of.operation, mark]),
      );
    });
    return etags.get(change.rowKey)!;
  }

  /**
   * Stores an asset's exemption in its vault's row if the vault was evaluated. An exemption of a whole vault is not stored
   * there, but totals list such a vault individually.
   */
  async function vaultChange(
    record: ExemptionRecord,
    stays: boolean,
  ): Promise<{ before: VaultState; now: VaultState | undefined; operation: Operation } | undefined> {
    const { id, checkId, until, scopeType, scopeId = "" } = record;
    if (scopeType === "vault" && stays) {
      const row = await tables.get(VaultStates, STATE, vaultStateKey(scopeId));
      if (!row) return undefined;
      const now = withoutKeys(row);
      return { before: row, now, operation: replace(VaultStates, row.rowKey, now, row.etag) };
    }
    const type = checkOfId.get(checkId)?.resourceType;
    const asset = scopeType === "asset" && placesOf(scopeId).find((place) => place.type === type);
    if (!asset) return undefined;
    const { row, assets } = await loadState(tables, asset.vaultName);
    if (!row) return undefined;
    const of = assetKey(asset.type, asset.name);
    const others = row.exemptions.filter((one) => one.id !== id);
    const entry = { id, checkId, asset: of, until, failing: isFailing(assets, of, checkId) };
    const exemptions = stays ? [...others, entry] : others;
    const key = vaultStateKey(asset.vaultName);
    if (row.gone && exemptions.length === 0)
      return { before: row, now: undefined, operation: remove(VaultStates, key, row.etag) };
    const now = { ...withoutKeys(row), exemptions };
    return { before: row, now, operation: replace(VaultStates, key, now, row.etag) };
  }

  async function create(request: ExemptionRequest, caller: Caller): Promise<Exemption> {
    const { check, scopeId } = await checkedScope(request);
    if (request.until.getTime() <= now()) throw invalidBody("until", "must lie in the future");
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
      writeId: randomness.ulid(clock.now()),
    };
    const standing = await read(record.id);
    if (standing && isActive(standing, now())) throw standsAlready(record.id);
    const key = exemptionKey(record.id, record.scopeType === "asset");
    const change = standing ? replace(Exemptions, key, record, standing.etag) : insert(Exemptions, key, record);
    const event = { type: "compliance.exemptionCreated", caller, target: target(record.id), after: record };
    const etag = await audited(audit, event, async () => {
      try {
        return await write(record, change, true);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // This request's own exemption: the response was lost and an evaluation of the vault was faster.
        const stands = await read(record.id);
        if (stands?.writeId === record.writeId) return stands!.etag;
        throw standsAlready(record.id);
      }
    });
    return view(record, etag);
  }

  async function checkedScope({
    checkId,
    scope,
  }: ExemptionRequest): Promise<{ check: Check; scopeId: string | undefined }> {
    const check = checkOfId.get(checkId);
    if (!check) throw invalidBody("checkId", "is not a check; GET /compliance/frameworks and violations name them");
    const scopeId = scope.id?.toLowerCase();
    if (scope.type === "all") {
      if (scopeId !== undefined) throw invalidBody("scope.id", "can't stand beside the type all");
      return { check, scopeId };
    }
    if (scopeId === undefined) throw invalidBody("scope.id", `names the ${scope.type} and is missing`);
    if (scope.type === "subscription" && !GUID.test(scopeId)) {
      throw invalidBody("scope.id", "must be a subscription id (a GUID)");
    }
    if (scope.type === "vault") {
      const row = VAULT_NAME.test(scopeId) ? await tables.get(VaultStates, STATE, vaultStateKey(scopeId)) : undefined;
      if (!row || row.gone) throw invalidBody("scope.id", "is not the name of a vault that was evaluated");
    }
    if (scope.type === "asset") {
      const places = placesOf(scopeId);
      if (places.length === 0)
        throw invalidBody("scope.id", "must be an asset id such as kv-payments.secret.db-password");
      const asset = places.find(({ type }) => type === check.resourceType);
      if (!asset) throw invalidBody("scope.id", `must be a ${check.resourceType}, which ${check.id} is about`);
      const { assets } = await loadState(tables, asset.vaultName);
      if (!assets.has(assetKey(asset.type, asset.name)))
        throw invalidBody("scope.id", "is not an asset that was evaluated");
    }
    return { check, scopeId };
  }

  async function end(id: string, caller: Caller, ifMatch?: string): Promise<void> {
    const allowed = (row: Row<ExemptionRecord>): Row<ExemptionRecord> => {
      requireRole(caller, new Date(row.until), now());
      requireMatch(row.etag, ifMatch, EXEMPTION);
      return row;
    };
    const first = allowed(await get(id));
    const before: ExemptionRecord = withoutKeys(first);
    const event = { type: "compliance.exemptionRemoved", caller, target: target(first.id), before };
    const effect = async (attempt: number) => {
      const row = attempt === 1 ? first : await read(first.id);
      // The exemption is gone: another request removed it, or the response to the removal was lost.
      if (!row) return { before };
      const record: ExemptionRecord = withoutKeys(allowed(row));
      await write(record, remove(Exemptions, row.rowKey, row.etag), false);
      return { before: record };
    };
    await audited(
      audit,
      event,
      () => repeatOnConflict(effect),
      (removed) => removed,
    );
  }

  async function all(): Promise<Exemption[]> {
    const found: Exemption[] = [];
    for await (const rows of tables.pages(Exemptions, exemptionsRange)) found.push(...rows.map(viewOf));
    return found;
  }

  return {
    create,
    end,
    get: async (id) => viewOf(await get(id)),

    all,
    list: async (request) => pageOfAll(await all(), request, ({ id }) => id),
  };
}

/** @throws {Problem} forbidden when only an administrator may create or remove the exemption. */
function requireRole({ role }: Caller, until: Date, now: number): void {
  if (role !== "operator" || until.getTime() <= now + OPERATOR_EXEMPTION_DAYS * DAY_MS) return;
  const remedy = `An operator's exemption ends within ${OPERATOR_EXEMPTION_DAYS} days: choose an earlier end, or ask an administrator.`;
  throw roleRequired("admin", role, remedy);
}

const EXEMPTION_ID = /^[a-z0-9-]{1,60}\.(all|subscription|vault|asset)(\.[a-z0-9.-]{1,300})?$/i;
const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const VAULT_NAME = /^[a-z0-9-]{1,127}$/;

const EXEMPTION = "The exemption";

const target = (id: string) => ({ type: "exemption", id });
const standsAlready = (id: string) =>
  new Problem("alreadyExists", `The exemption ${id} is there and has not ended. Remove it first to change it.`);
