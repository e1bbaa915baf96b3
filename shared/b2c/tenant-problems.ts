import type { CloudFailure } from "../platform/azure/failure.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { ListFailure } from "../platform/runs/discovery-runs.ts";
import type { List, TenantRecord } from "./tenant.ts";

// Problems with the registration of a B2C tenant, as texts for administrators.

/** The application permission of Microsoft Graph that each list of a tenant needs. `organization`: the tenant's domains. */
export const PERMISSIONS: Record<List | "organization", string> = {
  organization: "Organization.Read.All",
  applications: "Application.Read.All",
  policyKeys: "TrustFrameworkKeySet.Read.All",
  identityProviders: "IdentityProvider.Read.All",
};
const LIST_NAMES: Record<List | "organization", string> = {
  organization: "the tenant's domains",
  applications: "applications",
  policyKeys: "policy keys",
  identityProviders: "identity providers",
};

/** A problem with a tenant's registration, as text for users. */
export type Finding = Pick<ListFailure, "code" | "message" | "remedy">;

/** Explains why a list could not be read. The identity is the tenant's registered application, not the service's own. */
export function unreadableList(
  list: List | "organization",
  { clientId, tenantDomain }: Pick<TenantRecord, "clientId" | "tenantDomain">,
  { code, message, remedy }: CloudFailure,
): Finding {
  if (code !== "accessDenied") return { code, message, remedy };
  return {
    code,
    message: `The application ${clientId} may not read ${LIST_NAMES[list]} of ${tenantDomain}.`,
    remedy: `Give it the application permission ${PERMISSIONS[list]} of Microsoft Graph in that tenant, and grant admin consent.`,
  };
}

/** Problem: the application belongs to another tenant than the registered one. */
export const wrongTenant = ({ tenantId }: Pick<TenantRecord, "tenantId">, actualTenantId: string): Finding => ({
  code: "wrongTenant",
  message: `The application signs in to the tenant ${actualTenantId}, not to ${tenantId}.`,
  remedy: "Delete the registration and register the tenant by its own id.",
});

/** Problem: the registered domain is not a domain of the tenant. */
export const wrongDomain = (
  { tenantDomain }: Pick<TenantRecord, "tenantDomain">,
  { displayName, verifiedDomains }: { displayName: string; verifiedDomains: readonly string[] },
): Finding => ({
  code: "wrongDomain",
  message: `${tenantDomain} is not a verified domain of the tenant, which is “${toSingleLine(displayName).slice(0, 120)}” with ${toSingleLine(verifiedDomains.slice(0, 5).join(", ")).slice(0, 500) || "none"}.`,
  remedy: "Check tenantId, or save the registration with the right tenantDomain.",
});

/** Problem: the client secret is missing in the key vault, or was stored for another application than the registered one. */
export const secretMissing: Finding = {
  code: "secretMissing",
  message:
    "The registration's client secret is no longer in the service's key vault, or belongs to another application.",
  remedy: "Save the registration with the client secret again.",
};

/** Problem: the registered tenant is the service's own. */
export const ownTenant: Finding = {
  code: "ownTenant",
  message: "This is the tenant of the service itself.",
  remedy: "Delete the registration: this tenant's applications are discovered without one.",
};
