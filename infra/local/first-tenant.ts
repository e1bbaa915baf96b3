import { asAdministrator, Refused } from "./api.ts";

/** A tenant of the stand-in company, as its control API answers it. */
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
 * Registers the stand-in company's tenant of Azure AD B2C and has its credentials read, over the REST API as an administrator would.
 * What is registered already stays.
 *
 * @returns Lines that say how to look at it.
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
