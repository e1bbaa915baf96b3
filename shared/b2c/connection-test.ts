import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, Organization } from "../platform/azure/graph.ts";
import { LISTS, type List, type TenantRecord, type TenantType } from "./tenant.ts";
import { type Finding, PERMISSIONS, unreadableList, wrongDomain, wrongTenant } from "./tenant-problems.ts";

// The connection test of a tenant, before or after its registration: tries what a discovery reads, and reports each missing
// permission.

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

/** The Microsoft Graph requests that a discovery and a connection test send to a tenant. */
export type TenantReader = Pick<
  Graph,
  | "applications"
  | "servicePrincipals"
  | "identityProviders"
  | "keySets"
  | "organization"
  | "checkApplicationAccess"
  | "grantedPermissions"
>;

/**
 * Values of `tenantType` of an organization in Graph: https://learn.microsoft.com/graph/api/resources/organization. Other
 * values are workforce tenants.
 */
const TENANT_TYPE_OF_GRAPH: Record<string, TenantType> = { "AAD B2C": "b2c", CIAM: "external" };
export const tenantTypeOf = ({ tenantType }: Organization): TenantType | undefined =>
  tenantType === undefined ? undefined : (TENANT_TYPE_OF_GRAPH[tenantType] ?? "workforce");

/** Returns true if tenants of a type can have a kind of credential: only Azure AD B2C tenants have policy keys. */
export const canHaveList = (list: List, type: TenantType | undefined): boolean =>
  list !== "policyKeys" || type === undefined || type === "b2c";

/** The members of a registration that a connection test compares with the tenant. */
export type TestedTenant = Pick<TenantRecord, "tenantId" | "tenantDomain" | "clientId">;

/** Returns the problem if the application belongs to another tenant than the registered one. Undefined if it does not. */
export function mismatchOf(tenant: TenantRecord, organization: Organization): Finding | undefined {
  if (organization.id !== tenant.tenantId) return wrongTenant(tenant, organization.id);
  return organization.verifiedDomains.includes(tenant.tenantDomain) ? undefined : wrongDomain(tenant, organization);
}

/** Sends one small request for each kind of credential that a discovery reads. Without a token it sends none of them. */
export async function testTenant(tenant: TestedTenant, graph: TenantReader, signal: AbortSignal): Promise<TestResult> {
  const result: TestResult = { checks: [] };
  const add = (check: CheckResult) => result.checks.push(check);
  const failed = (name: CheckName, finding: Finding, permission?: string) =>
    add({ name, outcome: "failed", finding, ...(permission === undefined ? {} : { permission }) });

  const rights = await unlessFailure(graph.grantedPermissions());
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
    applications: () => graph.checkApplicationAccess(signal),
    policyKeys: () => graph.keySets(signal).next(),
    identityProviders: () => graph.identityProviders(signal).next(),
  };
  for (const name of LISTS) {
    const permission = PERMISSIONS[name];
    if (!canHaveList(name, result.tenantType)) {
      add({ name, outcome: "notApplicable", permission });
      continue;
    }
    const firstPage = await unlessFailure(reads[name]());
    if (!(firstPage instanceof CloudFailure)) add({ name, outcome: "ok", permission });
    else if (isAbsent(name, result.tenantType, firstPage)) add({ name, outcome: "notApplicable", permission });
    else failed(name, unreadableList(name, tenant, firstPage), permission);
  }
  return withUntried(result);
}

/**
 * Returns true if a failure means that the tenant has no policy keys: its type is unknown, and Graph does not find the list.
 */
export const isAbsent = (list: List, type: TenantType | undefined, { code }: CloudFailure): boolean =>
  list === "policyKeys" && type === undefined && code === "notFound";

const noConsent = ({ clientId }: TestedTenant): Finding => ({
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

/** Returns the result of a call, or the `CloudFailure` with which it is rejected. Other errors are thrown. */
export async function unlessFailure<T>(call: Promise<T>): Promise<T | CloudFailure> {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return error;
  }
}
