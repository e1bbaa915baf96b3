import * as z from "zod";
import { DiscoveryRunFields, ListFailure } from "../platform/runs/discovery-runs.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { HOUR_MS } from "../platform/time.ts";
import { type SecretsOwner, secretReference } from "../secrets/kept-secrets.ts";

/** Rows of the registry of B2C tenants. Tenants, what is known of them and their secrets stand in one partition. */
export const TENANTS = "tenants";
const TABLE = "B2c";

/** What people say of a tenant. */
const tenant = z.object({
  /** Lower case, as its domain and its client id. */
  tenantId: z.string(),
  tenantDomain: z.string(),
  displayName: z.string(),
  clientId: z.string(),
  clientSecret: secretReference,
  /** As an administrator says. ISO 8601. */
  clientSecretExpiresOn: z.string().optional(),
  autoDiscover: z.boolean(),
  discoveryIntervalHours: z.number(),
  /** It has left the registry, and what was found in it is being removed. */
  removing: z.boolean().optional(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type TenantRecord = z.infer<typeof tenant>;
export type TenantRow = Row<TenantRecord>;
/** Signed, since it decides where a secret is sent. */
export const TenantRows = entity(TABLE, tenant, { signed: true });
const TENANT = "t|";
export const tenantKey = (tenantId: string): string => `${TENANT}${tenantId}`;
export const tenantRange = { partitionKey: TENANTS, from: TENANT, before: keyEnd(TENANT) };

export const TENANT_TYPES = ["b2c", "external", "workforce"] as const;
export type TenantType = (typeof TENANT_TYPES)[number];

/** The kinds of credential that a tenant has, as a discovery reads them one after the other. */
export const LISTS = ["applications", "policyKeys", "identityProviders"] as const;
export type List = (typeof LISTS)[number];

/** Credentials in the inventory, by kind; `expiring` are those of the status warning or critical. */
export const Counts = z.object({
  applications: z.int().meta({ description: "Client secrets and certificates of applications." }),
  policyKeys: z.int().meta({ description: "Keys of custom policies." }),
  identityProviders: z.int().meta({ description: "Of identity providers." }),
  expiring: z.int().meta({ description: "Credentials with status warning or critical." }),
});
export type Counts = z.infer<typeof Counts>;

/** What the discoveries know of a tenant. Only the worker of a run writes it. */
const status = z.object({
  tenantType: z.enum(TENANT_TYPES).optional(),
  /** The run that is under way, or was when a process died. */
  runId: z.string().optional(),
  /** When the last discovery began; absent where the next one is due at once. */
  attemptedAt: z.string().optional(),
  /** How the last one ended, and when one last read anything. */
  ended: z.enum(["completed", "partial", "failed"]).optional(),
  lastDiscoveredAt: z.string().optional(),
  counts: Counts.optional(),
  failures: z.array(ListFailure).optional(),
  /** When the client secret `of` ends, as the tenant says. */
  secretEnds: z.object({ of: z.string(), at: z.string() }).optional(),
});
export type TenantStatus = z.infer<typeof status>;
export const Statuses = entity(TABLE, status);
const STATUS = "s|";
export const statusKey = (tenantId: string): string => `${STATUS}${tenantId}`;
export const statusRange = { partitionKey: TENANTS, from: STATUS, before: keyEnd(STATUS) };
export const tenantOfStatus = (rowKey: string): string => rowKey.slice(STATUS.length);

/** When it was last said that due tenants are left alone for want of a licence. */
export const Notices = entity(TABLE, z.object({ day: z.string() }));
export const LICENCE_NOTICE = "n|licence";

/** A discovery of a tenant's credentials. */
export const RunRecord = DiscoveryRunFields.extend({
  tenantId: z.string(),
  counts: Counts.optional(),
  /** How it ends, once that is decided and until all of its end is written. */
  ending: z
    .object({
      status: z.enum(["completed", "partial", "failed"]),
      finishedAt: z.string(),
      /** The id of its entry in the audit log. */
      entryId: z.string(),
      counts: Counts,
    })
    .optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
/** Each tenant has runs of its own. */
export const runsOf = (tenantId: string) => ({ runs: Runs, partitionKey: `runs:${tenantId}` });

export const B2C_SECRETS: SecretsOwner = {
  what: "Client secrets of B2C tenants",
  table: TABLE,
  partitionKey: TENANTS,
  namePrefix: "b2c",
  contentType: "application/vnd.credential-lifecycle.b2c-secret",
  removed: { type: "b2cTenant.secretRemoved", target: { type: "b2cTenant", id: "secret" } },
};
/** Whom the secret is sent to: it is read for nobody else, whatever a row says. */
export const secretUse = ({ tenantId, clientId }: Pick<TenantRecord, "tenantId" | "clientId">): string =>
  JSON.stringify(["b2c", tenantId, clientId]);

/** A tenant with what is known of it. */
export interface FoundTenant {
  row: TenantRow;
  status: TenantStatus;
}

/** A discovery that failed is made up for sooner, yet not so often that a wrong secret looks like an attack. */
const AGAIN_HOURS = 6;

/** When the next discovery is due; undefined for a tenant that is not discovered by itself. ISO 8601. */
export function nextDiscoveryAt({ row, status: known }: FoundTenant): string | undefined {
  if (!row.autoDiscover) return undefined;
  const { attemptedAt, ended } = known;
  if (attemptedAt === undefined) return row.updatedAt;
  const hours = ended === "completed" ? row.discoveryIntervalHours : Math.min(row.discoveryIntervalHours, AGAIN_HOURS);
  return new Date(Date.parse(attemptedAt) + hours * HOUR_MS).toISOString();
}
