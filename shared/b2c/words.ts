import type { CloudFailure } from "../platform/azure/failure.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { ListFailure } from "../platform/runs/discovery-runs.ts";
import type { List, TenantRecord } from "./tenant.ts";

/** What reading each thing of a tenant takes, as an application permission of Microsoft Graph. */
export const PERMISSIONS: Record<List | "organization", string> = {
  organization: "Organization.Read.All",
  applications: "Application.Read.All",
  policyKeys: "TrustFrameworkKeySet.Read.All",
  identityProviders: "IdentityProvider.Read.All",
};
const THINGS: Record<List | "organization", string> = {
  organization: "the tenant's domains",
  applications: "applications",
  policyKeys: "policy keys",
  identityProviders: "identity providers",
};

/** Something that is wrong with a tenant's registration, in words for its people. */
export type Finding = Pick<ListFailure, "code" | "message" | "remedy">;

/** Why a list could not be read. The identity is the tenant's registered application, not the service's own. */
export function unreadable(
  list: List | "organization",
  { clientId, tenantDomain }: Pick<TenantRecord, "clientId" | "tenantDomain">,
  { code, message, remedy }: CloudFailure,
): Finding {
  if (code !== "accessDenied") return { code, message, remedy };
  return {
    code,
    message: `The application ${clientId} may not read ${THINGS[list]} of ${tenantDomain}.`,
    remedy: `Give it the application permission ${PERMISSIONS[list]} of Microsoft Graph in that tenant, and grant admin consent.`,
  };
}

export const wrongTenant = ({ tenantId }: Pick<TenantRecord, "tenantId">, found: string): Finding => ({
  code: "wrongTenant",
  message: `The application signs in to the tenant ${found}, not to ${tenantId}.`,
  remedy: "Delete the registration and register the tenant by its own id.",
});

export const wrongDomain = (
  { tenantDomain }: Pick<TenantRecord, "tenantDomain">,
  { displayName, verifiedDomains }: { displayName: string; verifiedDomains: readonly string[] },
): Finding => ({
  code: "wrongDomain",
  message: `${tenantDomain} is no verified domain of the tenant, which is “${toSingleLine(displayName).slice(0, 120)}” with ${toSingleLine(verifiedDomains.slice(0, 5).join(", ")).slice(0, 500) || "none"}.`,
  remedy: "Check tenantId, or save the registration with the right tenantDomain.",
});

export const secretMissing: Finding = {
  code: "secretMissing",
  message:
    "The registration's client secret is not in the service's key vault any more, or is not for this application.",
  remedy: "Save the registration with the client secret again.",
};

export const ownTenant: Finding = {
  code: "ownTenant",
  message: "This is the tenant that the service itself is in.",
  remedy: "Delete the registration: this tenant's applications are discovered without one.",
};
