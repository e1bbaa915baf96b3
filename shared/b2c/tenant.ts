import * as z from "zod";
import { DiscoveryRunFields, ListFailure } from "../platform/runs/discovery-runs.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { HOUR_MS } from "../platform/time.ts";
import { type SecretsGroup, secretReference } from "../secrets/stored-secrets.ts";

// Rows of the table B2c: registrations of B2C tenants (`t|<tenant ID>`), their discovery status (`s|<tenant ID>`), and the day
// of the last notice about a missing license (`n|licence`). Also their runs, and references of their client secrets.

/** Partition of registrations, discovery status and secrets. Each tenant's runs have a partition of their own. */
export const TENANTS = "tenants";
const TABLE = "B2c";

/** The registration of a tenant. */
const tenant = z.object({
  /** Tenant ID. It is in lower case, like the domain and the client ID. */
  tenantId: z.string(),
  tenantDomain: z.string(),
  displayName: z.string(),
  clientId: z.string(),
  clientSecret: secretReference,
  /** Expiry date of the secret as entered by an administrator. ISO 8601. */
  clientSecretExpiresOn: z.string().optional(),
  autoDiscover: z.boolean(),
  discoveryIntervalHours: z.number(),
  /** True if the tenant was unregistered and its assets are being deleted. */
  removing: z.boolean().optional(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type TenantRecord = z.infer<typeof tenant>;
export type TenantRow = Row<TenantRecord>;
/** The row of a registration. Signed, because it decides where a secret is sent. */
export const TenantRows = entity(TABLE, tenant, { signed: true });
const TENANT = "t|";
export const tenantKey = (tenantId: string): string => `${TENANT}${tenantId}`;
export const tenantRange = { partitionKey: TENANTS, from: TENANT, before: keyEnd(TENANT) };

export const TENANT_TYPES = ["b2c", "external", "workforce"] as const;
export type TenantType = (typeof TENANT_TYPES)[number];

/** The lists of credentials in a tenant, in the order in which a discovery reads them. */
export const LISTS = ["applications", "policyKeys", "identityProviders"] as const;
export type List = (typeof LISTS)[number];

/** Credentials in the inventory by kind, and by the status that they had then. Rows of earlier versions lack the last two. */
export const Counts = z.object({
  applications: z.int().meta({ description: "Client secrets and certificates of applications." }),
  policyKeys: z.int().meta({ description: "Keys of custom policies." }),
  identityProviders: z.int().meta({ description: "Identity providers." }),
  expiring: z.int().meta({ description: "Credentials with status warning or critical." }),
  critical: z.int().optional().meta({
    description: "Credentials with status critical. Absent until the first discovery after an upgrade.",
  }),
  expired: z.int().optional().meta({
    description: "Credentials with status expired. Absent until the first discovery after an upgrade.",
  }),
});
export type Counts = z.infer<typeof Counts>;

/**
 * The discovery status of a tenant. The worker of a run writes it. A registration and a new client secret reset parts of it.
 */
const status = z.object({
  tenantType: z.enum(TENANT_TYPES).optional(),
  /** Id of the run in progress, or of one that crashed. */
  runId: z.string().optional(),
  /** Start of the last discovery. Absent if the next one is due at once. */
  attemptedAt: z.string().optional(),
  /** Outcome of the last discovery. */
  ended: z.enum(["completed", "partial", "failed"]).optional(),
  /** Time of the last discovery that read any kind of credential. */
  lastDiscoveredAt: z.string().optional(),
  counts: Counts.optional(),
  failures: z.array(ListFailure).optional(),
  /** Expiry date `at` of a client secret, as the tenant reports it. `of` is the ID of the stored secret, see `clientSecret`. */
  secretEnds: z.object({ of: z.string(), at: z.string() }).optional(),
});
export type TenantStatus = z.infer<typeof status>;
export const Statuses = entity(TABLE, status);
const STATUS = "s|";
export const statusKey = (tenantId: string): string => `${STATUS}${tenantId}`;
export const statusRange = { partitionKey: TENANTS, from: STATUS, before: keyEnd(STATUS) };
export const tenantOfStatus = (rowKey: string): string => rowKey.slice(STATUS.length);

/** Date of the last audit entry that due tenants are skipped because there is no license. */
export const Notices = entity(TABLE, z.object({ day: z.string() }));
export const LICENCE_NOTICE = "n|licence";

/** A discovery run of a tenant. */
export const RunRecord = DiscoveryRunFields.extend({
  tenantId: z.string(),
  counts: Counts.optional(),
  /** The outcome, from the decision until the run's end is completely written. */
  ending: z
    .object({
      status: z.enum(["completed", "partial", "failed"]),
      finishedAt: z.string(),
      /** Id of the audit entry of its end. */
      entryId: z.string(),
      counts: Counts,
    })
    .optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
/** Returns the table and partition of a tenant's runs, for `createDiscoveryRuns`. */
export const runsOf = (tenantId: string) => ({ runs: Runs, partitionKey: `runs:${tenantId}` });

/** How client secrets of B2C tenants are stored in the service's key vault. */
export const B2C_SECRETS: SecretsGroup = {
  what: "Client secrets of B2C tenants",
  table: TABLE,
  partitionKey: TENANTS,
  namePrefix: "b2c",
  contentType: "application/vnd.credential-lifecycle.b2c-secret",
  removed: { type: "b2cTenant.secretRemoved", target: { type: "b2cTenant", id: "secret" } },
};
/** Returns the purpose to which a secret is bound: it can be read only for this tenant and application. */
export const secretUse = ({ tenantId, clientId }: Pick<TenantRecord, "tenantId" | "clientId">): string =>
  JSON.stringify(["b2c", tenantId, clientId]);

/** A registration with its discovery status. */
export interface RegisteredTenant {
  row: TenantRow;
  status: TenantStatus;
}

/** Maximum delay after an incomplete discovery. It is long enough that a wrong secret does not look like an attack. */
const RETRY_HOURS = 6;

/** Returns when the next discovery is due, ISO 8601. Undefined for a tenant without automatic discovery. */
export function nextDiscoveryAt({ row, status: discovery }: RegisteredTenant): string | undefined {
  if (!row.autoDiscover) return undefined;
  const { attemptedAt, ended } = discovery;
  if (attemptedAt === undefined) return row.updatedAt;
  const hours = ended === "completed" ? row.discoveryIntervalHours : Math.min(row.discoveryIntervalHours, RETRY_HOURS);
  return new Date(Date.parse(attemptedAt) + hours * HOUR_MS).toISOString();
}
