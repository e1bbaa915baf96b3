import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { locationsOf } from "../inventory/asset.ts";
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
import { writeWithChangeMark } from "./changed-results.ts";
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
import { isAssetFailing, loadState } from "./vault-state.ts";

/**
 * Exemptions: until a date, failures of one check do not count for one asset, vault, subscription or for everything. See
 * `ExemptionStore`.
 */

/** An exemption to create. */
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

/** Matches IDs such as `secret-expired.asset.kv-pay.secret.db`. Their rows have another prefix than those of other scopes. */
const isAssetExemption = (id: string): boolean => id.split(".")[1] === "asset";

/**
 * Manages exemptions: users accept failures of a check for a scope until a date. An exemption takes effect with the next
 * response. One of a vault or a larger scope is applied when results are read. One of an asset is also stored in its vault's
 * row, with whether the asset fails the check. Exemptions expire automatically, because readers compare `until` with the clock.
 */
export interface ExemptionStore {
  /**
   * Creates an exemption.
   *
   * @throws {Problem} invalidRequest; forbidden; alreadyExists when the check has an active exemption with that scope.
   */
  create(request: ExemptionRequest, caller: Caller): Promise<Exemption>;
  /** Removes an exemption. @throws {Problem} notFound; forbidden; preconditionFailed when `ifMatch` is stale. */
  remove(id: string, caller: Caller, ifMatch?: string): Promise<void>;
  /** Returns an exemption. @throws {Problem} notFound */
  get(id: string): Promise<Exemption>;
  /** Lists all exemptions by ID, including expired ones. One request per 1,000. */
  list(request: PageRequest): Promise<Page<Exemption>>;
  /** Returns all exemptions, including expired ones. */
  all(): Promise<Exemption[]>;
}

/** Creates the store of exemptions. */
export function createExemptions(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  clock: Clock;
  randomness: Randomness;
}): ExemptionStore {
  const { tables, audit, clock, randomness } = deps;
  const now = () => clock.now().getTime();

  const toExemption = (record: ExemptionRecord, etag: string): Exemption => {
    const { writeId: _, ...fields } = record;
    return { ...fields, active: isActive(record, now()), etag: entityTag({ etag }) };
  };
  const rowToExemption = (row: Row<ExemptionRecord>): Exemption => toExemption(withoutKeys(row), row.etag);

  const read = (id: string) => tables.get(Exemptions, STATE, exemptionKey(id, isAssetExemption(id)));

  async function get(id: string): Promise<Row<ExemptionRecord>> {
    const row = EXEMPTION_ID.test(id) ? await read(id.toLowerCase()) : undefined;
    if (!row) throw notFound(`The exemption ${id.slice(0, 300)}`);
    return row;
  }

  /**
   * Writes or removes the exemption's row. If it is an exemption of an asset or a vault, writes the vault's row in the same
   * transaction.
   *
   * @param isActiveAfter - False to remove the exemption.
   * @returns the ETag of the exemption's row.
   */
  async function write(record: ExemptionRecord, change: Operation, isActiveAfter: boolean): Promise<string> {
    // Repeats if a concurrent evaluation wrote the vault's row.
    const etags = await repeatOnConflict(async () => {
      const vaultWrite = await vaultRowWrite(record, isActiveAfter);
      if (!vaultWrite) return await tables.transaction(TABLE, STATE, [change]);
      return await writeWithChangeMark(vaultWrite.before.name, vaultWrite, (mark) =>
        tables.transaction(TABLE, STATE, [change, vaultWrite.operation, mark]),
      );
    });
    return etags.get(change.rowKey)!;
  }

  /**
   * Returns the write of the vault's row that belongs to a change of an exemption. Undefined if there is none. An asset's
   * exemption is stored in the row. A new exemption of a vault is not, but its row is rewritten unchanged. That creates the vault's
   * mark, by which readers take the vault out of the totals of its subscription and count it individually. A removed exemption of a
   * vault needs no mark, because the vault is already counted individually.
   */
  async function vaultRowWrite(
    record: ExemptionRecord,
    isActiveAfter: boolean,
  ): Promise<{ before: VaultState; now: VaultState | undefined; operation: Operation } | undefined> {
    const { id, checkId, until, scopeType, scopeId = "" } = record;
    if (scopeType === "vault" && isActiveAfter) {
      const row = await tables.get(VaultStates, STATE, vaultStateKey(scopeId));
      if (!row) return undefined;
      const updatedState = withoutKeys(row);
      return { before: row, now: updatedState, operation: replace(VaultStates, row.rowKey, updatedState, row.etag) };
    }
    const type = checkOfId.get(checkId)?.resourceType;
    // Without its type, an asset's ID can stand for several assets. The check is about one type.
    const asset = scopeType === "asset" && locationsOf(scopeId).find((location) => location.type === type);
    if (!asset) return undefined;
    const { row, assets } = await loadState(tables, asset.vaultName);
    if (!row) return undefined;
    const key = assetKey(asset.type, asset.name);
    // A new exemption replaces any other one of the same check and asset. The other one can have another ID, because
    // evaluations move exemptions of a certificate's other directory entries to the certificate's asset (`exemptionsOf` in
    // write-state.ts).
    const otherExemptions = row.exemptions.filter(
      (exemption) =>
        exemption.id !== id && !(isActiveAfter && exemption.checkId === checkId && exemption.asset === key),
    );
    const entry = { id, checkId, asset: key, until, failing: isAssetFailing(assets, key, checkId) };
    const exemptions = isActiveAfter ? [...otherExemptions, entry] : otherExemptions;
    const rowKey = vaultStateKey(asset.vaultName);
    if (row.gone && exemptions.length === 0)
      return { before: row, now: undefined, operation: remove(VaultStates, rowKey, row.etag) };
    const updatedState = { ...withoutKeys(row), exemptions };
    return { before: row, now: updatedState, operation: replace(VaultStates, rowKey, updatedState, row.etag) };
  }

  async function create(request: ExemptionRequest, caller: Caller): Promise<Exemption> {
    const { check, scopeId } = await validateScope(request);
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
    const existing = await read(record.id);
    if (existing && isActive(existing, now())) throw alreadyExists(record.id);
    const key = exemptionKey(record.id, record.scopeType === "asset");
    const change = existing ? replace(Exemptions, key, record, existing.etag) : insert(Exemptions, key, record);
    const event = { type: "compliance.exemptionCreated", caller, target: target(record.id), after: record };
    const etag = await audited(audit, event, async () => {
      try {
        return await write(record, change, true);
      } catch (error) {
        if (!isConflict(error)) throw error;
        // The first attempt may have written this exemption although its response was lost. Then the retry conflicts with it.
        const stored = await read(record.id);
        if (stored?.writeId === record.writeId) return stored!.etag;
        throw alreadyExists(record.id);
      }
    });
    return toExemption(record, etag);
  }

  async function validateScope({
    checkId,
    scope,
  }: ExemptionRequest): Promise<{ check: Check; scopeId: string | undefined }> {
    const check = checkOfId.get(checkId);
    if (!check) throw invalidBody("checkId", "is not a check; GET /compliance/frameworks and violations name them");
    const scopeId = scope.id?.toLowerCase();
    if (scope.type === "all") {
      if (scopeId !== undefined) throw invalidBody("scope.id", "must be omitted for the type all");
      return { check, scopeId };
    }
    if (scopeId === undefined) throw invalidBody("scope.id", `is required: it identifies the ${scope.type}`);
    if (scope.type === "subscription" && !GUID.test(scopeId)) {
      throw invalidBody("scope.id", "must be a subscription id (a GUID)");
    }
    if (scope.type === "vault") {
      const row = VAULT_NAME.test(scopeId) ? await tables.get(VaultStates, STATE, vaultStateKey(scopeId)) : undefined;
      if (!row || row.gone) throw invalidBody("scope.id", "is not the name of a vault that was evaluated");
    }
    if (scope.type === "asset") {
      const locations = locationsOf(scopeId);
      if (locations.length === 0)
        throw invalidBody("scope.id", "must be an asset id such as kv-payments.secret.db-password");
      const asset = locations.find(({ type }) => type === check.resourceType);
      if (!asset) throw invalidBody("scope.id", `must be a ${check.resourceType}, which ${check.id} is about`);
      const { assets } = await loadState(tables, asset.vaultName);
      if (!assets.has(assetKey(asset.type, asset.name)))
        throw invalidBody("scope.id", "is not an asset that was evaluated");
    }
    return { check, scopeId };
  }

  async function removeExemption(id: string, caller: Caller, ifMatch?: string): Promise<void> {
    const requireAllowed = (row: Row<ExemptionRecord>): Row<ExemptionRecord> => {
      requireRole(caller, new Date(row.until), now());
      requireMatch(row.etag, ifMatch, EXEMPTION);
      return row;
    };
    const existing = requireAllowed(await get(id));
    const exemptionBefore: ExemptionRecord = withoutKeys(existing);
    const event = { type: "compliance.exemptionRemoved", caller, target: target(existing.id), before: exemptionBefore };
    const effect = async (attempt: number) => {
      const row = attempt === 1 ? existing : await read(existing.id);
      // The exemption is gone: another request removed it, or the response to the removal was lost.
      if (!row) return { before: exemptionBefore };
      const record: ExemptionRecord = withoutKeys(requireAllowed(row));
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
    const exemptions: Exemption[] = [];
    for await (const rows of tables.pages(Exemptions, exemptionsRange)) exemptions.push(...rows.map(rowToExemption));
    return exemptions;
  }

  return {
    create,
    remove: removeExemption,
    get: async (id) => rowToExemption(await get(id)),

    all,
    list: async (request) => pageOfAll(await all(), request, ({ id }) => id),
  };
}

/** Checks the caller's role. @throws {Problem} forbidden when only an administrator may create or remove the exemption. */
function requireRole({ role }: Caller, until: Date, now: number): void {
  if (role !== "operator" || until.getTime() <= now + OPERATOR_EXEMPTION_DAYS * DAY_MS) return;
  const remedy = `An operator can create and remove exemptions that expire within ${OPERATOR_EXEMPTION_DAYS} days. Choose an earlier expiry, or ask an administrator.`;
  throw roleRequired("admin", role, remedy);
}

/** Matches IDs of exemptions, such as `secret-expired.all` and `key-expired.vault.kv-pay`. */
const EXEMPTION_ID = /^[a-z0-9-]{1,60}\.(all|subscription|vault|asset)(\.[a-z0-9.-]{1,300})?$/i;
const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const VAULT_NAME = /^[a-z0-9-]{1,127}$/;

/** Subject of error messages. */
const EXEMPTION = "The exemption";

const target = (id: string) => ({ type: "exemption", id });
const alreadyExists = (id: string) =>
  new Problem(
    "alreadyExists",
    `The exemption ${id} already exists and has not expired. Remove it before you create it again.`,
  );
