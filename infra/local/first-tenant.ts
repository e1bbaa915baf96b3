import { ApiError, signInAsAdministrator } from "./api.ts";

// A step of `npm start -- --pro`: registers the B2C tenant of the simulated company.

/** A tenant of the simulated company, as the control API returns it. */
interface SimulatedTenant {
  id: string;
  name: string;
  domain: string;
  type: string;
  clientId: string;
  clientSecret: string;
}
/** A registered tenant, as the service returns it. `counts` is null until its discovery has ended. */
interface Tenant {
  displayName: string;
  counts: { applications: number; policyKeys: number; identityProviders: number } | null;
  failure: { code: string; remedy: string } | null;
}

/**
 * Registers the simulated company's Azure AD B2C tenant and discovers its credentials, through the REST API. An existing
 * registration is not changed.
 *
 * @returns Lines that tell the user where to find the credentials.
 */
export async function configureTenant(
  serviceUrl: string,
  administrator: { username: string; password: string },
  cloud: { controlUrl: string },
): Promise<string[]> {
  const tenants = (await (await fetch(`${cloud.controlUrl}/tenants`)).json()) as SimulatedTenant[];
  const b2cTenant = tenants.find(({ type }) => type === "AAD B2C");
  if (!b2cTenant) return [];
  const api = await signInAsAdministrator(serviceUrl, administrator);
  const { id: tenantId, name: displayName, domain: tenantDomain, clientId, clientSecret } = b2cTenant;
  try {
    await api("POST", "/b2c/tenants", { tenantId, tenantDomain, displayName, clientId, clientSecret });
  } catch (error) {
    if (!(error instanceof ApiError) || error.problem.code !== "alreadyExists") throw error;
  }
  await api("POST", `/b2c/tenants/${tenantId}/discover`);
  const { counts, failure } = await api<Tenant>("GET", `/b2c/tenants/${tenantId}`);
  const { applications = 0, policyKeys = 0, identityProviders = 0 } = counts ?? {};
  const credentials = `${applications + policyKeys + identityProviders} credentials`;
  const result = failure ? `${failure.code}. ${failure.remedy}` : counts ? credentials : "still being read";
  return [`Tenants        ${serviceUrl}/#/b2c  (${displayName}: ${result})`];
}
