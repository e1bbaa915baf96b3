import { asAdministrator, Refused } from "./api.ts";

/** A tenant of the simulated company, as the control API returns it. */
interface StandInTenant {
  id: string;
  name: string;
  domain: string;
  type: string;
  clientId: string;
  clientSecret: string;
}
interface Tenant {
  displayName: string;
  counts: { applications: number; policyKeys: number; identityProviders: number } | null;
  failure: { code: string; remedy: string } | null;
}

/**
 * Registers the simulated company's Azure AD B2C tenant and discovers its credentials, through the REST API. Keeps an existing
 * registration.
 *
 * @returns Lines that tell the user where to find the credentials.
 */
export async function configureTenant(
  base: string,
  administrator: { username: string; password: string },
  cloud: { controlUrl: string },
): Promise<string[]> {
  const tenants = (await (await fetch(`${cloud.controlUrl}/tenants`)).json()) as StandInTenant[];
  const found = tenants.find(({ type }) => type === "AAD B2C");
  if (!found) return [];
  const api = await asAdministrator(base, administrator);
  const { id: tenantId, name: displayName, domain: tenantDomain, clientId, clientSecret } = found;
  try {
    await api("POST", "/b2c/tenants", { tenantId, tenantDomain, displayName, clientId, clientSecret });
  } catch (error) {
    if (!(error instanceof Refused) || error.problem.code !== "alreadyExists") throw error;
  }
  await api("POST", `/b2c/tenants/${tenantId}/discover`);
  const { counts, failure } = await api<Tenant>("GET", `/b2c/tenants/${tenantId}`);
  const { applications = 0, policyKeys = 0, identityProviders = 0 } = counts ?? {};
  const credentials = `${applications + policyKeys + identityProviders} credentials`;
  const what = failure ? `${failure.code}. ${failure.remedy}` : counts ? credentials : "still being read";
  return [`Tenants        ${base}/b2c/tenants  (${displayName}: ${what})`];
}
