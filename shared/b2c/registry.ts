import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { changedMeanwhile, conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import type { Clock } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { SecretReference, StoredSecrets } from "../secrets/stored-secrets.ts";
import type { NewTenant, TenantChange } from "./api.ts";
import {
  type RegisteredTenant,
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

/**
 * Registrations of B2C tenants. Registers, changes and reads them, and records changes in the audit log. Removals are in
 * removal.ts.
 */
export interface Registry {
  /**
   * Reads the row of a tenant, even if it is being removed. `broken` is set if the row exists but its signature is not valid.
   */
  readRow(tenantId: string): Promise<{ row: TenantRow | undefined; broken?: { etag: string } }>;
  /**
   * Reads a tenant. Undefined if it is not registered or is being removed.
   *
   * @throws {Problem} conflict if its row was tampered with
   */
  find(tenantId: string): Promise<TenantRow | undefined>;
  /** Reads a tenant with its discovery status. @throws {Problem} notFound, conflict */
  get(tenantId: string): Promise<RegisteredTenant>;
  /**
   * Lists all rows, including those being removed. The answer names those that were tampered with. Costs one request per 1,000
   * rows.
   */
  all(): Promise<RegisteredTenant[]>;
  /** Same as `all`, without the tenants that are being removed. */
  registered(): Promise<RegisteredTenant[]>;
  /** Returns the client secrets of all tenants, or undefined if a tenant's row was tampered with. */
  usedSecrets(): Promise<SecretReference[] | undefined>;
  /** Registers a tenant. @throws {Problem} alreadyExists, conflict, unavailable */
  register(given: NewTenant, caller: Caller): Promise<RegisteredTenant>;
  /** Changes a registration. @throws {Problem} notFound, conflict, invalidRequest, preconditionFailed, unavailable */
  change(tenantId: string, given: TenantChange, ifMatch: string | undefined, caller: Caller): Promise<RegisteredTenant>;
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
  isOwnTenant: (tenantId: string) => Promise<boolean>;
  clock: Clock;
}): Registry {
  const { tables, audit, secrets, clock } = deps;
  const statusOf = async (tenantId: string): Promise<TenantStatus> => {
    const statusRow = await tables.get(Statuses, TENANTS, statusKey(tenantId));
    return statusRow ? withoutKeys(statusRow) : {};
  };

  async function readRow(given: string): ReturnType<Registry["readRow"]> {
    const tenantId = given.toLowerCase();
    if (!GUID.test(tenantId)) return { row: undefined };
    try {
      return { row: await tables.get(TenantRows, TENANTS, tenantKey(tenantId)) };
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      return { row: undefined, broken: { etag: error.etag } };
    }
  }

  async function find(tenantId: string): Promise<TenantRow | undefined> {
    const { row, broken } = await readRow(tenantId);
    if (broken) throw tampered(tenantId);
    return row?.removing ? undefined : row;
  }

  async function writeTenant(next: TenantRecord, operations: Operation[]): Promise<TenantRow> {
    const rowKey = tenantKey(next.tenantId);
    const etags = await tables.transaction(TenantRows.table, TENANTS, operations);
    return { ...next, partitionKey: TENANTS, rowKey, etag: etags.get(rowKey)! };
  }

  async function all(): Promise<RegisteredTenant[]> {
    // Names the unreadable tenant in the answer, so that an administrator can delete it.
    const onCorrupt = (row: StorageCorrupt) => countLeftOut(row, row.rowKey.slice(tenantKey("").length));
    const statuses = new Map<string, TenantStatus>();
    for await (const rows of tables.pages(Statuses, { ...statusRange, onCorrupt: "leaveOut" }))
      for (const row of rows) statuses.set(tenantOfStatus(row.rowKey), withoutKeys(row));
    const tenants: RegisteredTenant[] = [];
    for await (const rows of tables.pages(TenantRows, { ...tenantRange, onCorrupt }))
      for (const row of rows) tenants.push({ row, status: statuses.get(row.tenantId) ?? {} });
    return tenants;
  }

  /** Returns the registration for the audit log. */
  const auditView = ({ clientSecret, ...rest }: TenantRecord) => ({ ...rest, clientSecret: clientSecret.version });

  return {
    readRow,
    find,

    async get(tenantId) {
      const row = await find(tenantId);
      if (!row) throw notFound(`${THE_TENANT} ${tenantId.slice(0, 64)}`);
      return { row, status: await statusOf(row.tenantId) };
    },

    async usedSecrets() {
      let isReadable = true;
      const onCorrupt = () => {
        isReadable = false;
      };
      const used: SecretReference[] = [];
      for await (const rows of tables.pages(TenantRows, { ...tenantRange, onCorrupt }))
        used.push(...rows.map(({ clientSecret }) => clientSecret));
      return isReadable ? used : undefined;
    },

    all,
    registered: async () => (await all()).filter(({ row }) => !row.removing),

    async register({ clientSecret, clientSecretExpiresOn, ...given }, caller) {
      const { tenantId } = given;
      if (!deps.vault) throw new Problem("conflict", NO_VAULT);
      if (await deps.isOwnTenant(tenantId)) throw new Problem("conflict", OWN_TENANT);
      await requireNotRegistered(tenantId);
      const timestamp = clock.now().toISOString();
      const metadata = { createdAt: timestamp, createdBy: caller.actor, updatedAt: timestamp, updatedBy: caller.actor };
      const record = {
        ...given,
        ...(clientSecretExpiresOn ? { clientSecretExpiresOn } : {}),
        ...metadata,
      };
      const event = { type: "b2cTenant.registered", caller, target: tenantTarget(tenantId), after: record };
      const row = await audited(audit, event, async () => {
        const secretReference = await secrets.write(clientSecret, secretUse(record));
        const next: TenantRecord = { ...record, clientSecret: secretReference };
        const operations = [
          insert(TenantRows, tenantKey(tenantId), next),
          // A slow worker may have left the status of an earlier registration.
          put(Statuses, statusKey(tenantId), {}),
          secrets.requireStored(secretReference),
        ];
        try {
          return await writeTenant(next, operations);
        } catch (error) {
          if (!isConflict(error)) throw error;
          await requireNotRegistered(tenantId);
          throw changedMeanwhile(undefined, THE_TENANT);
        }
      });
      return { row, status: await statusOf(tenantId) };
    },

    async change(tenantId, given, ifMatch, caller) {
      const current = await find(tenantId);
      if (!current) throw notFound(`${THE_TENANT} ${tenantId.slice(0, 64)}`);
      requireMatch(current.etag, ifMatch, THE_TENANT);
      const { clientSecret, clientSecretExpiresOn, tenantId: givenTenantId, ...members } = given;
      if (givenTenantId !== undefined && givenTenantId !== current.tenantId) {
        throw invalidBody("tenantId", "can't be changed: delete this registration and register the other tenant");
      }
      if (members.clientId !== undefined && members.clientId !== current.clientId && clientSecret === undefined) {
        const message = "is required: clientId changes, and a saved secret is not sent for another application";
        throw invalidBody("clientSecret", message);
      }
      const { clientSecretExpiresOn: previousExpiry, ...unchanged } = withoutKeys(current);
      // The previous expiry date does not apply to a new secret.
      const expiry =
        clientSecretExpiresOn === undefined && clientSecret === undefined ? previousExpiry : clientSecretExpiresOn;
      const changed: TenantRecord = {
        ...unchanged,
        ...members,
        ...(expiry ? { clientSecretExpiresOn: expiry } : {}),
        updatedAt: clock.now().toISOString(),
        updatedBy: caller.actor,
      };
      const event = {
        type: "b2cTenant.changed",
        caller,
        target: tenantTarget(current.tenantId),
        before: auditView(withoutKeys(current)),
      };
      const effect = async () => {
        const secret = clientSecret === undefined ? undefined : await secrets.write(clientSecret, secretUse(changed));
        const next = secret ? { ...changed, clientSecret: secret } : changed;
        const operations = [
          replace(TenantRows, tenantKey(current.tenantId), next, current.etag),
          ...(secret ? [secrets.requireStored(secret)] : []),
        ];
        return await conditionalWrite(writeTenant(next, operations), ifMatch, THE_TENANT);
      };
      const row = await audited(audit, event, effect, (after) => ({ after: auditView(withoutKeys(after)) }));
      if (clientSecret !== undefined) await makeDue(row.tenantId);
      return { row, status: await statusOf(row.tenantId) };
    },
  };

  /**
   * Throws if the tenant is registered.
   *
   * @throws {Problem} alreadyExists; conflict while it is being removed or its row is invalid
   */
  async function requireNotRegistered(tenantId: string): Promise<void> {
    const { row, broken } = await readRow(tenantId);
    if (broken) throw tampered(tenantId);
    if (row?.removing) {
      throw new Problem("conflict", "The data of this tenant is still being removed. Repeat the request in a minute.");
    }
    if (row) throw new Problem("alreadyExists", `The tenant ${tenantId} is registered. Change it with PUT.`);
  }

  /** Makes the next discovery due at once, so that a discovery that failed with the old secret is retried. */
  async function makeDue(tenantId: string): Promise<void> {
    await tables.modify(Statuses, TENANTS, statusKey(tenantId), (stored) => {
      if (!stored) return undefined;
      const { attemptedAt: _, ...rest } = withoutKeys(stored);
      return rest;
    });
  }
}

const NO_VAULT =
  "A B2C tenant's client secret is stored in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.";

const OWN_TENANT =
  "This is the tenant that the service itself is in: its applications are discovered without a registration (POST /api/automation/rotation/discover).";

const tampered = (tenantId: string) =>
  new Problem(
    "conflict",
    `The registration of ${tenantId.slice(0, 64)} was not written by this service and is not used. Find out who can write to this service's tables. Then delete the registration (DELETE /b2c/tenants/${tenantId.slice(0, 64)}) and register the tenant again.`,
  );
