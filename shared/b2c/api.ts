import * as z from "zod";
import { entityTag } from "../platform/http/conditional-requests.ts";
import { singleLine } from "../platform/http/single-line.ts";
import { ListFailure, RUN_STATUSES } from "../platform/runs/discovery-runs.ts";
import { CHECKS, type TestResult } from "./connection-test.ts";
import { Counts, nextDiscoveryAt, type RegisteredTenant, type RunRecord, TENANT_TYPES } from "./tenant.ts";

// Schemas of B2C tenants in the API. The endpoints validate requests with them and generate the API description from them. A
// "B2C tenant" is a registered tenant of Azure AD B2C or of Microsoft Entra External ID.

const instant = z.iso.datetime();
const guid = z.guid("must be a GUID").transform((id) => id.toLowerCase());

export const tenantParams = z.strictObject({
  tenant_id: z.string().meta({ description: "ID of the tenant, a GUID." }),
});
export const runParams = tenantParams.extend({
  run_id: z.string().meta({ description: "ID of the discovery run." }),
});

/** Matches a domain name with at least two labels, for example contoso.onmicrosoft.com. */
const DOMAIN = /^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])$/;

const registrationMembers = {
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
    description: "Client ID of an application in the tenant with application permissions for Microsoft Graph.",
  }),
  clientSecret: z.string().min(1).max(512).meta({
    description:
      "Client secret of the application: the value, not its ID. Stored in the service's key vault and never returned.",
    writeOnly: true,
  }),
  clientSecretExpiresOn: instant.nullable().meta({
    description:
      "Expiry date of the client secret. Alerts are sent 30, 14 and 3 days before. Default: the date from the tenant.",
  }),
  autoDiscover: z.boolean().meta({ description: "Whether credentials are discovered on a schedule." }),
  discoveryIntervalHours: z.int().min(1).max(720).meta({ description: "Hours between discoveries." }),
};

export const NewTenant = z
  .strictObject({
    tenantId: guid.meta({ description: "ID of the tenant, a GUID." }),
    ...registrationMembers,
    clientSecretExpiresOn: registrationMembers.clientSecretExpiresOn.optional(),
    autoDiscover: registrationMembers.autoDiscover.default(true),
    discoveryIntervalHours: registrationMembers.discoveryIntervalHours.default(24),
  })
  .meta({ id: "NewB2cTenant" });
export type NewTenant = z.output<typeof NewTenant>;

export const TenantChange = z
  .strictObject({ tenantId: guid, ...registrationMembers })
  .partial()
  .meta({
    id: "B2cTenantChange",
    description:
      "Any subset of the fields. The tenant can't be changed: register another tenant instead. A new clientId requires its clientSecret.",
  });
export type TenantChange = z.output<typeof TenantChange>;

/** States of a tenant. `new`: not discovered yet. `failing`: the last discovery could not read anything. */
export const STATES = ["new", "discovering", "discovered", "partial", "failing"] as const;

const CountsView = Counts.meta({
  id: "B2cCounts",
  description:
    "Numbers of credentials in the inventory. For applications: secrets and certificates. `expiring`: credentials with status warning or critical.",
});
const FailureView = ListFailure.extend({
  list: z.string().meta({
    description:
      "Kinds that could not be read: applications, policyKeys or identityProviders; signIn or organization if nothing could be read.",
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
      description: "Expiry date from the registration, or else from the last discovery. Null when unknown.",
    }),
    autoDiscover: z.boolean().meta({ description: "Whether credentials are discovered on a schedule." }),
    discoveryIntervalHours: z.int(),
    tenantType: z.enum(TENANT_TYPES).nullable().meta({
      description: "Type of the tenant. `external`: Microsoft Entra External ID. Null until the first discovery.",
    }),
    state: z.enum(STATES).meta({
      description:
        "`new`: not discovered yet. `partial`: the last discovery could not read one kind of credential; its known entries are kept. `failing`: it could not read any kind.",
    }),
    lastDiscoveredAt: instant.nullable().meta({ description: "Time of the last successful read of any kind." }),
    nextDiscoveryAt: instant.nullable().meta({
      description: "Time of the next scheduled discovery. After an incomplete discovery, within 6 hours.",
    }),
    counts: CountsView.nullable(),
    failure: FailureView.nullable().meta({ description: "First failure of the last discovery." }),
    failures: z.array(FailureView).meta({ description: "All failures of the last discovery." }),
    runId: z.string().nullable().meta({ description: "Discovery that is in progress." }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "B2cTenant" });

const STATE_OF = { completed: "discovered", partial: "partial", failed: "failing" } as const;

/** Converts a tenant to the form in API responses. */
export function tenantView(tenant: RegisteredTenant): z.infer<typeof TenantView> {
  const { row, status } = tenant;
  const { runId, ended, failures = [], secretEnds } = status;
  // The tenant's date applies only if the registration still uses the secret for which it was found.
  const expiryFromTenant = secretEnds?.of === row.clientSecret.id ? secretEnds.at : undefined;
  return {
    tenantId: row.tenantId,
    tenantDomain: row.tenantDomain,
    displayName: row.displayName,
    clientId: row.clientId,
    clientSecretExpiresOn: row.clientSecretExpiresOn ?? expiryFromTenant ?? null,
    autoDiscover: row.autoDiscover,
    discoveryIntervalHours: row.discoveryIntervalHours,
    tenantType: status.tenantType ?? null,
    state: runId !== undefined ? "discovering" : ended === undefined ? "new" : STATE_OF[ended],
    lastDiscoveredAt: status.lastDiscoveredAt ?? null,
    nextDiscoveryAt: nextDiscoveryAt(tenant) ?? null,
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
      description:
        "`partial`: one kind of credential could not be read; its known entries are kept. `failed`: no kind could be read.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    counts: CountsView.nullable().meta({
      description: "Numbers of credentials after the run. Null while it is in progress.",
    }),
    failures: z
      .array(FailureView)
      .meta({ description: "Parts of the tenant that could not be read, and how to fix it." }),
  })
  .meta({ id: "B2cDiscovery" });

/** Converts a discovery run to the form in API responses. */
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
    ok: z.boolean().meta({ description: "Whether a discovery could read everything." }),
    tenantType: z
      .enum(TENANT_TYPES)
      .nullable()
      .meta({ description: "Type of the tenant. Null when the tenant did not return it." }),
    organization: z
      .object({
        id: z.string(),
        displayName: z.string(),
        verifiedDomains: z.array(z.string()).meta({ description: "Verified domains of the tenant." }),
      })
      .nullable()
      .meta({ description: "Properties that the tenant returned." }),
    checks: z
      .array(
        z.object({
          name: z.enum(CHECKS),
          outcome: z.enum(["ok", "failed", "notApplicable", "notTried"]).meta({
            description: "`notApplicable`: tenants of this type do not have it. `notTried`: an earlier check failed.",
          }),
          permission: z
            .string()
            .nullable()
            .meta({ description: "Required application permission of Microsoft Graph." }),
          code: z.string().nullable(),
          message: z.string().nullable(),
          remedy: z.string().nullable(),
        }),
      )
      .meta({ description: "Checks in the order in which they run." }),
  })
  .meta({ id: "B2cTenantTest" });

/** Converts the result of a connection test to the form in API responses. */
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
