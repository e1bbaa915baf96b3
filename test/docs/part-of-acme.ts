import { acmeCompany } from "simulated-cloud/company/acme.ts";
import type { Company } from "simulated-cloud/company/company.ts";

/**
 * Returns the part of the simulated company Acme that the example requests of the API name, for browser.test.ts. The names and ids
 * are those of the whole company, and the part starts faster.
 */
export function partOfAcme(): Company {
  const { subscriptions = [], applications = [], devops, tenants = [] } = acmeCompany(1);
  const production = subscriptions[0]!;
  const [shop, partners] = tenants;
  const payments = ({ name }: { name: string }) => /payments/i.test(name);
  return {
    subscriptions: [
      {
        name: production.name,
        ...(production.tags && { tags: production.tags }),
        vaults: (production.vaults ?? []).filter(payments),
        resources: (production.resources ?? []).filter(payments),
      },
    ],
    applications: applications.filter(payments),
    devops: { organization: devops!.organization, projects: [{ name: "Payments" }] },
    tenants: [
      { ...shop!, applications: shop!.applications!.slice(0, 4), keySets: shop!.keySets!.slice(0, 2) },
      { ...partners!, applications: partners!.applications!.slice(0, 4) },
    ],
  };
}
