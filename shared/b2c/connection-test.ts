import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, Organization } from "../platform/azure/graph.ts";
import { LISTS, type List, type TenantRecord, type TenantType } from "./tenant.ts";
import { type Finding, PERMISSIONS, unreadableList, wrongDomain, wrongTenant } from "./tenant-problems.ts";

/** Steps of a connection test, in this order. */
export const CHECKS = ["signIn", "consent", "tenant", "domain", ...LISTS] as const;
type CheckName = (typeof CHECKS)[number];

export interface CheckResult {
  name: CheckName;
  outcome: "ok" | "failed" | "notApplicable" | "notTried";
  /** The required application permission of Microsoft Graph. */
  permission?: string;
  finding?: Finding;
}

/** Result of a connection test. */
export interface TestResult {
  tenantType?: TenantType | undefined;
  organization?: Organization | undefined;
  checks: CheckResult[];
}

/** The requests of a discovery and of a connection test to a tenant. */
export type TenantReader = Pick<
  Graph,
  "applications" | "servicePrincipals" | "identityProviders" | "keySets" | "organization" | "anApplication" | "rights"
>;

/**
 * Converts `tenantType` of the organization: https://learn.microsoft.com/graph/api/resources/organization. Unknown values are
 * treated as workforce tenants.
 */
const TYPES: Record<string, TenantType> = { "AAD B2C": "b2c", CIAM: "external" };
export const tenantTypeOf = ({ tenantType }: Organization): TenantType | undefined =>
  tenantType === undefined ? undefined : (TYPES[tenantType] ?? "workforce");

/** Only Azure AD B2C tenants have custom policies. If the type is unknown, the response decides. */
export const mayHave = (list: List, type: TenantType | undefined): boolean =>
  list !== "policyKeys" || type === undefined || type === "b2c";

/** Returns an error if the credentials belong to another tenant than the registered one, else undefined. */
export function mismatchOf(tenant: TenantRecord, organization: Organization): Finding | undefined {
  if (organization.id !== tenant.tenantId) return wrongTenant(tenant, organization.id);
  return organization.verifiedDomains.includes(tenant.tenantDomain) ? undefined : wrongDomain(tenant, organization);
}

/** Sends one small request for each kind that a discovery reads. Stops after a failure that makes the other steps pointless. */
export async function testTenant(tenant: TenantRecord, graph: TenantReader, signal: AbortSignal): Promise<TestResult> {
  const result: TestResult = { checks: [] };
  const add = (check: CheckResult) => result.checks.push(check);
  const failed = (name: CheckName, finding: Finding, permission?: string) =>
    add({ name, outcome: "failed", finding, ...(permission === undefined ? {} : { permission }) });

  const rights = await unlessFailure(graph.rights());
  if (rights instanceof CloudFailure) {
    const { code, message, remedy } = rights;
    failed("signIn", { code, message, remedy });
    return withUntried(result);
  }
  add({ name: "signIn", outcome: "ok" });
  if (rights.permissions.length === 0) failed("consent", noConsent(tenant));
  else add({ name: "consent", outcome: "ok" });

  const organization = await unlessFailure(graph.organization(signal));
  const permission = PERMISSIONS.organization;
  if (organization instanceof CloudFailure)
    failed("tenant", unreadableList("organization", tenant, organization), permission);
  else if (organization) {
    result.organization = organization;
    result.tenantType = tenantTypeOf(organization);
    const sameTenant = organization.id === tenant.tenantId;
    if (sameTenant) add({ name: "tenant", outcome: "ok", permission });
    else failed("tenant", wrongTenant(tenant, organization.id), permission);
    if (organization.verifiedDomains.includes(tenant.tenantDomain)) add({ name: "domain", outcome: "ok", permission });
    else failed("domain", wrongDomain(tenant, organization), permission);
  }

  const reads: Record<List, () => Promise<unknown>> = {
    applications: () => graph.anApplication(signal),
    policyKeys: () => graph.keySets(signal).next(),
    identityProviders: () => graph.identityProviders(signal).next(),
  };
  for (const name of LISTS) {
    const permission = PERMISSIONS[name];
    if (!mayHave(name, result.tenantType)) {
      add({ name, outcome: "notApplicable", permission });
      continue;
    }
    const found = await unlessFailure(reads[name]());
    if (!(found instanceof CloudFailure)) add({ name, outcome: "ok", permission });
    else if (isAbsent(name, result.tenantType, found)) add({ name, outcome: "notApplicable", permission });
    else failed(name, unreadableList(name, tenant, found), permission);
  }
  return withUntried(result);
}

/** If the type is unknown and there are no policy keys, the tenant is not an Azure AD B2C tenant. */
export const isAbsent = (list: List, type: TenantType | undefined, { code }: CloudFailure): boolean =>
  list === "policyKeys" && type === undefined && code === "notFound";

const noConsent = ({ clientId }: TenantRecord): Finding => ({
  code: "noConsent",
  message: `The application ${clientId} has no application permission of Microsoft Graph in that tenant.`,
  remedy: `Give it ${Object.values(PERMISSIONS).join(", ")}, and grant admin consent.`,
});

/** Returns all steps in their order, including those without a result. */
function withUntried(result: TestResult): TestResult {
  const checks = CHECKS.map(
    (name): CheckResult => result.checks.find((check) => check.name === name) ?? { name, outcome: "notTried" },
  );
  return { ...result, checks };
}

export async function unlessFailure<T>(work: Promise<T>): Promise<T | CloudFailure> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return error;
  }
}
