import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { changedMeanwhile, conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { StoredSecrets } from "../secrets/stored-secrets.ts";
import type { NewTenant, TenantChange } from "./api.ts";
import {
  type FoundTenant,
  Statuses,
  secretUse,
  statusKey,
  statusRange,
  TENANTS,
  type TenantRecord,
  type TenantRow,
  TenantRows,
  type TenantStatus,
  tenantKey,
  tenantOfStatus,
  tenantRange,
} from "./tenant.ts";

/** The registered tenants. All changes to their registrations go through it and are recorded in the audit log. */
export interface Registry {
  /** `broken` means that a row exists, but its signature is not valid. */
  look(tenantId: string): Promise<{ row: TenantRow | undefined; broken?: { etag: string } }>;
  /**
   * Reads a tenant. Undefined if it is not registered or is being removed. @throws {Problem} conflict if its row was tampered
   * with
   */
  find(tenantId: string): Promise<TenantRow | undefined>;
  /** Reads a tenant with its discovery status. @throws {Problem} notFound, conflict */
  get(tenantId: string): Promise<FoundTenant>;
  /** Lists all rows, including those being removed, but not those that were tampered with. Costs one request per 1,000 rows. */
  all(): Promise<FoundTenant[]>;
  /** @throws {Problem} alreadyExists, conflict, unavailable */
  register(given: NewTenant, caller: Caller): Promise<FoundTenant>;
  /** @throws {Problem} notFound, conflict, invalidRequest, preconditionFailed, unavailable */
  change(tenantId: string, given: TenantChange, ifMatch: string | undefined, caller: Caller): Promise<FoundTenant>;
}

export const THE_TENANT = "The B2C tenant";
export const tenantTarget = (tenantId: string) => ({ type: "b2cTenant", id: tenantId });
const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Creates the registry of tenants. */
export function createRegistry(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  secrets: StoredSecrets;
  vault: ServiceKeyVault | undefined;
  /** Returns true for the service's own tenant. */
  isOwn: (tenantId: string) => Promise<boolean>;
  clock: Clock;
  log: Logger;
}): Registry {
  const { tables, audit, secrets, clock, log } = deps;
  const onCorrupt = ({ message }: StorageCorrupt) =>
    log.error("A B2C tenant is left out: its row does not hold", { row: message });

  const statusOf = async (tenantId: string): Promise<TenantStatus> => {
    const found = await tables.get(Statuses, TENANTS, statusKey(tenantId));
    return found ? withoutKeys(found) : {};
  };

  async function look(given: string): ReturnType<Registry["look"]> {
    const tenantId = given.toLowerCase();
    if (!GUID.test(tenantId)) return { row: undefined };
    try {
      return { row: await tables.get(TenantRows, TENANTS, tenantKey(tenantId)) };
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      onCorrupt(error);
      return { row: undefined, broken: { etag: error.etag } };
    }
  }

  async function find(tenantId: string): Promise<TenantRow | undefined> {
    const { row, broken } = await look(tenantId);
    if (broken) throw tampered(tenantId);
    return row?.removing ? undefined : row;
  }

  async function write(next: TenantRecord, operations: Operation[]): Promise<TenantRow> {
    const rowKey = tenantKey(next.tenantId);
    const etags = await tables.transaction(TenantRows.table, TENANTS, operations);
    return { ...next, partitionKey: TENANTS, rowKey, etag: etags.get(rowKey)! };
  }

  /** Returns the registration for the audit log. */
  const entered = ({ clientSecret, ...rest }: TenantRecord) => ({ ...rest, clientSecret: clientSecret.version });

  return {
    look,
    find,

    async get(tenantId) {
      const row = await find(tenantId);
      if (!row) throw notFound(`${THE_TENANT} ${tenantId.slice(0, 64)}`);
      return { row, status: await statusOf(row.tenantId) };
    },

    async all() {
      const known = new Map<string, TenantStatus>();
      for await (const rows of tables.pages(Statuses, statusRange))
        for (const row of rows) known.set(tenantOfStatus(row.rowKey), withoutKeys(row));
      const found: FoundTenant[] = [];
      for await (const rows of tables.pages(TenantRows, { ...tenantRange, onCorrupt }))
        for (const row of rows) found.push({ row, status: known.get(row.tenantId) ?? {} });
      return found;
    },

    async register({ clientSecret, clientSecretExpiresOn, ...given }, caller) {
      const { tenantId } = given;
      if (!deps.vault) throw new Problem("conflict", NO_VAULT);
      if (await deps.isOwn(tenantId)) throw new Problem("conflict", OWN_TENANT);
      await refuseKnown(tenantId);
      const at = clock.now().toISOString();
      const by = { createdAt: at, createdBy: caller.actor, updatedAt: at, updatedBy: caller.actor };
      const record = {
        ...given,
        ...(clientSecretExpiresOn ? { clientSecretExpiresOn } : {}),
        ...by,
      };
      const event = { type: "b2cTenant.registered", caller, target: tenantTarget(tenantId), after: record };
      const row = await audited(audit, event, async () => {
        const kept = await secrets.write(clientSecret, secretUse(record));
        const next: TenantRecord = { ...record, clientSecret: kept };
        const operations = [
          insert(TenantRows, tenantKey(tenantId), next),
          // A slow worker may have left the status of an earlier registration.
          put(Statuses, statusKey(tenantId), {}),
          secrets.stillKept(kept),
        ];
        try {
          return await write(next, operations);
        } catch (error) {
          if (!isConflict(error)) throw error;
          await refuseKnown(tenantId);
          throw changedMeanwhile(undefined, THE_TENANT);
        }
      });
      return { row, status: await statusOf(tenantId) };
    },

    async change(tenantId, given, ifMatch, caller) {
      const before = await find(tenantId);
      if (!before) throw notFound(`${THE_TENANT} ${tenantId.slice(0, 64)}`);
      requireMatch(before.etag, ifMatch, THE_TENANT);
      const { clientSecret, clientSecretExpiresOn, tenantId: named, ...members } = given;
      if (named !== undefined && named !== before.tenantId) {
        throw invalidBody("tenantId", "can't be changed: delete this registration and register the other tenant");
      }
      if (members.clientId !== undefined && members.clientId !== before.clientId && clientSecret === undefined) {
        const why = "is needed again: clientId changes, and a saved secret is not sent for another application";
        throw invalidBody("clientSecret", why);
      }
      const { clientSecretExpiresOn: endsBefore, ...kept } = withoutKeys(before);
      // A new secret has another expiry date.
      const ends =
        clientSecretExpiresOn === undefined && clientSecret === undefined ? endsBefore : clientSecretExpiresOn;
      const changed: TenantRecord = {
        ...kept,
        ...members,
        ...(ends ? { clientSecretExpiresOn: ends } : {}),
        updatedAt: clock.now().toISOString(),
        updatedBy: caller.actor,
      };
      const event = {
        type: "b2cTenant.changed",
        caller,
        target: tenantTarget(before.tenantId),
        before: entered(withoutKeys(before)),
      };
      const effect = async () => {
        const secret = clientSecret === undefined ? undefined : await secrets.write(clientSecret, secretUse(changed));
        const next = secret ? { ...changed, clientSecret: secret } : changed;
        const operations = [
          replace(TenantRows, tenantKey(before.tenantId), next, before.etag),
          ...(secret ? [secrets.stillKept(secret)] : []),
        ];
        return await conditionalWrite(write(next, operations), ifMatch, THE_TENANT);
      };
      const row = await audited(audit, event, effect, (after) => ({ after: entered(withoutKeys(after)) }));
      if (clientSecret !== undefined) await dueAtOnce(row.tenantId);
      return { row, status: await statusOf(row.tenantId) };
    },
  };

  /** @throws {Problem} alreadyExists; conflict while it is being removed */
  async function refuseKnown(tenantId: string): Promise<void> {
    const { row, broken } = await look(tenantId);
    if (broken) throw tampered(tenantId);
    if (row?.removing) {
      throw new Problem("conflict", "The data of this tenant is still being removed. Repeat the request in a minute.");
    }
    if (row) throw new Problem("alreadyExists", `The tenant ${tenantId} is registered. Change it with PUT.`);
  }

  /** Retry with the new secret at once what failed with the old one. */
  async function dueAtOnce(tenantId: string): Promise<void> {
    await tables.modify(Statuses, TENANTS, statusKey(tenantId), (now) => {
      if (!now) return undefined;
      const { attemptedAt: _, ...rest } = withoutKeys(now);
      return rest;
    });
  }
}

const NO_VAULT =
  "A B2C tenant's client secret is kept in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.";

const OWN_TENANT =
  "This is the tenant that the service itself is in: its applications are discovered without a registration (POST /api/automation/rotation/discover).";

const tampered = (tenantId: string) =>
  new Problem(
    "conflict",
    `The registration of ${tenantId.slice(0, 64)} was not written by this service, and is not used. Find out who can write to this service's tables. Then delete the registration (DELETE /b2c/tenants/${tenantId.slice(0, 64)}) and register the tenant again.`,
  );
