import * as z from "zod";
import { entityTag } from "../http/conditional.ts";
import { singleLine } from "../http/text.ts";
import { ListFailure, RUN_STATUSES } from "../runs/runs.ts";
import { CHECKS, type TestResult } from "./connection-test.ts";
import { Counts, type FoundTenant, nextDiscoveryAt, type RunRecord, TENANT_TYPES } from "./tenant.ts";

/** B2C tenants as the API takes and shows them. */

const instant = z.iso.datetime();
const guid = z.guid("must be a GUID").transform((id) => id.toLowerCase());

export const tenantParams = z.strictObject({
  tenant_id: z.string().meta({ description: "The tenant's id, a GUID." }),
});
export const runParams = tenantParams.extend({
  run_id: z.string().meta({ description: "The runId of the discovery." }),
});

const DOMAIN = /^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])$/;

const members = {
  tenantDomain: z
    .string()
    .max(253)
    .regex(DOMAIN, "must be a domain such as contoso.onmicrosoft.com")
    .transform((domain) => domain.toLowerCase())
    .meta({
      description: "A verified domain of the tenant. The test and each discovery compare it.",
      example: "contoso.onmicrosoft.com",
    }),
  displayName: singleLine(128),
  clientId: guid.meta({
    description: "The client id of an application in that tenant with application permissions of Microsoft Graph.",
  }),
  clientSecret: z.string().min(1).max(512).meta({
    description: "A client secret of it: the value, not its id. Kept in the service's own key vault and never shown.",
    writeOnly: true,
  }),
  clientSecretExpiresOn: instant
    .nullable()
    .meta({ description: "When the client secret ends: told of 30, 14 and 3 days before. Else what the tenant says." }),
  autoDiscover: z.boolean().meta({ description: "Whether its credentials are discovered by themselves." }),
  discoveryIntervalHours: z.int().min(1).max(720).meta({ description: "Hours from one discovery to the next." }),
};

export const NewTenant = z
  .strictObject({
    tenantId: guid.meta({ description: "The tenant's id, a GUID." }),
    ...members,
    clientSecretExpiresOn: members.clientSecretExpiresOn.optional(),
    autoDiscover: members.autoDiscover.default(true),
    discoveryIntervalHours: members.discoveryIntervalHours.default(24),
  })
  .meta({ id: "NewB2cTenant" });
export type NewTenant = z.output<typeof NewTenant>;

export const TenantChange = z
  .strictObject({ tenantId: guid, ...members })
  .partial()
  .meta({
    id: "B2cTenantChange",
    description:
      "Any subset. The tenant stays what it is: another one is another registration. Another clientId needs its clientSecret.",
  });
export type TenantChange = z.output<typeof TenantChange>;

export const STATES = ["new", "discovering", "discovered", "partial", "failing"] as const;

const CountsView = Counts.meta({
  id: "B2cCounts",
  description:
    "Credentials in the inventory: of applications their secrets and certificates. `expiring`: those of the status warning or critical.",
});
const FailureView = ListFailure.extend({
  list: z.string().meta({
    description:
      "What could not be read: applications, policyKeys, identityProviders; or signIn, organization for all.",
  }),
  at: instant,
}).meta({ id: "B2cFailure" });

export const TenantView = z
  .object({
    tenantId: z.string(),
    tenantDomain: z.string(),
    displayName: z.string(),
    clientId: z.string(),
    clientSecretExpiresOn: instant.nullable().meta({
      description: "As it was given, else as the tenant said at the last discovery; null where neither is known.",
    }),
    autoDiscover: z.boolean().meta({ description: "Whether its credentials are discovered by themselves." }),
    discoveryIntervalHours: z.int(),
    tenantType: z.enum(TENANT_TYPES).nullable().meta({
      description: "`external`: of Entra External ID. Null until the tenant has said so.",
    }),
    state: z.enum(STATES).meta({
      description:
        "`new`: not discovered yet. `partial`: one kind of credential could not be read at the last discovery; what was known of it stays. `failing`: none could.",
    }),
    lastDiscoveredAt: instant.nullable().meta({ description: "When anything was last read." }),
    nextDiscoveryAt: instant.nullable().meta({
      description: "When it is due by itself; after a discovery that read not everything, within 6 hours.",
    }),
    counts: CountsView.nullable(),
    failure: FailureView.nullable().meta({ description: "The first of what went wrong at the last discovery." }),
    failures: z.array(FailureView).meta({ description: "All that went wrong at the last discovery." }),
    runId: z.string().nullable().meta({ description: "The discovery under way." }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "B2cTenant" });

const STATE_OF = { completed: "discovered", partial: "partial", failed: "failing" } as const;

export function tenantView(found: FoundTenant): z.infer<typeof TenantView> {
  const { row, status } = found;
  const { runId, ended, failures = [], secretEnds } = status;
  const known = secretEnds?.of === row.clientSecret.id ? secretEnds.at : undefined;
  return {
    tenantId: row.tenantId,
    tenantDomain: row.tenantDomain,
    displayName: row.displayName,
    clientId: row.clientId,
    clientSecretExpiresOn: row.clientSecretExpiresOn ?? known ?? null,
    autoDiscover: row.autoDiscover,
    discoveryIntervalHours: row.discoveryIntervalHours,
    tenantType: status.tenantType ?? null,
    state: runId !== undefined ? "discovering" : ended === undefined ? "new" : STATE_OF[ended],
    lastDiscoveredAt: status.lastDiscoveredAt ?? null,
    nextDiscoveryAt: nextDiscoveryAt(found) ?? null,
    counts: status.counts ?? null,
    failure: failures[0] ?? null,
    failures,
    runId: runId ?? null,
    createdAt: row.createdAt,
    createdBy: row.createdBy,
    updatedAt: row.updatedAt,
    updatedBy: row.updatedBy,
    etag: entityTag(row),
  };
}

export const TenantRun = z
  .object({
    runId: z.string(),
    tenantId: z.string(),
    status: z.enum(RUN_STATUSES).meta({
      description: "`partial`: one kind could not be read; what was known of it stays. `failed`: none could.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    counts: CountsView.nullable().meta({ description: "What is known after it; null while it runs." }),
    failures: z.array(FailureView).meta({ description: "What could not be read, and what to do about it." }),
  })
  .meta({ id: "B2cDiscovery" });

export function runView(run: RunRecord): z.infer<typeof TenantRun> {
  const { runId, tenantId, status, requestedBy, createdAt, finishedAt, counts, failures } = run;
  return {
    runId,
    tenantId,
    status,
    requestedBy,
    createdAt,
    finishedAt: finishedAt ?? null,
    counts: counts ?? null,
    failures,
  };
}

export const TenantTest = z
  .object({
    ok: z.boolean().meta({ description: "Whether a discovery would read everything." }),
    tenantType: z
      .enum(TENANT_TYPES)
      .nullable()
      .meta({ description: "What kind of tenant it is; null where it did not say." }),
    organization: z
      .object({
        id: z.string(),
        displayName: z.string(),
        verifiedDomains: z.array(z.string()).meta({ description: "The domains that it has proven to be its own." }),
      })
      .nullable()
      .meta({ description: "What the tenant says of itself." }),
    checks: z
      .array(
        z.object({
          name: z.enum(CHECKS),
          outcome: z.enum(["ok", "failed", "notApplicable", "notTried"]).meta({
            description:
              "`notApplicable`: there is no such thing in a tenant of this type. `notTried`: an earlier one failed.",
          }),
          permission: z
            .string()
            .nullable()
            .meta({ description: "The application permission of Microsoft Graph that it takes." }),
          code: z.string().nullable(),
          message: z.string().nullable(),
          remedy: z.string().nullable(),
        }),
      )
      .meta({ description: "In the order in which they are made." }),
  })
  .meta({ id: "B2cTenantTest" });

export const testView = (result: TestResult): z.infer<typeof TenantTest> => ({
  ok: result.checks.every(({ outcome }) => outcome === "ok" || outcome === "notApplicable"),
  tenantType: result.tenantType ?? null,
  organization: result.organization
    ? {
        id: result.organization.id,
        displayName: result.organization.displayName,
        verifiedDomains: result.organization.verifiedDomains,
      }
    : null,
  checks: result.checks.map(({ name, outcome, permission, finding }) => ({
    name,
    outcome,
    permission: permission ?? null,
    code: finding?.code ?? null,
    message: finding?.message ?? null,
    remedy: finding?.remedy ?? null,
  })),
});
